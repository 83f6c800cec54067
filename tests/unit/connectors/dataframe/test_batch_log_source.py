"""BatchLogSource: each row of a log once whatever fails, and batches that stay until no state needs them."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.dataframe.batch_log import BatchGoneError, BatchLog, BatchLogError
from headrace.connectors.dataframe.batch_log_source import BatchLogSource
from headrace.connectors.dataframe.messages import StagedPart
from headrace.core.errors import ProgramError
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import Types
from tests.unit.connectors.replays import LOCATION, Life, Snapshot, SourceJob, lives

ROW = Types.ROW_NAMED(["number"], [Types.LONG()])
SCOPE = "query"


class Feed:
    """Appends batches of two files each, with numbers that go up."""

    def __init__(self, folder: str) -> None:
        self.log = BatchLog(f"{folder}/log")
        self.source = BatchLogSource(self.log.path, ROW, Duration.of_millis(1))
        self.row_count = 0
        self._folder = folder
        self._numbers: Iterator[int] = iter(range(1, 10_000))

    def append(self, batch_count: int = 1) -> None:
        for _ in range(batch_count):
            number = next(self._numbers)
            parts: list[StagedPart] = []
            for part in range(2):
                path = f"{self._folder}/part-{number}-{part}.parquet"
                rows = list(range(self.row_count, self.row_count + 3))
                self.row_count += len(rows)
                pq.write_table(pa.table({"number": pa.array(rows, pa.int64())}), path)
                parts.append(StagedPart(path, len(rows), part, 0))
            self.log.append(SCOPE, number, parts)

    def job(
        self, parallelism: int = 2, snapshot: Snapshot | None = None, owners: tuple[int, ...] = (0,)
    ) -> SourceJob:
        return SourceJob(self.source, parallelism, ROW, snapshot, owners)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(str(tmp_path))


def numbers_of(job: SourceJob) -> list[int]:
    return [row.number for row in job.rows]


@given(lives(), st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_each_row_comes_once_and_no_batch_stays_that_was_read(
    attempts: list[Life], appended: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        feed = Feed(folder)
        feed.append(2)
        kept: list[int] = []
        snapshot: Snapshot | None = None
        for number, life in enumerate(attempts, 1):
            job = feed.job(life.parallelism, snapshot, tuple(life.owners))
            feed.append(appended[number - 1])
            job.poll(life.polls_before_checkpoint)
            snapshot = job.checkpoint(number)
            kept += numbers_of(job)
            job.coordinator.checkpoint_completed(number)
            job.poll(life.polls_after_checkpoint)
            job.close()
        job = feed.job(2, snapshot, (0, 1))
        job.poll(100)
        assert sorted(kept + numbers_of(job)) == list(range(feed.row_count))
        job.checkpoint(9)
        job.coordinator.checkpoint_completed(9)
        assert feed.log.first_number == feed.log.last_number + 1
        assert not list(Path(folder, "log").glob("*.parquet"))


def test_a_batch_stays_until_the_checkpoint_behind_its_last_row_is_published(feed: Feed) -> None:
    feed.append(2)
    job = feed.job(1)
    job.poll(20)
    assert len(job.rows) == feed.row_count
    job.checkpoint(1)
    assert feed.log.first_number == 1
    feed.append()
    job.coordinator.checkpoint_completed(1)
    assert feed.log.first_number == 3
    assert feed.log.last_number == 3


def test_a_file_whose_end_was_told_after_the_checkpoint_is_not_waited_for(feed: Feed) -> None:
    feed.append()
    job = feed.job(1)
    told: list[bytes] = []
    send = job.contexts[0].send_event
    job.contexts[0].send_event = told.append
    job.poll(2)
    # The first file is read, which the coordinator has not heard of when the checkpoint is taken.
    for payload in told[:-1]:
        send(payload)
    job.poll(20)
    snapshot = job.checkpoint(1)
    job.close()
    restored = feed.job(1, snapshot)
    restored.poll(20)
    restored.checkpoint(2)
    restored.coordinator.checkpoint_completed(2)
    assert feed.log.first_number == 2


def test_a_reader_that_starts_anew_reads_again_what_its_checkpoint_lacks(feed: Feed) -> None:
    feed.append(2)
    job = feed.job(1)
    job.poll(2)
    snapshot = job.checkpoint(1)
    job.coordinator.checkpoint_completed(1)
    before = numbers_of(job)
    job.poll(20)
    # Only the reader fails: the enumerator goes on.
    reader, [output] = feed.source.create_reader(job.contexts[0]), job.outputs
    job.readers[0] = reader
    output.batches.clear()
    output.splits.clear()
    attempt = job.attempts[0]
    job.coordinator.subtask_failed(attempt)
    job.coordinator.subtask_reset(0, 1)
    reader.restore_splits(snapshot.splits)
    reader.start()
    job.coordinator.subtask_ready(attempt, LOCATION)
    job.checkpoint(2)
    job.coordinator.checkpoint_completed(2)
    assert feed.log.first_number == 1
    job.poll(20)
    assert sorted(before + numbers_of(job)) == list(range(feed.row_count))
    job.checkpoint(3)
    job.coordinator.checkpoint_completed(3)
    assert feed.log.first_number == 3


def test_a_checkpoint_whose_batches_are_gone_is_refused(feed: Feed) -> None:
    feed.append(2)
    job = feed.job(1)
    early = job.checkpoint(1)
    job.poll(20)
    job.checkpoint(2)
    job.coordinator.checkpoint_completed(2)
    job.close()
    with pytest.raises(BatchGoneError, match=r"batch 1 of the log .* was deleted"):
        feed.job(1, early)


def test_the_columns_are_those_of_the_log_and_others_are_refused(feed: Feed) -> None:
    with pytest.raises(BatchLogError, match="is not a log of batches"):
        BatchLogSource(feed.log.path)
    feed.job()
    assert BatchLogSource(feed.log.path).produced_type == ROW
    other = BatchLogSource(feed.log.path, Types.ROW_NAMED(["name"], [Types.STRING()]))
    with pytest.raises(BatchLogError, match=r"has columns 'number' \(int64\)"):
        SourceJob(other, 1, ROW)
    with pytest.raises(ProgramError, match="rows with named columns"):
        BatchLogSource(feed.log.path, Types.LONG())
    pickled = Types.LIST(Types.ROW_NAMED(["object"], [Types.PICKLED_BYTE_ARRAY()]))
    with pytest.raises(ProgramError, match="which it does not unpickle"):
        BatchLogSource(feed.log.path, Types.ROW_NAMED(["rows"], [pickled]))
    with pytest.raises(ProgramError, match="discovery_interval must be above 0"):
        BatchLogSource(feed.log.path, ROW, Duration.of_millis(0))

"""The format `headrace-state` without Spark: which lease a query has, and what it is told when a checkpoint goes."""

from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint.errors import CheckpointStorageError, SnapshotSubsumedError
from headrace.checkpoint.retention.cleaner import CheckpointCleaner
from headrace.checkpoint.retention.completed_store import Deletion
from headrace.checkpoint.retention.leases import LEASES_FOLDER, Lease, live_leases
from headrace.checkpoint.storage.file_systems import files_below, is_there, remove_file
from headrace.core.clock import SystemClock
from headrace.spark.state_tables.state_source import HeadraceStateReader, HeadraceStateSource
from headrace.state_processor.errors import StateProcessorError, UnknownStateError
from tests.unit.state_processor.saved import FILES, UID, savepoint, settings_in

KINDS = ("insert", "update", "delete")


class Job:
    """Checkpoints 7 and 8 of a job, of which 7 is given up when a test likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "job"
        self.key = folder / "key"
        own = settings_in(folder, **FILES)
        for number in (7, 8):
            savepoint(self.folder / f"chk-{number}", own)
        self.old = str(self.folder / "chk-7")
        self._cleaner = CheckpointCleaner(1, start=lambda _, body: body())

    def source(self, **options: Any) -> HeadraceStateSource:
        known = {"path": str(self.folder), "checkpoint": "7", "keyFile": str(self.key)}
        return HeadraceStateSource({**known, "operator": UID, "state": "count", **options})

    def give_up(self) -> None:
        self._cleaner.delete(Deletion(7, self.old))

    def end_leases(self) -> None:
        """As when nobody has renewed them for their whole duration."""
        for one in files_below(f"{self.old}/{LEASES_FOLDER}"):
            remove_file(one.uri)

    def lease_count(self) -> int:
        return len(live_leases(self.old, SystemClock().now_ms()))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def reader_of(source: HeadraceStateSource) -> HeadraceStateReader:
    reader = source.reader(source.schema())
    assert isinstance(reader, HeadraceStateReader)
    return reader


def row_count(reader: HeadraceStateReader, parts: Any) -> int:
    return sum(batch.num_rows for part in parts for batch in reader.read(part))


def test_a_query_reads_to_its_end_what_is_given_up_meanwhile(job: Job) -> None:
    reader = reader_of(job.source())
    job.give_up()
    parts = reader.partitions()
    assert (len(parts), job.lease_count()) == (2, 1)
    count = row_count(reader, parts[:1])
    job.give_up()
    assert is_there(job.old)
    assert count + row_count(reader, parts[1:]) == 6
    job.end_leases()
    job.give_up()
    assert not is_there(job.old)


def test_a_query_that_runs_again_takes_its_lease_again(job: Job) -> None:
    reader = reader_of(job.source())
    parts = reader.partitions()
    assert row_count(reader, parts) == 6
    job.end_leases()
    assert row_count(reader, parts) == 6
    assert job.lease_count() == 1
    job.end_leases()
    job.give_up()
    with pytest.raises(SnapshotSubsumedError, match="the oldest one left is 8"):
        row_count(reader, parts)
    assert not is_there(job.old)
    with pytest.raises(SnapshotSubsumedError, match="the oldest one left is 8"):
        reader.partitions()
    with pytest.raises(UnknownStateError, match="was subsumed: choose from 8"):
        job.source()


def test_two_scans_of_one_data_frame_do_not_end_each_others_lease(job: Job) -> None:
    """PySpark plans the partitions once: a self-join, or two actions, read the same ones beside each other."""
    reader = reader_of(job.source())
    parts = reader.partitions()
    slow = [reader.read(part) for part in parts]
    count = sum(next(one).num_rows for one in slow)
    assert row_count(reader, parts) == 6
    assert job.lease_count() == 1
    job.give_up()
    assert count + sum(batch.num_rows for one in slow for batch in one) == 6


def test_without_a_lease_a_missing_file_is_told_as_what_it_is(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(lease: Lease, now_ms: int) -> None:
        raise CheckpointStorageError("write", lease.snapshot_uri, "permission denied")

    monkeypatch.setattr(Lease, "write", refuse)
    reader = reader_of(job.source())
    parts = reader.partitions()
    assert row_count(reader, parts) == 6
    job.give_up()
    with pytest.raises(
        SnapshotSubsumedError, match=r"newer checkpoints have replaced it.* one left is 8"
    ):
        row_count(reader, parts)


def test_nobody_waits_for_a_table_that_was_read_with_the_metadata(job: Job) -> None:
    reader = reader_of(HeadraceStateSource(_only(job, table="operators")))
    parts = reader.partitions()
    assert job.lease_count() == 0
    job.give_up()
    assert not is_there(job.old)
    assert row_count(reader, parts) == 1


def test_a_lease_may_be_declined_and_lasts_as_long_as_was_said(job: Job) -> None:
    reader_of(job.source(leaseDuration="0")).partitions()
    assert job.lease_count() == 0
    reader_of(job.source(leaseDuration="1 h")).partitions()
    (lease,) = live_leases(job.old, SystemClock().now_ms())
    assert lease.expires_ms - SystemClock().now_ms() > 3_000_000
    with pytest.raises(StateProcessorError, match="leaseDuration is '-1 s'"):
        job.source(leaseDuration="-1 s")


def _only(job: Job, **options: str) -> dict[str, str]:
    return {"path": str(job.folder), "checkpoint": "7", "keyFile": str(job.key), **options}


def test_a_feed_has_leases_on_both_its_checkpoints(job: Job) -> None:
    feed = {"readChangeFeed": "true", "changeStartCheckpoint": "7", "state": "count"}
    options = {"path": str(job.folder), "keyFile": str(job.key), "operator": UID, **feed}
    changed = savepoint(job.folder / "chk-9", settings_in(job.folder.parent, **FILES), [1, 2, 70])
    reader = reader_of(HeadraceStateSource(options))
    parts = reader.partitions()
    now_ms = SystemClock().now_ms()
    assert [len(live_leases(uri, now_ms)) for uri in (job.old, changed.uri)] == [1, 1]
    job.give_up()
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    kinds = {kind: {row["key"] for row in rows if row["change_type"] == kind} for kind in KINDS}
    assert (kinds["insert"], kinds["delete"]) == ({70}, {0, 3, 4, 5})
    assert kinds["update"] <= {1, 2}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"readChangeFeed": "true"}, "needs the option 'changeStartCheckpoint'"),
        (
            {"readChangeFeed": "true", "changeStartCheckpoint": "7"},
            "'checkpoint' cannot be combined",
        ),
        ({"changeEndCheckpoint": "7"}, "'changeEndCheckpoint' needs readChangeFeed"),
    ],
)
def test_options_of_feeds_are_given_together(job: Job, options: dict[str, str], said: str) -> None:
    with pytest.raises(StateProcessorError, match=said):
        job.source(**options)

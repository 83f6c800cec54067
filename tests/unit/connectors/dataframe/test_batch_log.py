"""Logs of batches: each row in one batch whatever crashes come, and errors where a batch is gone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.connectors.dataframe.batch_log as batch_log
from headrace.connectors.dataframe.batch_log import (
    BATCH_LOG_FORMAT,
    BatchGoneError,
    BatchLog,
    BatchLogError,
    BatchLogFullError,
)
from headrace.connectors.dataframe.directory_commit import NumberUsedTwiceError
from headrace.connectors.dataframe.messages import StagedPart
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.connectors.files.paths import PathOutsideError
from headrace.core.errors import ProgramError
from tests.unit.connectors.sink_world import Crash, FailingFileSystem, SinkWorld
from tests.unit.spark.dataframes.committer_world import ArrowSession, Row, world_of

COLUMNS = pa.schema([("subtask", pa.int32()), ("number", pa.int32())])


def rows_of(log: BatchLog, start: int, end: int) -> list[Row]:
    """Rows of the batches behind `start` up to `end`, in order."""
    found: list[Row] = []
    for batch in log.batches(start, end):
        for file in batch.files:
            _, path = log.file_path(file)
            table = pq.read_table(path)
            assert table.num_rows == file.row_count
            found += zip(*table.to_pydict().values(), strict=True)
    return found


def sink_of(path: Path) -> DataFrameSink:
    return DataFrameSink(path, BATCH_LOG_FORMAT, mode="append")


def staged(folder: Path, *names: str) -> list[StagedPart]:
    folder.mkdir(exist_ok=True)
    for name in names:
        pq.write_table(pa.table({"n": [1]}), folder / name)
    return [StagedPart(str(folder / name), 1, 0, 0) for name in names]


def test_each_checkpoint_with_rows_is_a_batch_and_nothing_is_left_beside_the_log(
    tmp_path: Path,
) -> None:
    world, log = (
        world_of(sink_of(tmp_path / "log"), ArrowSession()),
        BatchLog(str(tmp_path / "log")),
    )
    assert log.schema() == COLUMNS
    assert (log.first_number, log.last_number) == (1, 0)
    world.write(0, 2)
    world.write(1, 1)
    world.checkpoint()
    world.checkpoint()
    world.write(1, 1)
    world.finish()
    assert sorted(rows_of(log, 0, 1)) == [(0, 0), (0, 1), (1, 0)]
    assert rows_of(log, 1, 2) == [(1, 1)]
    assert log.last_number == 2
    assert [one.name for one in tmp_path.iterdir()] == ["log"]
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


def test_what_a_reader_is_done_with_is_deleted_and_numbers_go_on(tmp_path: Path) -> None:
    world, log = (
        world_of(sink_of(tmp_path / "log"), ArrowSession()),
        BatchLog(str(tmp_path / "log")),
    )
    for _ in range(3):
        world.write(0, 1)
        world.checkpoint()
    log.delete_up_to(2)
    log.delete_up_to(1)
    assert (log.first_number, log.last_number) == (3, 3)
    assert len(list((tmp_path / "log").glob("*.parquet"))) == 1
    log.delete_up_to(3)
    assert list((tmp_path / "log").glob("*.parquet")) == []
    # A commit that is repeated is known although its batch is gone.
    assert world.last_committed() == 3
    world.crash()
    world.write(0, 1)
    world.checkpoint()
    assert (log.first_number, log.last_number) == (4, 4)
    assert rows_of(log, 3, 4) == [(0, 3)]


def test_a_batch_that_is_gone_or_never_was_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    world, log = (
        world_of(sink_of(tmp_path / "log"), ArrowSession()),
        BatchLog(str(tmp_path / "log")),
    )
    for _ in range(2):
        world.write(0, 1)
        world.checkpoint()
    log.delete_up_to(1)
    with pytest.raises(
        BatchGoneError,
        match=r"batch 1 of the log .* was deleted after a query had read it; the oldest\s+batch is 2",
    ):
        list(log.batches(0, 2))
    with pytest.raises(BatchGoneError, match="cleanSource=off"):
        log.check_start(0)
    log.check_start(1)
    log.check_start(2)
    with pytest.raises(BatchGoneError, match=r"batch 7 is not in the log .* newest is 2"):
        log.check_start(7)


def test_a_program_that_starts_anew_goes_on_in_the_same_log(tmp_path: Path) -> None:
    log = BatchLog(str(tmp_path / "log"))
    for lineage in ("first", "second"):
        world = world_of(sink_of(tmp_path / "log"), ArrowSession(), lineage=lineage)
        world.write(0, 1)
        world.checkpoint()
    assert rows_of(log, 0, 2) == [(0, 0), (0, 0)]


def test_rows_under_an_id_that_is_used_are_not_dropped(tmp_path: Path) -> None:
    log = BatchLog(str(tmp_path / "log"))
    log.append("lineage/sink", 5, staged(tmp_path / "staging", "a.parquet"))
    log.append("lineage/sink", 5, [StagedPart(str(tmp_path / "staging" / "a.parquet"), 1, 0, 0)])
    with pytest.raises(NumberUsedTwiceError, match="checkpoint 5"):
        log.append("lineage/sink", 5, staged(tmp_path / "staging", "b.parquet"))
    assert log.last_number == 1


def test_a_log_that_nobody_reads_is_full_some_time(tmp_path: Path) -> None:
    log = BatchLog(str(tmp_path / "log"))
    for number in (1, 2):
        log.append("s", number, staged(tmp_path / "staging", f"{number}.parquet"), 2)
    third = staged(tmp_path / "staging", "3.parquet")
    with pytest.raises(BatchLogFullError, match="2 batches wait") as caught:
        log.append("s", 3, third, 2)
    assert caught.value.recoverable
    log.delete_up_to(1)
    log.append("s", 3, third, 2)
    assert log.last_number == 3


def test_a_folder_without_a_log_and_other_columns_are_errors(tmp_path: Path) -> None:
    log = BatchLog(str(tmp_path / "log"))
    with pytest.raises(BatchLogError, match="no job has written to it yet"):
        log.schema()
    log.declare(COLUMNS)
    log.declare(COLUMNS)
    with pytest.raises(
        BatchLogError, match=r"has columns 'subtask' \(int32\), .* have 'n' \(int64\)"
    ):
        log.declare(pa.schema([("n", pa.int64())]))
    (tmp_path / "log" / "_log" / f"{1:020d}.json").write_text("{")
    with pytest.raises(BatchLogError, match="is damaged"):
        list(log.batches(0, 1))


def test_an_entry_that_names_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    log = BatchLog(str(tmp_path / "log"))
    log.declare(COLUMNS)
    entry = {"number": 1, "files": [{"name": "../secret", "row_count": 1}]}
    (tmp_path / "log" / "_log" / f"{1:020d}.json").write_bytes(msgspec.json.encode(entry))
    (batch,) = log.batches(0, 1)
    with pytest.raises(PathOutsideError):
        log.file_path(batch.files[0])


def test_a_failed_job_is_told_until_one_writes_again(tmp_path: Path) -> None:
    log = BatchLog(str(tmp_path / "log"))
    log.declare(COLUMNS)
    assert log.failure() is None
    log.mark_failed("ValueError: no")
    assert log.failure() == "ValueError: no"
    log.declare(COLUMNS)
    assert log.failure() is None


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("overwrite", {}, "mode='append'"),
        ("append", {"compression": "zstd"}, "no option 'compression'"),
        ("append", {"maxBatches": "none"}, "at least 1"),
    ],
)
def test_a_log_is_appended_to_and_has_one_option(
    mode: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ProgramError, match=said):
        DataFrameSink("log", BATCH_LOG_FORMAT, mode=mode, options=options)


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1), st.integers(0, 3)),
    st.sampled_from([("checkpoint",), ("abort",), ("publish",), ("crash",), ("fail",), ("read",)]),
    st.tuples(st.just("crash within"), st.integers(0, 12)),
    st.tuples(st.just("reader crashes within"), st.integers(0, 6)),
)


@given(steps=st.lists(STEPS, max_size=20))
def test_a_reader_gets_every_row_once_whatever_comes_between(steps: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        world = world_of(sink_of(path), ArrowSession())
        reader = _Reader(path)
        for step in steps:
            take(world, reader, step)
        world.finish()
        reader.read()
        assert sorted(reader.rows) == sorted(world.expected)
        assert list(path.glob("*.parquet")) == []


class _Reader:
    """A query: it takes rows over with their offset, and says later that it is done with them."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.offset = 0
        self.rows: list[Row] = []

    def read(self) -> None:
        log = BatchLog(self.path)
        log.check_start(self.offset)
        end = log.last_number
        self.rows += rows_of(log, self.offset, end)
        self.offset = end
        log.delete_up_to(end)


@contextmanager
def failing_after(calls: int) -> Iterator[None]:
    real = batch_log.file_system_of

    def file_system_of(path: str) -> tuple[Any, str]:
        file_system, place = real(path)
        return FailingFileSystem(file_system, calls), place

    with patch.object(batch_log, "file_system_of", file_system_of):
        yield


def take(world: SinkWorld, reader: _Reader, step: Any) -> None:
    match step:
        case ("read",):
            reader.read()
        case ("crash within", calls):
            world.publish()
            try:
                with failing_after(calls):
                    world.commit()
            except Exception as error:
                assert isinstance(error.__cause__ or error, Crash)
                world.crash()
        case ("reader crashes within", calls):
            try:
                with failing_after(calls):
                    reader.read()
            except Crash:
                pass
        case _:
            world.take(step)

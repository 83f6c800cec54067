"""The DataFrame sink: staged files beside the target, reported once complete; only the newest attempt counts."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from headrace.api.environment import StreamExecutionEnvironment
from headrace.connectors.dataframe.messages import FilesStaged
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.connectors.files.sink.staging import FORGOTTEN_MS, MARKER, remove_if_spent
from headrace.core.clock import Clock, ManualClock
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.spark.dataframes.sink_coordinator import StagedFiles

ROWS = Types.ROW_NAMED(["origin", "delay"], [Types.STRING(), Types.DOUBLE()])


@dataclass
class Context:
    types: OperatorTypes
    send_event: Callable[[bytes], None]
    subtask_index: int = 1
    attempt_number: int = 0
    operator_name: str = "results"
    settings: Settings = field(default_factory=Settings)
    clock: Clock = field(default_factory=ManualClock)
    attempt_id: None = None


def context_of(events: list[bytes], value_type: Any = ROWS) -> Any:
    types = OperatorTypes((BatchType(value_type),), BatchType(value_type))
    return Context(types, events.append)


def test_rows_are_staged_as_parquet_and_reported_at_the_end(tmp_path: Path) -> None:
    sink, events = DataFrameSink(tmp_path / "out"), list[bytes]()
    writer = sink.create_writer(context_of(events))
    writer.write_batch(RecordBatch.of_rows(BatchType(ROWS), [("JFK", 1.5), ("LGA", None)]))
    writer.flush(end_of_input=True)
    (staged,) = [msgspec.msgpack.decode(event, type=FilesStaged) for event in events]
    assert (staged.subtask_index, staged.row_count) == (1, 2)
    assert pq.read_table(staged.paths[0]).to_pydict() == {
        "origin": ["JFK", "LGA"],
        "delay": [1.5, None],
    }
    assert Path(staged.paths[0]).parent.parent == tmp_path


def test_a_subtask_without_rows_stages_an_empty_file_with_the_schema(tmp_path: Path) -> None:
    events: list[bytes] = []
    writer = DataFrameSink(tmp_path / "out").create_writer(context_of(events))
    writer.flush(end_of_input=True)
    staged = msgspec.msgpack.decode(events[0], type=FilesStaged)
    table = pq.read_table(staged.paths[0])
    assert (table.num_rows, table.schema.names) == (0, ["origin", "delay"])


def test_nothing_is_reported_before_the_end_of_input(tmp_path: Path) -> None:
    events: list[bytes] = []
    writer = DataFrameSink(tmp_path / "out").create_writer(context_of(events))
    writer.flush(end_of_input=False)
    writer.close()
    assert events == []


def test_undeclared_objects_are_refused_with_a_way_out(tmp_path: Path) -> None:
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    objects = stream.map(lambda n: [n]).name("boxes")
    line = sys._getframe().f_lineno + 4  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(
        ProgramError, match=rf"needs records with columns.*output_type.*'boxes'.*\.py, line {line}"
    ):
        objects.sink_to(DataFrameSink(tmp_path / "out"))


def test_a_relative_path_means_the_program_s_folder_also_on_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = DataFrameSink("out")
    monkeypatch.chdir("/")
    assert sink.target == str(tmp_path / "out")
    assert sink.staging_directory.startswith(f"{tmp_path}/.out.staging-")


def test_an_unknown_mode_is_refused_while_the_program_is_built() -> None:
    with pytest.raises(ProgramError, match="cannot write in mode 'upsert'"):
        DataFrameSink("out", mode="upsert")


def test_two_sinks_for_one_path_stage_apart() -> None:
    assert DataFrameSink("out").staging_directory != DataFrameSink("out").staging_directory


def test_staged_files_of_an_older_attempt_are_passed_over() -> None:
    staged = StagedFiles(parallelism=2)
    staged.add(FilesStaged(0, 1, ("new",), 1))
    staged.add(FilesStaged(0, 0, ("old",), 1))
    assert staged.missing == (1,)
    staged.add(FilesStaged(1, 0, ("other",), 1))
    assert staged.paths == ("new", "other")


def test_a_failed_subtask_s_files_are_forgotten() -> None:
    staged = StagedFiles(parallelism=1)
    staged.add(FilesStaged(0, 0, ("a",), 1))
    staged.forget(0)
    assert staged.missing == (0,)


def executing(sink: DataFrameSink) -> None:
    """Execute a program with this sink."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([("JFK", 1.5)], ROWS).sink_to(sink)
    env.execute()


@pytest.mark.parametrize("mode", ["error", "errorifexists"])
def test_a_path_that_exists_is_refused_before_anything_runs(tmp_path: Path, mode: str) -> None:
    with pytest.raises(
        ProgramError,
        match=r"which exists: remove it, or set mode='overwrite'.*'Sink: DataFrameSink', .*sink\.py, line \d+",
    ):
        executing(DataFrameSink(tmp_path, mode=mode))


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ProgramError, match=r"file is not a folder"):
        executing(DataFrameSink(tmp_path / "file" / "deep" / "out", mode="overwrite"))
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ProgramError, match=rf"has no permission to write in {tmp_path}"):
        executing(DataFrameSink(tmp_path / "new" / "out"))


@pytest.mark.parametrize("mode", ["append", "overwrite", "ignore"])
def test_the_other_modes_take_a_path_that_exists(tmp_path: Path, mode: str) -> None:
    sink = DataFrameSink(tmp_path, mode=mode)
    sink.check_target()
    assert sink.target == str(tmp_path)


def staged_by(sink: DataFrameSink, *, interval: str = "0 ms", clock: Clock | None = None) -> Any:
    """A writer of the first subtask that has written a row and completed its file."""
    context = context_of([])
    context.subtask_index = 0
    context.clock = clock or context.clock
    context.settings = Settings({"execution.checkpointing.interval": interval})
    writer = sink.create_writer(context)
    writer.write_batch(RecordBatch.of_rows(BatchType(ROWS), [("JFK", 1.5)]))
    if interval == "0 ms":
        writer.flush(end_of_input=True)
    else:
        writer.prepare_commit(1)
    return writer


@pytest.mark.parametrize("interval", ["0 ms", "1 s"])
def test_what_a_killed_job_had_staged_for_the_same_target_goes_after_a_week(
    tmp_path: Path, interval: str
) -> None:
    sink, elsewhere = DataFrameSink(tmp_path / "out"), DataFrameSink(tmp_path / "other")
    killed = staged_by(sink, interval=interval)
    staged_by(elsewhere, interval=interval).close()
    now_ms = time.time_ns() // 1_000_000
    in_a_week = ManualClock(now_ms + FORGOTTEN_MS + 1_000)
    staged_by(DataFrameSink(tmp_path / "out"), clock=in_a_week)
    assert Path(sink.staging_directory).exists(), "its writer is not gone yet"
    killed.close()
    staged_by(DataFrameSink(tmp_path / "out"), clock=ManualClock(now_ms + FORGOTTEN_MS // 2))
    assert Path(sink.staging_directory).exists()
    staged_by(DataFrameSink(tmp_path / "out"), clock=in_a_week)
    assert not Path(sink.staging_directory).exists()
    assert Path(elsewhere.staging_directory).exists()


def test_a_staging_folder_goes_with_its_last_part(tmp_path: Path) -> None:
    sink = DataFrameSink(tmp_path / "out")
    staged_by(sink, interval="1 s").close()
    folder = Path(sink.staging_directory)
    marker, part = sorted(folder.iterdir())
    assert marker.name == MARKER
    part.unlink()
    remove_if_spent(fs.LocalFileSystem(), str(folder))
    assert not folder.exists()

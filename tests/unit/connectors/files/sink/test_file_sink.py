import re
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from headrace.connectors.files.sink import file_writer
from headrace.connectors.files.sink.buckets import (
    BucketAssigner,
    RollingPolicy,
    strftime_of,
)
from headrace.connectors.files.sink.committables import FileSinkPayload
from headrace.connectors.files.sink.file_commit import FileCommitter
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.connectors.files.sink.staging import OutputDiskFullError
from headrace.core.clock import ManualClock
from headrace.functions.serialization import Encoder
from headrace.functions.sink import FINAL_CHECKPOINT
from tests.unit.connectors.connector_contexts import ConnectorContext
from tests.unit.connectors.files.sink.file_sinks import PAIR, batch, sink
from tests.unit.connectors.sink_world import key


def names(path: Path) -> list[str]:
    """Whatever lies there but for empty folders, which are a mistake too."""
    assert [one for one in path.rglob("*") if one.is_dir() and not any(one.iterdir())] == []
    return sorted(one.name for one in path.rglob("*") if one.is_file())


def test_files_get_their_names_at_the_end_of_input(tmp_path: Path) -> None:
    writer = sink(tmp_path).create_writer(ConnectorContext(PAIR, subtask_index=3, parallelism=4))
    writer.write_batch(batch(("a", 1), ("b", 2)))
    writer.flush(end_of_input=False)
    (hidden,) = tmp_path.rglob("out-*")
    assert hidden.name.endswith("-3-0.inprogress") and hidden.parent.name.startswith(".headrace-")
    writer.write_batch(batch(("c", 3)))
    writer.flush(end_of_input=True)
    writer.close()
    (name,) = names(tmp_path)
    assert name.startswith("out-") and name.endswith("-3-0.txt")
    assert (tmp_path / name).read_text(encoding="utf-8") == "(a,1)\n(b,2)\n(c,3)\n"


def test_what_was_not_finished_is_removed(tmp_path: Path) -> None:
    writer = sink(tmp_path).create_writer(ConnectorContext(PAIR))
    writer.write_batch(batch(("a", 1)))
    writer.close()
    writer.close()
    assert names(tmp_path) == []


class FullDisk(fs.LocalFileSystem):
    """A file system on which nothing has room."""

    def open_output_stream(self, path: str, **options: Any) -> Any:
        return super().open_output_stream("/dev/full")


def test_a_full_disk_is_told_with_the_folder_and_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "file_system_of", lambda path: (FullDisk(), path))
    writer = sink(tmp_path / "output").create_writer(ConnectorContext(PAIR))
    with pytest.raises(OutputDiskFullError) as raised:
        writer.write_batch(batch(("a", 1)))
        writer.flush(end_of_input=True)
    told = str(raised.value)
    assert re.match(
        rf"the sink 'connector' cannot write to {tmp_path}/output: the disk is full \([\d.]+ .B free\)",
        told,
    )
    assert told.endswith("free some space, or let the sink write to a folder on another disk")
    writer.close()


def test_without_checkpoints_what_a_savepoint_was_given_appears_at_the_end_too(
    tmp_path: Path,
) -> None:
    writer = sink(tmp_path).create_writer(ConnectorContext(PAIR))
    writer.write_batch(batch(("a", 1)))
    (given,) = writer.prepare_commit(1)
    writer.write_batch(batch(("b", 2)))
    writer.flush(end_of_input=True)
    assert writer.prepare_commit(FINAL_CHECKPOINT) == []
    writer.close()
    contents = [(tmp_path / name).read_text(encoding="utf-8") for name in names(tmp_path)]
    assert sorted(contents) == ["(a,1)\n", "(b,2)\n"]
    committer = FileCommitter(FileSinkPayload(str(tmp_path)), key)
    committer.commit("lineage/sink/1", 1, [given])
    assert len([name for name in names(tmp_path) if name.startswith("out-")]) == 2


def test_no_two_writers_share_a_file(tmp_path: Path) -> None:
    for _ in range(2):
        writer = sink(tmp_path).create_writer(ConnectorContext(PAIR))
        writer.write_batch(batch(("a", 1)))
        writer.flush(end_of_input=True)
    assert len(names(tmp_path)) == 2


def test_parts_roll_by_size_age_and_idleness(tmp_path: Path) -> None:
    context = ConnectorContext(PAIR)
    policy = RollingPolicy.default_rolling_policy(
        part_size=17, rollover_interval=100, inactivity_interval=50
    )
    writer = sink(tmp_path, policy).create_writer(context)
    writer.write_batch(batch(("a", 1), ("b", 2), ("c", 3)))  # 18 bytes
    writer.write_batch(batch(("x", 0)))  # the first part was too large
    context.clock.advance_ms(60)
    writer.write_batch(batch(("d", 4)))  # the second one was idle
    context.clock.advance_ms(40)
    writer.write_batch(batch(("e", 5)))
    context.clock.advance_ms(40)
    writer.write_batch(batch(("f", 6)))
    context.clock.advance_ms(40)
    writer.write_batch(batch(("g", 7)))  # the third one was too old
    writer.flush(end_of_input=True)
    contents = [(tmp_path / name).read_text(encoding="utf-8") for name in names(tmp_path)]
    assert contents == ["(a,1)\n(b,2)\n(c,3)\n", "(x,0)\n", "(d,4)\n(e,5)\n(f,6)\n", "(g,7)\n"]


def test_buckets_are_folders_by_processing_time(tmp_path: Path) -> None:
    clock = ManualClock(start_ms=1_357_000_000_000)  # 2013-01-01T00:26:40Z
    assigner = BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd--HH", "America/New_York")
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    writer = (
        builder.with_bucket_assigner(assigner)
        .build()
        .create_writer(ConnectorContext(PAIR, clock=clock))
    )
    writer.write_batch(batch(("a", 1)))
    clock.advance_ms(3_600_000)
    writer.write_batch(batch(("b", 2)))
    writer.flush(end_of_input=True)
    folders = sorted(one.name for one in tmp_path.iterdir())
    assert folders == ["2012-12-31--19", "2012-12-31--20"]


def test_java_patterns_are_translated_or_refused() -> None:
    assert strftime_of("yyyy/MM/dd'T'HH:mm:ss") == "%Y/%m/%dT%H:%M:%S"
    assert strftime_of("HH%'h%'''") == "%H%%h%%'"
    with pytest.raises(ValueError, match="'EEE' in the date pattern"):
        strftime_of("EEE")


def test_an_encoder_is_needed() -> None:
    with pytest.raises(TypeError, match="for_row_format needs an Encoder"):
        FileSink.for_row_format("out", str)  # type: ignore[arg-type]

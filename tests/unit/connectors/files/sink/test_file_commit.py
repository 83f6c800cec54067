"""Exactly once into files: whatever is killed between writing and naming, each record is in one file."""

import gc
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY
from headrace.checkpoint.storage.metadata_key import seal
from headrace.connectors.files.formats.stream_formats import ParquetBulkWriters
from headrace.connectors.files.sink import file_writer
from headrace.connectors.files.sink.buckets import BucketAssigner, RollingPolicy
from headrace.connectors.files.sink.committables import (
    PendingFile,
    decode_committable,
    encode_committable,
)
from headrace.connectors.files.sink.compaction import FileCompactor, FileCompactStrategy
from headrace.connectors.files.sink.file_commit import FileCommitError, create_file_committer
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.connectors.files.sink.note_file import (
    NoteDamagedError,
    NoteLostError,
    digest_of_scope,
)
from headrace.connectors.files.sink.staging import MARKER
from headrace.core.config import Settings
from headrace.core.types.type_info import Types
from headrace.functions.sink import (
    FINAL_CHECKPOINT,
    CommitterContext,
    DeletesLeftovers,
    commit_key,
)
from tests.unit.connectors.files.sink.file_commit_world import (
    compacting,
    files,
    lines,
    text_builder,
    world_of,
)
from tests.unit.connectors.sink_world import (
    JOB,
    KEY,
    WITH_CHECKPOINTS,
    Crash,
    FailingFileSystem,
    SinkWorld,
)

ROW = Types.ROW_NAMED(["subtask", "number"], [Types.INT(), Types.INT()])
ABOUT = "what was committed in lineage/sink"


def test_what_is_handed_over_is_marked_with_the_place_of_the_checkpoints_that_name_it(
    tmp_path: Path,
) -> None:
    checkpoints = {CHECKPOINT_DIRECTORY.key: str(tmp_path / "checkpoints")}
    sink = text_builder(tmp_path / "out").build()
    world = world_of(sink, settings=WITH_CHECKPOINTS.with_values(checkpoints))
    world.write(0, 1)
    assert list(tmp_path.rglob(MARKER)) == []
    world.publish()
    (marker,) = tmp_path.rglob(MARKER)
    assert marker.read_text() == str(tmp_path / "checkpoints" / JOB.hex())
    world.commit()
    assert not marker.parent.exists()


def test_the_folder_says_which_checkpoint_it_was_given_last(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    assert world.last_committed() is None
    world.write(0, 2)
    world.checkpoint()
    world.checkpoint()
    assert world.last_committed() == 1


def test_a_job_that_commits_no_more_leaves_no_staged_file(tmp_path: Path) -> None:
    builder = text_builder(tmp_path).with_rolling_policy(
        RollingPolicy.default_rolling_policy(part_size=1)
    )
    world = world_of(builder.build())
    world.write(0, 2)
    world.write(1, 2)
    world.abort()  # whole files, and then some that are begun
    world.write(0, 3)
    (owner,) = {name.split("-")[1] for name in hidden_folders(tmp_path)}
    other = tmp_path / f".headrace-{'0' * 16}-0-0-{'1' * 16}"
    other.mkdir()
    (other / "part.pending").touch()
    merging = tmp_path / f".headrace-merging-part-compacted-{digest_of_scope('lineage/sink')}-1-0"
    merging.touch()
    committer = world.new_committer()
    assert isinstance(committer, DeletesLeftovers)
    for _ in range(2):
        committer.delete_leftovers("lineage/sink", owner)
    assert list(tmp_path.iterdir()) == [other]
    assert hidden(tmp_path) == ["part.pending"]


def hidden_folders(path: Path) -> list[str]:
    return [one.name for one in path.glob(".headrace-*") if one.is_dir()]


def hidden(path: Path) -> list[str]:
    """What lies in staging folders."""
    return sorted(one.name for one in path.glob(".headrace-*/*") if one.name != MARKER)


def test_a_file_appears_with_its_checkpoint_and_not_before(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 2)
    world.publish()
    assert files(tmp_path) == []
    world.commit()
    assert lines(tmp_path) == ["0:0", "0:1"]
    world.write(0, 1)
    assert lines(tmp_path) == ["0:0", "0:1"]


def test_a_checkpoint_without_records_makes_no_file(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 0)
    world.checkpoint()
    world.finish()
    assert list(tmp_path.iterdir()) == []


def test_nothing_hidden_is_left_at_the_end_but_the_note_of_what_was_committed_and_its_trace(
    tmp_path: Path,
) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 1)
    world.checkpoint()
    world.write(1, 1)
    world.finish()
    note, trace = sorted(one for one in tmp_path.iterdir() if one.name.startswith("."))
    assert trace.name == f"{note.name}.made"
    assert note.is_file() and trace.stat().st_size == 0
    assert len(files(tmp_path)) == 2


def test_a_second_commit_changes_nothing_even_where_files_were_taken_away(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 3)
    checkpoint_id = world.publish()
    assert world.latest is not None
    contents = world.latest.pending[checkpoint_id]
    for _ in range(3):
        world.committer.commit(commit_key("l", "s", checkpoint_id), checkpoint_id, contents)
    assert len(lines(tmp_path)) == 3
    for file in files(tmp_path):
        file.unlink()
    world.new_committer().commit(commit_key("l", "s", checkpoint_id), checkpoint_id, contents)
    assert files(tmp_path) == []


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("compacts", [False, True])
def test_a_note_that_somebody_deleted_is_an_error_instead_of_a_guess(
    tmp_path: Path, compacts: bool, is_restarted: bool
) -> None:
    builder = text_builder(tmp_path)
    if compacts:
        strategy = FileCompactStrategy.builder().set_size_threshold(1_000_000).build()
        builder = builder.enable_compact(strategy, FileCompactor.concat_file_compactor())
    world = world_of(builder.build())
    world.write(0, 2)
    world.checkpoint()
    before = lines(tmp_path)
    (note,) = [one for one in tmp_path.glob(".headrace-commits-*") if one.suffix != ".made"]
    note.unlink()
    with pytest.raises(NoteLostError, match="it is unknown whether rows were committed") as caught:
        if is_restarted:
            world.crash()
        world.write(0, 1)
        world.publish()
        world.commit()
    assert not caught.value.recoverable
    assert note.name in str(caught.value)
    # What waits to be merged is known to the note alone.
    assert lines(tmp_path) == before == ([] if compacts else ["0:0", "0:1"])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"scope":"l"',
        b'{"scope":"lineage/sink","last_id":1}',
        seal(b'{"scope":1}', ABOUT, KEY),
    ],
)
def test_a_note_that_was_damaged_is_told_as_such_with_what_to_do(
    tmp_path: Path, content: bytes
) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 2)
    world.checkpoint()
    (note,) = [one for one in tmp_path.glob(".headrace-commits-*") if one.suffix != ".made"]
    note.write_bytes(content)
    world.write(0, 1)
    world.publish()
    with pytest.raises(NoteDamagedError, match="Restore an intact note, or delete it") as caught:
        world.commit()
    assert not caught.value.recoverable
    assert note.name in str(caught.value)
    assert lines(tmp_path) == ["0:0", "0:1"]


def test_a_folder_that_somebody_emptied_is_one_without_a_note(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 1)
    world.checkpoint()
    for one in (*files(tmp_path), *tmp_path.glob(".headrace-commits-*")):
        one.unlink()
    world.write(0, 1)
    world.checkpoint()
    assert lines(tmp_path) == ["0:1"]


def test_a_prepared_file_that_is_nowhere_is_an_error(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 1)
    world.publish()
    for one in tmp_path.rglob("*.pending"):
        one.unlink()
    with pytest.raises(FileCommitError, match="its records are lost unless"):
        world.commit()


def test_an_id_that_is_used_twice_is_an_error_instead_of_a_loss(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 1)
    world.checkpoint()
    world.next_id -= 1
    world.write(0, 1)
    world.publish()
    with pytest.raises(FileCommitError, match="used twice"):
        world.commit()


def test_rows_prepared_for_an_aborted_checkpoint_come_with_the_next(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 2)
    world.abort()
    world.write(0, 1)
    world.checkpoint()
    assert sorted(lines(tmp_path)) == ["0:0", "0:1", "0:2"]


def test_what_a_dead_attempt_left_is_swept_once_its_successor_commits(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 1)
    world.checkpoint()
    world.write(0, 1)
    world.abort()  # prepared, and in no checkpoint
    world.write(0, 1)  # in progress
    assert [name.rpartition(".")[2] for name in hidden(tmp_path)] == ["pending", "inprogress"]
    world.crash()
    assert [name.rpartition(".")[2] for name in hidden(tmp_path)] == ["pending"]
    world.write(0, 2)
    world.finish()
    assert hidden(tmp_path) == []
    assert sorted(lines(tmp_path)) == ["0:0", "0:1", "0:2"]


def test_a_job_of_its_own_in_the_same_folder_is_let_alone(tmp_path: Path) -> None:
    other = world_of(text_builder(tmp_path).build())
    for writer in other.writers:
        writer.close()
    (tmp_path / ".headrace-0123456789abcdef-0-0-0123456789abcdef").mkdir(parents=True)
    stranger = tmp_path / ".headrace-0123456789abcdef-0-0-0123456789abcdef" / "x.inprogress"
    stranger.touch()
    other.crash()
    other.write(0, 1)
    other.checkpoint()
    assert stranger.exists()


def test_a_store_that_shows_only_complete_objects_needs_no_other_name_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "_appears_when_closed", lambda file_system: True)
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 2)
    assert [name.rpartition(".")[2] for name in hidden(tmp_path)] == ["pending"]
    world.checkpoint()
    world.write(0, 1)
    world.finish()
    assert sorted(lines(tmp_path)) == ["0:0", "0:1", "0:2"]


def test_an_error_of_the_store_is_passed_on_while_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 1)
    world.publish()
    committer: Any = world.committer

    class Refusing(FailingFileSystem):
        def move(self, source: str, target: str) -> None:
            raise OSError("access denied")

    committer._file_system = Refusing(committer._file_system, 99)
    with pytest.raises(OSError, match="access denied"):
        world.commit()
    world.committer = world.new_committer()
    world.commit()
    assert lines(tmp_path) == ["0:0"]


def test_the_end_of_input_leaves_room_for_ids_that_follow(tmp_path: Path) -> None:
    world = world_of(text_builder(tmp_path).build())
    world.write(0, 1)
    contents = world.prepare(FINAL_CHECKPOINT)
    world.committer.commit(commit_key("l", "s", FINAL_CHECKPOINT), FINAL_CHECKPOINT, contents)
    world.undecided = [[], []]
    world.write(0, 1)
    world.checkpoint()
    assert lines(tmp_path) == ["0:0", "0:1"] or lines(tmp_path) == ["0:1", "0:0"]


def test_files_nothing_is_written_to_are_closed_by_the_clock(tmp_path: Path) -> None:
    policy = RollingPolicy.default_rolling_policy(inactivity_interval=50)
    builder = text_builder(tmp_path).with_rolling_policy(policy).with_bucket_check_interval(100)
    world = world_of(builder.build(), parallelism=1)
    world.write(0, 1)
    (writer,) = world.writers
    context: Any = writer._context  # pyright: ignore
    context.clock.advance_ms(100)
    context.timers.fire_due()
    assert [name.rpartition(".")[2] for name in hidden(tmp_path)] == ["pending"]
    assert context.timers.waiting == []


def test_parquet_files_hold_the_stream_s_columns(tmp_path: Path) -> None:
    builder = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type())
    base = BucketAssigner.base_path_bucket_assigner()
    world = world_of(builder.with_bucket_assigner(base).build(), ROW)
    world.write(0, 3)
    world.write(0, 2)
    world.write(1, 1)
    world.checkpoint()
    table = pq.read_table(tmp_path)
    assert table.schema.names == ["subtask", "number"]
    rows = zip(*table.to_pydict().values(), strict=True)
    assert sorted(rows) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]


def test_a_parquet_file_that_is_given_up_writes_no_more(tmp_path: Path) -> None:
    builder = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type())
    world = world_of(builder.build(), ROW, parallelism=1)
    world.write(0, 1)
    world.writers.pop().close()
    gc.collect()
    assert list(tmp_path.iterdir()) == []


# -- compaction


def test_files_of_several_checkpoints_become_one(tmp_path: Path) -> None:
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2)
    world = world_of(compacting(tmp_path, strategy, FileCompactor.concat_file_compactor()))
    world.write(0, 1)
    world.write(1, 1)
    world.checkpoint()
    assert files(tmp_path) == []
    world.write(0, 1)
    world.checkpoint()
    (one,) = files(tmp_path)
    assert sorted(one.read_text().split()) == ["0:0", "0:1", "1:0"]
    assert hidden(tmp_path) == []


def test_what_a_job_in_batch_mode_has_written_is_compacted_although_a_subtask_never_ran(
    tmp_path: Path,
) -> None:
    in_batch = Settings({"execution.runtime-mode": "BATCH"})
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2)
    sink = compacting(tmp_path, strategy, FileCompactor.concat_file_compactor())
    world = world_of(sink, settings=in_batch)
    world.write(0, 2)
    committables = world.writers[0].prepare_commit(FINAL_CHECKPOINT)
    assert files(tmp_path) == []
    name_and_payload = sink.committer()
    assert name_and_payload is not None
    committer = create_file_committer(CommitterContext("files", in_batch), name_and_payload[1])
    committer.commit(commit_key("lineage", "sink", 1), 1, committables)
    assert lines(tmp_path) == ["0:0", "0:1"]
    assert hidden(tmp_path) == []


def test_a_bucket_is_compacted_once_it_has_the_size(tmp_path: Path) -> None:
    strategy = FileCompactStrategy.builder().set_size_threshold(8).set_num_compact_threads(2)
    world = world_of(compacting(tmp_path, strategy, FileCompactor.concat_file_compactor(b"--\n")))
    world.write(0, 1)  # 4 bytes each
    world.checkpoint()
    assert files(tmp_path) == []
    world.write(0, 1)
    world.checkpoint()
    (one,) = files(tmp_path)
    assert one.read_text() == "0:0\n--\n0:1\n"


def test_what_still_waits_at_the_end_appears_when_all_subtasks_have_ended(tmp_path: Path) -> None:
    strategy = FileCompactStrategy.builder().set_size_threshold(1_000_000)
    world = world_of(compacting(tmp_path, strategy, FileCompactor.identical_file_compactor()))
    world.write(0, 1)
    world.checkpoint()
    assert files(tmp_path) == []
    world.write(1, 1)
    world.finish()
    assert (len(files(tmp_path)), sorted(lines(tmp_path))) == (2, ["0:0", "1:0"])


def test_parquet_files_are_merged_row_group_by_row_group(tmp_path: Path) -> None:
    builder = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type())
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).build()
    sink = builder.enable_compact(strategy, FileCompactor.parquet_file_compactor()).build()
    world = world_of(sink, ROW)
    world.write(0, 2)
    world.write(1, 2)
    world.checkpoint()
    (one,) = files(tmp_path)
    assert sorted(pq.read_table(one).to_pydict()["number"]) == [0, 0, 1, 1]


def test_a_compactor_that_would_spoil_the_files_is_refused(tmp_path: Path) -> None:
    strategy = FileCompactStrategy.builder().set_size_threshold(1).build()
    with pytest.raises(ValueError, match="Parquet files only"):
        text_builder(tmp_path).enable_compact(strategy, FileCompactor.parquet_file_compactor())
    bulk = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type())
    with pytest.raises(ValueError, match="cannot be concatenated"):
        bulk.enable_compact(strategy, FileCompactor.concat_file_compactor())


# -- whatever comes


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1), st.integers(0, 3)),
    st.sampled_from(
        [("checkpoint",), ("abort",), ("publish",), ("crash",), ("fail",), ("publish and crash",)]
    ),
    st.tuples(st.just("crash within"), st.integers(0, 9)),
)
COMPACTIONS = st.sampled_from(
    [
        None,
        FileCompactStrategy.builder().enable_compaction_on_checkpoint(2),
        FileCompactStrategy.builder().set_size_threshold(9),
    ]
)


@given(steps=st.lists(STEPS, max_size=25), strategy=COMPACTIONS)
def test_every_row_is_in_one_file_whatever_comes_between(steps: list[Any], strategy: Any) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder)
        compactor = FileCompactor.concat_file_compactor()
        sink = text_builder(path).build()
        world = world_of(compacting(path, strategy, compactor) if strategy else sink)
        for step in steps:
            take(world, step)
            assert max(Counter(lines(path)).values(), default=1) == 1
        world.finish()
        assert Counter(lines(path)) == Counter(world.expected)


def take(world: SinkWorld, step: tuple[Any, ...]) -> None:
    match step:
        case ("publish and crash",):
            world.publish()
            world.crash()
        case ("crash within", calls_left):
            crash_within_commit(world, calls_left)
        case _:
            world.take(step)


def crash_within_commit(world: SinkWorld, calls_left: int) -> None:
    world.publish()
    committer: Any = world.committer
    committer._file_system = FailingFileSystem(committer._file_system, calls_left)
    try:
        world.commit()
    except Crash:
        world.crash()
    else:
        world.committer = world.new_committer()


@given(st.text("abc.-é", max_size=5), st.integers(0, 2**40))
def test_committables_survive_the_way_through_a_checkpoint(name: str, size: int) -> None:
    file = PendingFile("folder", name, f"bucket/{name}", size)
    assert decode_committable(encode_committable(file)) == file
    assert (file.bucket, file.hidden_path) == ("bucket", f"folder/{name}")

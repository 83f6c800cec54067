"""Local copies: found by digest, checked, bounded, and never in the way."""

from pathlib import Path

import pytest

from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.storage.subtask_storage import StateReader, SubtaskStorage
from headrace.cluster.task_executor.deployment import CheckpointFiles
from headrace.cluster.task_executor.task_local_state import (
    CopiesFirstReader,
    CopyingWriter,
    TaskLocalState,
)
from headrace.core.barriers import CheckpointOptions
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, JobId, JobVertexId

BIG = bytes(range(256)) * 400  # above what stays inside a handle
SETTINGS = Settings({})
JOB = JobId(b"j" * 16)
TASK = ExecutionAttemptId(JOB, ExecutionVertexId(JobVertexId(b"v" * 16), 0), 3)


class World:
    def __init__(self, directory: Path, size_max: int = 1 << 20) -> None:
        self.remote = directory / "remote"
        self.copies = TaskLocalState(directory / "local", size_max)
        options = CheckpointOptions(
            exclusive_uri=str(self.remote / "chk-1"), shared_uri=str(self.remote / "shared")
        )
        self.writer = CopyingWriter(SubtaskStorage(options, "task", SETTINGS), self.copies, TASK)
        self.reader = CopiesFirstReader(StateReader(), self.copies, TASK)

    def lose_remote(self, file: StateFile) -> None:
        Path(file.uri).unlink()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_was_written_is_read_from_this_disk_first(world: World) -> None:
    file = world.writer.write("state", BIG)
    world.lose_remote(file)
    assert bytes(world.reader.read(file)) == BIG
    assert world.reader.found_count == 1


def test_a_file_is_fetched_from_this_disk_first(world: World, tmp_path: Path) -> None:
    source = tmp_path / "000001.sst"
    source.write_bytes(BIG)
    file = world.writer.write_file("sst", str(source), is_shared=True)
    source.unlink()
    world.lose_remote(file)
    world.reader.fetch(file, str(tmp_path / "again.sst"))
    assert (tmp_path / "again.sst").read_bytes() == BIG


def test_a_damaged_copy_costs_only_the_way_to_the_storage(world: World, tmp_path: Path) -> None:
    file = world.writer.write("state", BIG)
    (tmp_path / "local" / file.digest.hex()).write_bytes(b"damaged")
    assert bytes(world.reader.read(file)) == BIG
    assert world.copies.find(file) is None


def test_a_copy_that_is_gone_costs_only_the_way_to_the_storage(
    world: World, tmp_path: Path
) -> None:
    file = world.writer.write("state", BIG)
    (tmp_path / "local" / file.digest.hex()).unlink()
    assert bytes(world.reader.read(file)) == BIG


def test_the_copies_that_were_used_least_lately_go_first(tmp_path: Path) -> None:
    world = World(tmp_path, size_max=2 * len(BIG))
    first, second = (world.writer.write("state", BIG[:-1] + bytes([n])) for n in (1, 2))
    world.reader.read(first)
    third = world.writer.write("state", BIG[:-1] + bytes([3]))
    assert [world.copies.find(file) is not None for file in (first, second, third)] == [
        True,
        False,
        True,
    ]
    assert world.copies.size_bytes == 2 * len(BIG)


def test_the_newest_attempts_are_told_as_long_as_copies_of_their_state_are_there(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, size_max=2 * len(BIG))
    world.writer.write("state", BIG)
    assert world.copies.attempts_of(JOB) == (TASK,)
    assert world.copies.attempts_of(JobId(b"o" * 16)) == ()
    later = ExecutionAttemptId(JOB, TASK.execution_vertex_id, 4)
    other = ExecutionAttemptId(JOB, ExecutionVertexId(JobVertexId(b"v" * 16), 1), 1)
    for number, task in enumerate((later, other)):
        world.copies.keep(
            StateFile("u", b"", len(BIG), b"%d" % number), task, lambda path: path.touch()
        )
    assert world.copies.attempts_of(JOB) == (later, other)
    world.copies.keep(StateFile("u", b"", len(BIG), b"2"), other, lambda path: path.touch())
    assert world.copies.attempts_of(JOB) == (other,)


def test_a_full_disk_costs_the_copy_and_nothing_else(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "local").write_text("no folder can be made here")
    file = world.writer.write("state", BIG)
    assert world.copies.find(file) is None
    assert bytes(world.reader.read(file)) == BIG


def test_copies_are_kept_and_looked_for_only_where_the_job_asks(tmp_path: Path) -> None:
    copies = TaskLocalState(tmp_path / "local", 1 << 20)
    options = CheckpointOptions(exclusive_uri=str(tmp_path / "chk-1"))
    plain = CheckpointFiles(SETTINGS, TASK, copies)
    assert plain.writer(options, "task").write("state", BIG).uri
    assert copies.size_bytes == 0
    asking = CheckpointFiles(
        Settings(
            {
                "execution.checkpointing.local-backup.enabled": "true",
                "execution.state-recovery.from-local": "true",
            }
        ),
        TASK,
        copies,
    )
    file = asking.writer(options, "task").write("state", BIG)
    Path(file.uri).unlink()
    assert bytes(asking.reader().read(file)) == BIG

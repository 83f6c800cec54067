"""A driver that was taken for dead stops within a commit and goes on behind its successor: rows stay as they are."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import fs

import headrace.connectors.dataframe.directory_commit as directory_commit
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.connectors.files.sink.compaction import FileCompactor, FileCompactStrategy
from headrace.connectors.files.sink.note_file import NoteChangedError, NoteFile
from headrace.core.errors import HeadraceError
from headrace.functions.sink import commit_key
from tests.unit.connectors.files.sink import file_commit_world as files
from tests.unit.connectors.sink_world import FailingFileSystem, SinkWorld, key
from tests.unit.spark.dataframes import committer_world as dataframes

CHANGING = FailingFileSystem.CHANGING


class PausedFileSystem:
    """Passes everything on; what happens meanwhile happens before the n-th step: a call that changes something, a write
    to a file that is open, its end, or a look into a file.

    Not between the last look at a note and its move: that moment is all that is left to a zombie.
    """

    STEPS = (*CHANGING, "open_input_stream")

    def __init__(self, file_system: Any, steps_left: int, meanwhile: Callable[[], None]) -> None:
        self._file_system = file_system
        self._steps_left = steps_left
        self._meanwhile = meanwhile

    def step(self) -> None:
        self._steps_left -= 1
        if self._steps_left == -1:
            self._meanwhile()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._file_system, name)

        def paused(*args: Any, **kwargs: Any) -> Any:
            if not str(args[0]).endswith(".new") or name != "move":
                self.step()
            result = method(*args, **kwargs)
            return PausedStream(result, self) if name == "open_output_stream" else result

        return paused if name in self.STEPS else method


class PausedStream:
    """A file that is open to be written."""

    def __init__(self, stream: Any, steps: PausedFileSystem) -> None:
        self._stream = stream
        self._steps = steps

    def __enter__(self) -> "PausedStream":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stream.closed:
            self.close()

    def write(self, content: bytes) -> None:
        self._steps.step()
        self._stream.write(content)

    def close(self) -> None:
        self._steps.step()
        self._stream.close()


class GoneError(Exception):
    """The driver is gone for good."""


class Successor:
    """What the driver does that took over: it commits what was published, and `checkpoint_count` checkpoints more."""

    def __init__(self, world: SinkWorld, checkpoint_count: int) -> None:
        self._world = world
        self._checkpoint_count = checkpoint_count
        self.has_taken_over = False

    def take_over(self) -> None:
        """Do all of it, once."""
        if not self.has_taken_over:
            self.has_taken_over = True
            self._world.crash()
            for _ in range(self._checkpoint_count):
                self._world.write(0, 1)
                self._world.checkpoint()


def commit_as_zombie(world: SinkWorld, zombie: Any, successor: Successor) -> None:
    """Have `zombie` commit what is pending; it may fail on the way, and that is all right."""
    assert world.latest is not None
    pending = sorted(world.latest.pending.items())
    try:
        for checkpoint_id, contents in pending:
            zombie.commit(commit_key(world.lineage, "sink", checkpoint_id), checkpoint_id, contents)
    except (HeadraceError, OSError):
        assert successor.has_taken_over
    successor.take_over()


def start(world: SinkWorld) -> None:
    world.write(0, 1)
    world.checkpoint()
    world.write(0, 1)
    world.write(1, 2)
    world.publish()


def finish(world: SinkWorld) -> None:
    """Go on, with another restart: what the zombie left must not lead anybody astray."""
    world.write(1, 1)
    world.checkpoint()
    world.write(0, 1)
    world.publish()
    world.crash()
    world.finish()


class Note(msgspec.Struct, frozen=True):
    """What a driver says it has committed."""

    text: str


@settings(max_examples=200)
@given(
    steps=st.integers(0, 4),
    other_steps=st.integers(0, 7),
    has_note=st.booleans(),
    is_other_late=st.booleans(),
)
@example(steps=2, other_steps=7, has_note=True, is_other_late=False)  # paused with its file open
@example(
    steps=4, other_steps=4, has_note=True, is_other_late=False
)  # both have written, and have not looked yet
def test_a_note_is_what_the_driver_wrote_whose_write_succeeded(
    steps: int, other_steps: int, has_note: bool, is_other_late: bool
) -> None:
    with TemporaryDirectory() as folder:
        path, file_system = f"{folder}/.note", fs.LocalFileSystem()
        if has_note:
            NoteFile(file_system, path, Note, "scope", key).write(Note("before"))
        is_gone = False

        def go() -> None:
            nonlocal is_gone
            is_gone = True
            raise GoneError

        other = NoteFile(
            PausedFileSystem(file_system, other_steps + 1, go), path, Note, "scope", key
        )

        def meanwhile() -> None:
            if is_other_late:
                other.read()
            with suppress(GoneError):
                other.write(Note("other"))

        one = NoteFile(
            PausedFileSystem(file_system, steps + 1, meanwhile), path, Note, "scope", key
        )
        one.read()
        if not is_other_late:
            other.read()
        try:
            one.write(Note("one"))
            expected = "one"
        except NoteChangedError:
            expected = "other"
        found = NoteFile(file_system, path, Note, "scope", key).read()
        assert found == Note(expected)
        # Whoever gives up takes along what it wrote; who is gone cannot.
        assert is_gone or not list(Path(folder).glob(".note.*.new"))


COMPACTIONS = {
    "none": None,
    "every second": FileCompactStrategy.builder().enable_compaction_on_checkpoint(2),
    "every third": FileCompactStrategy.builder().enable_compaction_on_checkpoint(3),
    "by size": FileCompactStrategy.builder().set_size_threshold(9),
}


@pytest.mark.parametrize("strategy", COMPACTIONS)
@settings(max_examples=60)
@given(calls=st.integers(0, 24), checkpoint_count=st.integers(0, 3))
def test_files_are_committed_once_although_a_zombie_goes_on(
    strategy: str, calls: int, checkpoint_count: int
) -> None:
    compaction = COMPACTIONS[strategy]
    with TemporaryDirectory() as folder:
        path = Path(folder)
        concatenate = FileCompactor.concat_file_compactor()
        sink = (
            files.compacting(path, compaction, concatenate)
            if compaction
            else files.text_builder(path).build()
        )
        world = files.world_of(sink)
        start(world)
        successor = Successor(world, checkpoint_count)
        zombie: Any = world.committer
        zombie._file_system = PausedFileSystem(zombie._file_system, calls, successor.take_over)
        commit_as_zombie(world, zombie, successor)
        finish(world)
        assert Counter(files.lines(path)) == Counter(world.expected)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@settings(max_examples=60)
@given(calls=st.integers(0, 24), checkpoint_count=st.integers(0, 3))
def test_rows_that_spark_writes_are_committed_once_although_a_zombie_goes_on(
    mode: str, calls: int, checkpoint_count: int
) -> None:
    with TemporaryDirectory() as folder:
        target = Path(folder) / "out"
        world = dataframes.world_of(DataFrameSink(target, mode=mode), dataframes.ArrowSession())
        start(world)
        successor = Successor(world, checkpoint_count)
        found = directory_commit.file_system_of

        def take_over() -> None:
            with patch.object(directory_commit, "file_system_of", found):
                successor.take_over()

        def pausing(path: str) -> tuple[Any, str]:
            file_system, place = found(path)
            return PausedFileSystem(file_system, calls, take_over), place

        with patch.object(directory_commit, "file_system_of", pausing):
            commit_as_zombie(world, world.committer, successor)
        finish(world)
        assert Counter(dataframes.rows_in(target)) == Counter(world.expected)

"""DirectoryCommit beside a driver that was taken for dead and goes on: what its successor has noted stays there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.dataframe.directory_commit import DirectoryCommit
from headrace.connectors.files.sink.note_file import NoteChangedError
from tests.unit.connectors.sink_world import key

SCOPE = "lineage/sink"


def writer(text: str) -> Callable[[str], None]:
    """What makes one file with this name and text."""

    def write(folder: str) -> None:
        Path(folder).mkdir()
        (Path(folder) / f"part-{text}").write_text(text)

    return write


class Meanwhile:
    """Passes everything on to a file system; before the first file is moved out of its folder, something happens."""

    def __init__(self, file_system: Any, happens: Callable[[], None]) -> None:
        self._file_system = file_system
        self._happens: Callable[[], None] | None = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file_system, name)

    def move(self, source: str, target: str) -> None:
        if self._happens is not None and "/part-" in source:
            happens, self._happens = self._happens, None
            happens()
        self._file_system.move(source, target)


def results(target: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in target.iterdir() if file.name[0] != "."}


@pytest.mark.parametrize("zombie_dies", [False, True])
def test_a_zombie_that_writes_an_id_again_leaves_what_its_successor_moves(
    tmp_path: Path, zombie_dies: bool
) -> None:
    target = tmp_path / "out"
    target.mkdir()
    successor = DirectoryCommit(str(target), "append", key)

    def write_as_zombie(folder: str) -> None:
        def goes_on() -> None:
            writer("zombie")(folder)

        # It had read the note before its successor wrote there, and goes on in the midst of its successor's commit.
        vars(successor)["_file_system"] = Meanwhile(vars(successor)["_file_system"], goes_on)
        successor.commit(SCOPE, 1, "content", writer("successor"))
        if zombie_dies:
            raise InterruptedError

    with pytest.raises(InterruptedError if zombie_dies else NoteChangedError):
        DirectoryCommit(str(target), "append", key).commit(SCOPE, 1, "content", write_as_zombie)
    assert results(target) == {"part-successor": "successor"}

    DirectoryCommit(str(target), "append", key).commit(SCOPE, 2, "more", writer("more"))
    assert results(target) == {"part-successor": "successor", "part-more": "more"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_attempts_left_goes_but_not_what_may_be_a_successor_s(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    for checkpoint_id in (1, 2):
        with pytest.raises(InterruptedError):
            commit_and_die(target, checkpoint_id)
    assert len(list(tmp_path.glob(".out.commit-*"))) == 2

    DirectoryCommit(str(target), "append", key).commit(SCOPE, 1, "content", writer("whole"))

    (left,) = tmp_path.glob(".out.commit-*-2-*")
    assert [left, target] == sorted(tmp_path.iterdir())
    assert results(target) == {"part-whole": "whole"}


def commit_and_die(target: Path, checkpoint_id: int) -> None:
    """Begin to write the files of an id."""

    def write(folder: str) -> None:
        writer("half")(folder)
        raise InterruptedError

    DirectoryCommit(str(target), "append", key).commit(SCOPE, checkpoint_id, "content", write)

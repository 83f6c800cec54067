"""A folder is removed whole, also where somebody else deletes in it at the same moment."""

from pathlib import Path

import pytest
from pyarrow import fs

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.checkpoint.storage.file_systems import register_file_system, remove_folder
from testkit.faulty_file_system import FaultyHandler, StorageFaults

FILE_COUNT = 20


class RacedHandler(FaultyHandler):
    """Deletes a folder file by file; in each of the first `race_count` removals somebody else takes a listed file."""

    def __init__(self, race_count: int) -> None:
        self.local = fs.LocalFileSystem()
        super().__init__(self.local, StorageFaults())
        self.race_count = race_count
        self.removal_count = 0

    def delete_dir(self, path: str) -> None:
        self.removal_count += 1
        listed = self.local.get_file_info(fs.FileSelector(path))
        for index, info in enumerate(listed):
            if index == 1 and self.removal_count <= self.race_count:
                self.local.delete_file(info.path)
            self.local.delete_file(info.path)
        self.local.delete_dir(path)


def raced_folder(folder: Path, race_count: int) -> tuple[str, RacedHandler]:
    """The URI of a folder with files, and who removes it."""
    folder.mkdir()
    for index in range(FILE_COUNT):
        (folder / f"file-{index}").touch()
    handler = RacedHandler(race_count)
    raced = fs.PyFileSystem(handler)
    register_file_system("raced", lambda uri: (raced, uri.removeprefix("raced://")))
    return f"raced://{folder}", handler


@pytest.mark.parametrize("race_count", [0, 1, 5])
def test_what_is_left_goes_too_where_a_child_was_gone_already(
    tmp_path: Path, race_count: int
) -> None:
    uri, handler = raced_folder(tmp_path / "chk-7", race_count)
    remove_folder(uri)
    assert not (tmp_path / "chk-7").exists()
    assert handler.removal_count == race_count + 1
    remove_folder(uri)
    assert handler.removal_count == race_count + 2


def test_a_folder_in_which_a_child_is_always_gone_is_told_to_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.checkpoint.storage.file_systems._REMOVAL_ATTEMPTS", 3)
    uri, handler = raced_folder(tmp_path / "chk-7", FILE_COUNT)
    with pytest.raises(CheckpointStorageError, match="cannot delete raced://"):
        remove_folder(uri)
    assert handler.removal_count == 3
    assert (tmp_path / "chk-7").exists()


def test_another_failure_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, handler = raced_folder(tmp_path / "chk-7", 0)

    def refuse(path: str) -> None:
        handler.removal_count += 1
        raise PermissionError(13, "not yours", path)

    monkeypatch.setattr(handler, "delete_dir", refuse)
    with pytest.raises(CheckpointStorageError, match="allow the user who runs driver"):
        remove_folder(uri)
    assert handler.removal_count == 1

"""Looking for snapshots where a user's path leads: what is wrong with the path is told, with what would be right."""

from pathlib import Path

import pytest

from headrace.checkpoint.errors import (
    NEVER_COMPLETED,
    CheckpointStorageError,
    MetadataMissingError,
)
from headrace.checkpoint.retention.inspection import (
    SnapshotCondition,
    find_snapshots,
    inspect_snapshot,
)
from headrace.checkpoint.storage.metadata_key import MetadataKey


@pytest.mark.parametrize("name", ["notes.txt", "chk-7"])
def test_a_file_is_no_folder_to_look_into(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("no snapshot")
    with pytest.raises(
        CheckpointStorageError, match=r"it is a file; name the folder of a .*_metadata"
    ) as raised:
        find_snapshots(str(path))
    assert str(path) in str(raised.value)


def test_a_scheme_that_nobody_knows_is_not_a_storage_that_is_down() -> None:
    with pytest.raises(
        CheckpointStorageError, match=r"nix://a/b.*spelling of the scheme"
    ) as raised:
        find_snapshots("nix://a/b")
    assert "is up" not in str(raised.value)


def test_an_empty_path_is_not_the_folder_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chk-1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_snapshots(".") == [str(tmp_path / "chk-1")]
    with pytest.raises(CheckpointStorageError, match="the path is empty; name the folder"):
        find_snapshots("")


def test_a_folder_without_metadata_was_never_completed_whatever_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "chk-3"
    folder.mkdir()
    (found,) = find_snapshots(str(folder))
    inspected = inspect_snapshot(found, MetadataKey(b"k" * 32))
    assert inspected.condition is SnapshotCondition.UNPUBLISHED
    assert inspected.reason == NEVER_COMPLETED
    assert find_snapshots(str(tmp_path / "savepoints")) == []
    assert NEVER_COMPLETED in str(MetadataMissingError(str(tmp_path / "savepoints")))

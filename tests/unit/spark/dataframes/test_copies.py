"""Copies of DataFrames: their places, and who may enter there."""

import tempfile
from pathlib import Path

import pytest

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, SHARED_FILES
from headrace.core.config import Settings
from headrace.spark.dataframes.dataframe_coordinator import (
    delete_copy,
    is_passing,
    make_folder_of_copies,
)


def test_copies_beside_checkpoints_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = make_folder_of_copies(Settings({CHECKPOINT_DIRECTORY.key: str(tmp_path)}))
    assert folder == f"{tmp_path}/dataframes"
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    assert not is_passing(f"{folder}/copy")


def test_shared_copies_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    settings = {CHECKPOINT_DIRECTORY.key: str(tmp_path), SHARED_FILES.key: "true"}
    folder = make_folder_of_copies(Settings(settings))
    assert Path(folder).stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_passing_copies_lie_in_a_new_folder_of_a_name_that_nobody_foretells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one, other = (make_folder_of_copies(Settings({})) for _ in range(2))
    assert one != other
    assert Path(one).stat().st_mode & 0o777 == 0o700
    (Path(one) / "copy").mkdir()
    assert is_passing(f"{one}/copy")
    delete_copy(f"{one}/copy")
    assert [str(each) for each in tmp_path.iterdir()] == [other]

"""The user's own modules: found, packed, importable on the other side."""

import sys
import zipfile
from pathlib import Path

import pytest

from headrace.api.settings.job_artifacts import pack, python_files
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.process.interpreter import put_on_path


def test_a_path_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"python\.files.*missing\.py.*no such file"):
        python_files(Settings({"python.files": "missing.py"}))


def test_several_paths_are_separated_by_commas(tmp_path: Path) -> None:
    (tmp_path / "rules.py").touch()
    (tmp_path / "lib").mkdir()
    found = python_files(Settings({"python.files": f"{tmp_path}/rules.py, {tmp_path}/lib,"}))
    assert [path.name for path in found] == ["rules.py", "lib"]


def test_a_package_is_packed_under_its_own_name(tmp_path: Path) -> None:
    package = tmp_path / "rules"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "limits.py").touch()
    with zipfile.ZipFile(pack(package, tmp_path)) as packed:
        assert sorted(packed.namelist()) == ["rules/__init__.py", "rules/limits.py"]


def test_of_a_plain_folder_the_contents_are_packed(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "rules.py").touch()
    with zipfile.ZipFile(pack(folder, tmp_path)) as packed:
        assert packed.namelist() == ["rules.py"]


def test_modules_become_importable_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["first", "rest"])
    (tmp_path / "rules.py").touch()
    put_on_path((tmp_path / "rules.py", tmp_path / "lib.zip"))
    assert sys.path == ["first", str(tmp_path / "lib.zip"), str(tmp_path), "rest"]

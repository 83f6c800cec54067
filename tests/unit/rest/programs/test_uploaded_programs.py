"""Uploaded programs lie in one folder, for their owner alone, whatever a client calls them; all is bounded."""

import os
import stat
from pathlib import Path

import pytest

from headrace.rest.programs import uploaded_programs
from headrace.rest.programs.uploaded_programs import (
    UploadedPrograms,
    UploadRefusedError,
    plain_name,
)


def kept(programs: UploadedPrograms, name: str, content: bytes = b"print()") -> Path:
    upload = programs.begin(name)
    upload.write(content)
    return upload.finish()


def test_files_are_for_their_owner_alone_and_go_with_a_temporary_folder() -> None:
    programs = UploadedPrograms("", 1000)
    path = kept(programs, "job.py")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    programs.close()
    assert not path.parent.exists()


def test_programs_in_a_folder_that_a_setting_names_are_there_after_a_restart(
    tmp_path: Path,
) -> None:
    first = UploadedPrograms(str(tmp_path), 1000)
    path = kept(first, "job.py")
    first.close()
    (found,) = UploadedPrograms(str(tmp_path), 1000).programs()
    assert (found.path, found.name) == (path, "job.py")


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.py",
        "/etc/evil.py",
        "..\\evil.py",
        ".evil.py",
        "a/../../evil.py",
        "evil\n.py",
        "évil.py",
        "e" * 500 + ".py",
        "..py",
    ],
)
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    programs = UploadedPrograms(str(tmp_path), 1000)
    path = kept(programs, name)
    assert path.parent == tmp_path / "headrace-web-upload"
    assert [each.path for each in programs.programs()] == [path]
    assert "/" not in plain_name(name) and not plain_name(name).startswith(".")


@pytest.mark.parametrize("name", ["job.jar", "job", "", "job.py.jar", "job.pyc"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UploadRefusedError, match=r"\.py, \.zip, \.whl"):
        UploadedPrograms(str(tmp_path), 1000).begin(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("program_id", ["..", "../secret", "/etc/passwd", "", "x.py", "a" * 1000])
def test_an_id_that_is_none_finds_and_deletes_nothing(tmp_path: Path, program_id: str) -> None:
    secret = tmp_path / "secret"
    secret.touch()
    programs = UploadedPrograms(str(tmp_path), 1000)
    kept(programs, "job.py")
    assert programs.find(program_id) is None
    assert not programs.delete(program_id)
    assert secret.exists() and len(programs.programs()) == 1


def test_a_link_in_the_place_of_a_program_is_not_followed(tmp_path: Path) -> None:
    programs = UploadedPrograms(str(tmp_path), 1000)
    path = kept(programs, "job.py")
    secret = tmp_path / "secret"
    secret.touch()
    path.unlink()
    path.symlink_to(secret)
    assert programs.find(path.name) is None
    assert not programs.delete(path.name)
    assert secret.exists()


def test_a_folder_that_others_may_use_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "headrace-web-upload"
    folder.mkdir()
    os.chmod(folder, 0o777)
    with pytest.raises(UploadRefusedError, match="chmod 700"):
        UploadedPrograms(str(tmp_path), 1000).begin("job.py")


def test_all_programs_together_have_a_size(tmp_path: Path) -> None:
    programs = UploadedPrograms(str(tmp_path), 10)
    kept(programs, "job.py", b"x" * 6)
    upload = programs.begin("more.py")
    upload.write(b"x" * 4)
    with pytest.raises(UploadRefusedError, match=r"headrace\.web\.upload\.size-max"):
        upload.write(b"x")
    upload.abandon()
    assert len(list((tmp_path / "headrace-web-upload").iterdir())) == 1


def test_there_are_only_so_many_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploaded_programs, "_COUNT_MAX", 2)
    programs = UploadedPrograms(str(tmp_path), 1000)
    kept(programs, "a.py"), kept(programs, "b.py")
    with pytest.raises(UploadRefusedError, match="delete some first"):
        programs.begin("c.py")
    programs.delete(programs.programs()[0].program_id)
    assert kept(programs, "c.py").exists()

"""Packages that a process has loaded in another version are found, and moved programs find their interpreter."""

from pathlib import Path

import msgspec
import pytest

from headrace.cluster.blob.virtual_environment import (
    PackageConflictError,
    move_programs,
    refuse_loaded_packages,
)


def install(folder: Path, name: str, version: str) -> None:
    facts = folder / f"{name}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "RECORD").write_text(f"{name}/__init__.py,,\n{facts.name}/METADATA,,\n")


def test_a_package_that_is_loaded_in_another_version_is_refused_with_both(tmp_path: Path) -> None:
    install(tmp_path, "msgspec", "0.1")
    with pytest.raises(PackageConflictError) as failed:
        refuse_loaded_packages(tmp_path)
    told = f"python.requirements bring msgspec 0.1, but this process has loaded msgspec {msgspec.__version__} already"
    assert str(failed.value).startswith(told)
    assert "set_python_executable" in str(failed.value)


@pytest.mark.parametrize(
    ("name", "version"), [("msgspec", msgspec.__version__), ("headrace_test_nowhere", "1.0")]
)
def test_packages_that_do_not_contradict_the_process_are_taken(
    tmp_path: Path, name: str, version: str
) -> None:
    install(tmp_path, name, version)
    refuse_loaded_packages(tmp_path)
    assert list(tmp_path.iterdir())


def test_programs_name_the_interpreter_in_its_last_place(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (program := tmp_path / "bin" / "tool").write_text(f"#!{tmp_path}/bin/python\nrun()\n")
    (tmp_path / "bin" / "python").symlink_to("/nowhere")
    program.chmod(0o755)
    move_programs(tmp_path, Path("/last/place"))
    assert program.read_text() == "#!/last/place/bin/python\nrun()\n"
    assert program.stat().st_mode & 0o100

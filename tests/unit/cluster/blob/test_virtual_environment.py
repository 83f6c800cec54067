"""Packages that a process has loaded in another version are found, and moved programs find their interpreter."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.cluster.blob.virtual_environment import (
    PackageConflictError,
    RequirementsNotInstalledError,
    make_virtual_environment,
    move_programs,
    refuse_loaded_packages,
)
from testkit.waiting import wait_until


def install(folder: Path, name: str, version: str) -> None:
    facts = folder / f"{name}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "RECORD").write_text(f"{name}/__init__.py,,\n{facts.name}/METADATA,,\n")


def test_a_package_that_is_loaded_in_another_version_is_refused_with_both(tmp_path: Path) -> None:
    install(tmp_path, "msgspec", "0.1")
    with pytest.raises(PackageConflictError) as failed:
        refuse_loaded_packages(tmp_path)
    told = str(failed.value)
    assert told.startswith("python.requirements asks for msgspec 0.1, but this process has already")
    assert f"loaded msgspec {msgspec.__version__}" in told
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


def interpreter_with(folder: Path, pip: str) -> str:
    """Write an interpreter that makes environments in which another program stands for pip."""
    (folder / "pip").write_text(f"#!{sys.executable}\n{pip}\n")
    (folder / "pip").chmod(0o755)
    (path := folder / "interpreter").write_text(
        f"#!{sys.executable}\nimport os, sys\nos.makedirs(sys.argv[-1] + '/bin')\n"
        f"os.symlink({str(folder / 'pip')!r}, sys.argv[-1] + '/bin/python')\n"
    )
    path.chmod(0o755)
    return str(path)


# It waits for the end of whoever holds the other end of the pipe, as a compiler of its would.
HANGING_PIP = """
import os, subprocess, sys
print("Collecting all", flush=True)
open(sys.argv[-1] + ".begun", "w").close()
subprocess.run([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=os.pipe()[0])
"""


def test_a_pip_that_hangs_is_ended_and_what_it_said_is_told(tmp_path: Path) -> None:
    interpreter = interpreter_with(tmp_path, HANGING_PIP)
    with pytest.raises(RequirementsNotInstalledError) as failed:
        make_virtual_environment(interpreter, tmp_path / "file", None, tmp_path / "made", 3)
    assert "pip did not finish within 3 s ('headrace.python.requirements.timeout')" in str(
        failed.value
    )
    assert failed.value.output == "Collecting all"


def test_what_a_pip_that_fails_said_is_told_with_its_end(tmp_path: Path) -> None:
    interpreter = interpreter_with(tmp_path, "import sys; sys.exit('no route to host')")
    with pytest.raises(RequirementsNotInstalledError, match="pip ended with 1") as failed:
        make_virtual_environment(interpreter, tmp_path / "file", None, tmp_path / "made", 60)
    assert failed.value.output == "no route to host"


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process of its parent's end"
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_pip_and_what_it_has_begun_end_with_the_process_that_makes_the_environment(
    number: signal.Signals, tmp_path: Path
) -> None:
    interpreter = interpreter_with(tmp_path, HANGING_PIP)
    making = (
        "import sys; from pathlib import Path;"
        "from headrace.cluster.blob.virtual_environment import make_virtual_environment;"
        "make_virtual_environment(sys.argv[1], Path(sys.argv[2]), None, Path(sys.argv[3]), 600)"
    )
    files = (interpreter, str(tmp_path / "file"), str(tmp_path / "made"))
    environ = {**os.environ, "WHERE": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", making, *files], env=environ)
    wait_until((tmp_path / "file.begun").exists, 60, "pip")
    assert len(programs_in(tmp_path)) >= 3, "the process, the first of the group, and pip"
    process.send_signal(number)
    process.wait()
    wait_until(lambda: not programs_in(tmp_path), 60, "the end of all")


def programs_in(folder: Path) -> list[str]:
    """Return the processes that have the name of the folder from the one that began them."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_programs_name_the_interpreter_in_its_last_place(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (program := tmp_path / "bin" / "tool").write_text(f"#!{tmp_path}/bin/python\nrun()\n")
    (tmp_path / "bin" / "python").symlink_to("/nowhere")
    program.chmod(0o755)
    move_programs(tmp_path, Path("/last/place"))
    assert program.read_text() == "#!/last/place/bin/python\nrun()\n"
    assert program.stat().st_mode & 0o100

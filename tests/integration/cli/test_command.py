"""The installed command, as a process: help, version, usage errors, and programs that start no job."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace import __version__

pytestmark = pytest.mark.integration

COMMAND = str(Path(sys.executable).parent / "headrace")


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_names_its_version(tmp_path: Path) -> None:
    done = run(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"headrace, version {__version__}\n")


def test_help_shows_how_to_begin(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    assert done.returncode == 0
    assert "headrace run wordcount.py" in done.stdout


def test_a_program_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "missing.py")
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no program 'missing.py'")


def test_a_python_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("")
    done = run(tmp_path, "run", "--python-files", "lib.zip", "program.py")
    assert done.returncode == 1
    assert done.stderr.startswith("error: option 'python.files' has the value 'lib.zip'")


def test_a_program_without_a_job_runs_and_starts_no_spark(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nprint(sys.argv[1:])\n")
    done = run(tmp_path, "run", "program.py", "-x", "--limit", "3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "['-x', '--limit', '3']\n", "")


def test_a_failing_program_names_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def main():\n    {}['JFK']\n\nmain()\n")
    done = run(tmp_path, "run", "program.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: KeyError: 'JFK' (program.py, line 2, in main)"

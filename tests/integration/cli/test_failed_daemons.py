"""Daemons whose start fails: the command says why, ends with an error, and leaves nothing. Spark is not started."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.process.log_files import LOG_DIR

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


class Outcome:
    """The end of a command, and what it left in the user's folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        home = folder / "home"
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *arguments],
            cwd=folder,
            env={
                **os.environ,
                "HEADRACE_HOME": str(home),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr.splitlines()
        self.left = sorted(
            str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()
        )


def test_a_session_whose_master_is_not_there_says_so_first(tmp_path: Path) -> None:
    found = Outcome(tmp_path, "cluster", "start", "--master", "spark://127.0.0.1:1")
    assert found.code == 1
    assert found.err[0].startswith("error: Spark's master spark://127.0.0.1:1 cannot be reached")
    assert (found.out, found.left) == ("", [])


def test_logs_of_a_failed_start_go_too_where_a_setting_names_their_folder(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    found = Outcome(
        tmp_path, "cluster", "start", "--master", "spark://127.0.0.1:1", "-D", f"{LOG_DIR.key}={logs}"
    )  # fmt: skip
    assert found.code == 1
    assert list(logs.iterdir()) == []


def test_a_program_that_fails_before_its_job_fails_as_without_d(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise ValueError('no such table')\n")
    found = Outcome(tmp_path, "run", "-d", "program.py")
    assert found.code == 1
    assert found.err[0].startswith("error: ValueError: no such table")
    assert found.left == []
    attached = Outcome(tmp_path, "run", "program.py")
    assert attached.err == found.err
    told = Outcome(tmp_path, "run", "-d", "--json", "program.py")
    [error] = json.loads(told.out)["errors"]
    assert found.err[0] == f"error: {error}"


def test_what_a_program_without_a_job_prints_is_shown_with_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nprint('usage: …')\nsys.exit(3)\n")
    found = Outcome(tmp_path, "run", "-d", "program.py")
    assert found.code == 3
    assert "usage: …" in found.out
    assert "ended without a job, with code 3" in found.err[-1]
    assert found.left == []
    told = Outcome(tmp_path, "run", "-d", "--json", "program.py")
    assert json.loads(told.out) == {"exit-code": 3, "jobs": [], "errors": []}
    assert told.code == 3
    assert "usage: …" in told.err

"""What workers print arrives at the user's standard output, whole line by whole line."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.worker_output import OutputPipe, redirect_standard_output

WRITER = """
import os, sys
from headrace.spark.worker_output import redirect_standard_output
with redirect_standard_output(sys.argv[1]):
    for number in range(int(sys.argv[2])):
        print("x" * 100, number)
    os.write(1, b"past python\\n")
print("home again")
"""


def test_lines_of_several_processes_come_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = OutputPipe(tmp_path / "pipe")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(pipe.path), "200"], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    own = [writer.communicate(timeout=60)[0] for writer in writers]
    pipe.close()
    lines = capsys.readouterr().out.splitlines()
    expected = 2 * [f"{'x' * 100} {number}" for number in range(200)] + 2 * ["past python"]
    assert sorted(lines) == sorted(expected)
    assert own == ["home again\n", "home again\n"]
    assert list(tmp_path.iterdir()) == []


def test_without_a_pipe_nothing_is_redirected(capsys: pytest.CaptureFixture[str]) -> None:
    with redirect_standard_output(""):
        print("here")
    assert capsys.readouterr().out == "here\n"


def test_a_pipe_that_nobody_reads_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with redirect_standard_output(str(tmp_path / "gone")):
        print("here")
    assert capsys.readouterr().out == "here\n"

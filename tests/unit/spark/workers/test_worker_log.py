"""Log files of a worker: the lines that they get besides those for the terminal and for the driver."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.workers.worker_output import OutputPipe, StandardOutput

LOGGING = """
import logging, sys
from pathlib import Path
from headrace.core.config import Settings
from headrace.core.process.process_log import ProcessLog
from headrace.spark.workers.worker_process import own_streams
log = ProcessLog(Path(sys.argv[1]), "taskmanager-1", Settings({"env.log.level": sys.argv[2]}))
with own_streams(int(sys.argv[3]), {"": logging.WARNING, "mine": logging.INFO}, log):
    logging.getLogger("mine").debug("detail of mine")
    logging.getLogger("mine").info("told by mine")
    logging.getLogger("other").warning("warned by other")
    logging.getLogger("headrace.task").debug("detail of headrace")
    logging.getLogger("headrace.task").info("told by headrace")
    logging.getLogger("headrace.task").error("failed in headrace")
log.close()
"""

PRINTING = """
import sys
from pathlib import Path
from headrace.core.config import Settings
from headrace.core.process.process_log import ProcessLog
from headrace.spark.workers.worker_output import copied_standard_error, redirect_standard_output
log = ProcessLog(Path(sys.argv[1]), "taskmanager-1", Settings({}))
with copied_standard_error(log.write_printed), redirect_standard_output(sys.argv[2], log.write_printed):
    print("said")
    print("complained", file=sys.stderr, flush=True)
    print("€", file=sys.stderr)
    print("no end of line", end="")
print("home again", file=sys.stderr)
log.close()
"""


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def messages(text: str) -> list[str]:
    return [line.rpartition(": ")[2] for line in text.splitlines()]


def test_the_log_file_has_more_of_headrace_than_the_terminal_and_as_much_of_the_program(
    tmp_path: Path,
) -> None:
    shown = run(LOGGING, tmp_path, "INFO", 40).stderr
    assert re.match(r"\d\d:\d\d:\d\d INFO \[MainThread\] mine: told by mine\n", shown), shown
    of_program = ["told by mine", "warned by other"]
    assert messages(shown) == [*of_program, "failed in headrace"]
    written = (tmp_path / "taskmanager-1.log").read_text()
    assert messages(written) == [*of_program, "told by headrace", "failed in headrace"]


def test_a_terminal_that_shows_more_is_not_cut_to_the_level_of_the_file(tmp_path: Path) -> None:
    shown = run(LOGGING, tmp_path, "ERROR", 10).stderr
    assert "detail of headrace" in shown and "told by headrace" in shown


def test_prints_and_complaints_go_into_the_out_file_and_where_they_went_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = OutputPipe(tmp_path / "pipe")
    complained = run(PRINTING, tmp_path, pipe.path).stderr
    pipe.close()
    written = (tmp_path / "taskmanager-1.out").read_text()
    assert written == "said\ncomplained\n€\nno end of line"
    assert complained == "complained\n€\nhome again\n"
    assert capsys.readouterr().out == "said\nno end of line"


def test_what_the_driver_shows_is_copied_even_where_nobody_reads_it_any_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[bytes] = []
    output = StandardOutput(copied.append)
    output.show(b"one\n")

    class Broken:
        encoding = "utf-8"

        def write(self, text: str) -> None:
            raise OSError("nobody reads")

        def fileno(self) -> int:
            raise OSError("nowhere")

    output.close()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Broken())
        output.show(b"two\n")
    output.show(b"three\n")
    output.show(b"")
    assert copied == [b"one\n", b"two\n", b"three\n"]
    assert capsys.readouterr().out == "one\n"


FOLDERS = """
import sys
from pathlib import Path
from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.core.ids import ResourceId
from headrace.spark.workers.worker import WorkerSpec, _process_log
configuration = TaskManagerConfiguration(ResourceId("tm:1"), "address", b"secret", {})
spec = WorkerSpec(configuration, "driver", 30, log_folder=sys.argv[2])
scratch = Path(sys.argv[1])
scratch.mkdir()
with _process_log(spec, configuration, scratch) as log:
    log.write_printed(b"said\\n")
    print(log.folder)
"""


def test_a_worker_writes_to_the_folder_that_it_is_told_and_makes_it(tmp_path: Path) -> None:
    told = tmp_path / "logs" / "headrace-1"
    assert run(FOLDERS, tmp_path / "scratch", told).stdout == f"{told}\n"
    assert {path.name for path in told.iterdir()} == {
        "taskmanager-tm_1.log",
        "taskmanager-tm_1.out",
    }
    assert told.stat().st_mode & 0o777 == 0o700


def test_a_worker_without_a_folder_writes_to_its_scratch_directory(tmp_path: Path) -> None:
    assert run(FOLDERS, tmp_path / "scratch", "").stdout == f"{tmp_path / 'scratch' / 'logs'}\n"


def test_a_folder_that_cannot_be_made_is_told_and_the_worker_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run(FOLDERS, tmp_path / "scratch", tmp_path / "file" / "logs")
    own = tmp_path / "scratch" / "logs"
    assert done.stdout == f"{own}\n"
    assert f"log files are written to {own}, and are deleted with it" in done.stderr
    assert "Not a directory" in done.stderr

"""A TaskManager's process takes its settings from Spark and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from headrace.spark.workers.worker_process import (
    PASSED_ON,
    SOCKET_DIRECTORY_LENGTH_MAX,
    on_termination,
    routable_address,
    scratch_directory,
    socket_directory,
    sweep,
)


def test_the_scratch_directory_lies_where_spark_says_and_goes_at_the_end(tmp_path: Path) -> None:
    with scratch_directory({"SPARK_LOCAL_DIRS": f"{tmp_path},elsewhere"}) as scratch:
        assert scratch.parent == tmp_path
        (scratch / "spilled").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_the_scratch_directory_is_new_and_its_owner_s_alone(tmp_path: Path) -> None:
    foretold = tmp_path / f"headrace-tm-{os.getpid()}"
    foretold.mkdir()
    foretold.chmod(0o777)
    with scratch_directory({"SPARK_LOCAL_DIRS": str(tmp_path)}) as scratch:
        assert scratch != foretold
        assert scratch.stat().st_mode & 0o077 == 0


def test_what_a_killed_worker_left_is_swept_by_the_next_one(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f"headrace-tm-{ended.pid}-a1_b").mkdir()
    (tmp_path / f"headrace-tm-{os.getpid()}-c").mkdir()
    (tmp_path / "blockmgr-1").mkdir()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "blockmgr-1",
        f"headrace-tm-{os.getpid()}-c",
    ]


def test_empty_crash_reports_of_workers_that_have_ended_are_swept(tmp_path: Path) -> None:
    ended, crashed = (subprocess.Popen([sys.executable, "-c", ""]) for _ in range(2))
    for process in (ended, crashed):
        process.wait()
    reports, scratch = tmp_path / "reports", tmp_path / "scratch"
    reports.mkdir()
    scratch.mkdir()
    for name in (ended.pid, os.getpid(), "another"):
        (reports / str(name)).touch()
    (reports / str(crashed.pid)).write_text("Fatal Python error")
    environ = {"SPARK_LOCAL_DIRS": str(scratch), "PYTHON_FAULTHANDLER_DIR": str(reports)}
    with scratch_directory(environ):
        left = {path.name for path in reports.iterdir()}
    assert left == {str(crashed.pid), str(os.getpid()), "another"}


def test_a_short_scratch_path_holds_the_sockets_itself() -> None:
    assert socket_directory(Path("/short")) == Path("/short")


def test_sockets_below_a_long_scratch_path_are_reached_from_other_processes(tmp_path: Path) -> None:
    scratch = tmp_path / (100 * "x")
    scratch.mkdir()
    directory = socket_directory(scratch)
    assert directory is not None
    assert len(str(directory)) <= SOCKET_DIRECTORY_LENGTH_MAX
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{directory}/{64 // 4 * 'f'}.sock")
        listening.listen()
        script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        subprocess.run([sys.executable, "-c", script, listening.getsockname()], check=True)
    os.close(int(directory.name))
    assert len(list(scratch.iterdir())) == 1


def test_the_address_towards_a_local_driver_is_the_loopback_one() -> None:
    assert routable_address("127.0.0.1") == "127.0.0.1"


LOGGING = """
import logging, sys
from headrace.spark.workers.worker_process import own_streams, program_log_levels
if len(sys.argv) > 1:
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("mine.loud").setLevel(logging.DEBUG)
    logging.getLogger("headrace.task").setLevel(logging.DEBUG)
    levels = program_log_levels()
    logging.getLogger("mine.loud").setLevel(logging.NOTSET)
    logging.getLogger().setLevel(logging.WARNING)
else:
    levels = program_log_levels()
print(levels)
with own_streams(logging.ERROR, levels):
    logging.getLogger("mine").info("told")
    logging.getLogger("mine.loud").debug("told in detail")
    logging.getLogger("mine").warning("warned")
    logging.getLogger("headrace.task").warning("of headrace")
"""


def test_workers_log_what_the_program_s_levels_let_through() -> None:
    with_levels = run_logging("levels")
    assert with_levels.stdout == "{'': 20, 'mine.loud': 10}\n"
    told = [line.partition(" ")[2] for line in with_levels.stderr.splitlines()]
    assert told == [
        "INFO [MainThread] mine: told",
        "DEBUG [MainThread] mine.loud: told in detail",
        "WARNING [MainThread] mine: warned",
        "WARNING [MainThread] headrace.task: of headrace",
    ]
    without = run_logging()
    assert without.stdout == "{'': 30}\n"
    assert [line.partition(" ")[2] for line in without.stderr.splitlines()] == [
        "WARNING [MainThread] mine: warned"
    ]


def run_logging(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LOGGING, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_a_signal_that_comes_to_both_processes_counts_once() -> None:
    told: list[int] = []
    handle = on_termination(lambda: told.append(1))
    handle(signal.SIGTERM, None)
    handle(PASSED_ON, None)
    assert len(told) == 1
    # Passed on before it came by itself; and one that came to the worker alone.
    for number in (PASSED_ON, signal.SIGTERM, PASSED_ON):
        handle(number, None)
    assert len(told) == 3

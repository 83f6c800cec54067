"""InterpreterLock: the process that watches it runs nothing of the job whose files are imported here."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from testkit.waiting import wait_until

# A process of its own: `faulthandler` has one timer, which belongs to the test runner here.
PROGRAM: Final = """
import os, sys
from headrace.cluster.task_executor.lock_watcher import InterpreterLock
from headrace.cluster.task_executor.lock_watcher import WatcherConfiguration, WatcherProcess
from testkit.waiting import wait_until

settings = {"heartbeat.timeout": "500 ms"}
lock = InterpreterLock(
    WatcherConfiguration(os.getpid(), "127.0.0.1", "127.0.0.1", b"0" * 32, settings, None),
    WatcherProcess.fork(),
)
lock.start()
sys.path.insert(0, sys.argv[1])
wait_until(lambda: bool(lock.watcher_address), 60, "the watcher")
lock.stop()
"""


def test_the_watcher_loads_no_module_of_the_job(tmp_path: Path) -> None:
    for name in ("sitecustomize", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the job')\n")
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert (told.returncode, told.stderr) == (0, "")


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120
    )


def test_a_watcher_that_has_nothing_to_watch_holds_no_file_of_its_process_and_ends_with_its_input() -> (
    None
):
    told = _run(
        """
import os, socket
from headrace.cluster.task_executor.lock_watcher import WatcherProcess

peer, own = socket.socketpair()
process = WatcherProcess.fork()
own.close()
peer.settimeout(30)
assert peer.recv(1) == b"", "the watcher keeps the connection open"
os.close(process.request)
process.end(30)
assert not os.path.exists(f"/proc/{process.pid}")
"""
    )
    assert (told.returncode, told.stderr) == (0, "")


ORPHAN: Final = """
import os
from headrace.cluster.task_executor.lock_watcher import WatcherProcess

process = WatcherProcess.fork()
if os.fork() == 0:
    # As a process that user code has forked does, which lives on.
    os.read(0, 1)
    os._exit(0)
print(process.pid, flush=True)
"""


def test_a_watcher_ends_with_its_process_although_another_one_has_its_input_open() -> None:
    command = [sys.executable, "-c", ORPHAN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        watcher = Path("/proc") / program.stdout.readline().decode().strip()
        wait_until(lambda: not watcher.exists(), 60, "the end of the watcher")
        program.stdin.close()

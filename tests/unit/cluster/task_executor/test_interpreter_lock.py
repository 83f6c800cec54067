"""InterpreterLock: the process that watches it runs nothing of the job whose files are imported here."""

import subprocess
import sys
from pathlib import Path
from typing import Final

# A process of its own: `faulthandler` has one timer, which belongs to the test runner here.
PROGRAM: Final = """
import os, sys
from headrace.cluster.task_executor.interpreter_lock import InterpreterLock
from headrace.cluster.task_executor.lock_watcher import WatcherConfiguration
from testkit.waiting import wait_until

settings = {"heartbeat.timeout": "500 ms"}
lock = InterpreterLock(
    WatcherConfiguration(os.getpid(), "127.0.0.1", "127.0.0.1", b"0" * 32, settings, None)
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

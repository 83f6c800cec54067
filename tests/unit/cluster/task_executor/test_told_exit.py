"""A function that calls `os._exit` ends its process with a word to the driver; other callers end it as ever."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from headrace.cluster.task_executor.task_manager_runner import ToldExit
from headrace.core.threads import start_thread

def tell(reason):
    print(reason, flush=True)
    if sys.argv[1] == "broken":
        raise OSError("nobody listens")

def leave():
    os._exit(3)

exit_of_python = os._exit
with ToldExit(tell, ("silent",)):
    match sys.argv[1]:
        case "silent":
            start_thread("silent", leave).join()
        case "fork":
            if os.fork() == 0:
                leave()
            os.wait()
        case "own":
            exec(compile("os._exit(3)", "a.py", "exec"), {"os": os, "__name__": "headrace.a"})
        case _:
            leave()
print(os._exit is exit_of_python)
"""


@pytest.mark.parametrize(
    ("caller", "code", "told"),
    [
        ("function", 3, "os._exit(3) was called in leave (<string>:12)"),
        ("broken", 3, "os._exit(3) was called in leave (<string>:12)"),
        ("silent", 3, ""),
        ("own", 3, ""),
        ("fork", 0, "True"),
    ],
)
def test_only_functions_of_jobs_are_told_of(caller: str, code: int, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, caller],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout.strip()) == (code, told), done.stderr

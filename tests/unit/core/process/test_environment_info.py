"""Environment of a process: the interpreter and its path are told, arguments and variables are not."""

import platform
import subprocess
import sys

from headrace.core.process.environment_info import environment_info

PROGRAM = """
import msgspec
from headrace.core.process.environment_info import environment_info
print(msgspec.json.encode(environment_info()).decode())
"""


def test_the_interpreter_and_its_path_are_told() -> None:
    info = environment_info()
    assert info.version == platform.python_version()
    assert info.architecture == platform.machine()
    assert info.path == tuple(sys.path)


def test_flags_of_the_interpreter_are_told_and_arguments_and_variables_are_not() -> None:
    command = [sys.executable, "-O", "-X", "utf8", "-W", "error", "-c", PROGRAM, "--key=hush"]
    told = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "SECRET": "hush"},
    ).stdout
    assert '"optimize=1"' in told and '"-X utf8"' in told and '"-W error"' in told
    assert "hush" not in told

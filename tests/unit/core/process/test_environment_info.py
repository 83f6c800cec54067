"""What is told of a process's environment, and what is not."""

import platform
import subprocess
import sys

import headrace
from headrace.core.process.environment_info import environment_info

PROGRAM = """
import msgspec
from headrace.core.process.environment_info import environment_info
print(msgspec.json.encode(environment_info()).decode())
"""


def test_the_interpreter_its_path_and_main_packages_are_told() -> None:
    info = environment_info()
    assert (info.version, info.implementation) == (platform.python_version(), "CPython")
    assert info.architecture == platform.machine()
    assert info.path == tuple(sys.path)
    assert info.executable == sys.executable
    assert {"headrace", "pyarrow", "pyspark", "msgspec"} <= set(info.packages)
    assert info.packages["headrace"] == headrace.__version__


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

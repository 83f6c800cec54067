"""A settled interpreter: what is loaded stays, and is not looked through again. Flags are told, arguments are not."""

import gc
import subprocess
import sys

from headrace.core.process.interpreter import settle_interpreter

PROGRAM = """
from headrace.core.process.interpreter import interpreter_options
print(interpreter_options())
"""


def test_what_was_there_before_is_left_out_of_collections() -> None:
    before = gc.get_freeze_count()
    try:
        settle_interpreter()
        assert gc.get_freeze_count() > before + 10_000
        assert len(gc.get_objects()) < 10_000
    finally:
        gc.unfreeze()


def test_flags_of_the_interpreter_are_told_and_arguments_and_variables_are_not() -> None:
    command = [sys.executable, "-O", "-X", "utf8", "-W", "error", "-c", PROGRAM, "--key=hush"]
    told = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "SECRET": "hush"},
    ).stdout
    assert "'optimize=1'" in told and "'-X utf8'" in told and "'-W error'" in told
    assert "hush" not in told

"""A settled interpreter: what is loaded stays, and is not looked through again. Flags are told, arguments are not."""

import contextlib
import gc
import importlib
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from headrace.core.process.interpreter import put_on_path, settle_interpreter
from headrace.core.threads import start_thread

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


def test_tasks_that_begin_together_extend_the_import_path_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)
    met: list[int] = []

    def invalidate() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            met.append(both.wait(0.3))

    monkeypatch.setattr(sys, "path", ["first"])
    monkeypatch.setattr(importlib, "invalidate_caches", invalidate)
    files = [tmp_path / "a.zip", tmp_path / "b.zip"]
    threads = [start_thread(file.name, partial(put_on_path, [file])) for file in files]
    for thread in threads:
        thread.join()
    assert met == []
    assert set(sys.path) == {"first", *map(str, files)}


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

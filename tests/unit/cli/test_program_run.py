"""The end of a program that runs in this process: Ctrl-C, again and again, leaves no part of it out."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from headrace.api.client.program_end import EXIT_TERMINATED
from headrace.api.executors import PipelineExecutor, job_submitted
from headrace.cli.logs import EXIT_INTERRUPTED
from headrace.cli.program_run import run_here
from headrace.client.program import Program
from headrace.core.config import Settings
from headrace.spark.executor import SparkExecutor

INTERRUPTED = "raise KeyboardInterrupt"
T = TypeVar("T")


def interrupted_first(called: list[object], then: T) -> Callable[..., T]:
    """Return a function that notes its argument, and is interrupted when it is called for the first time."""

    def call(*arguments: object) -> T:
        called.append(arguments)
        if len(called) == 1:
            raise KeyboardInterrupt
        return then

    return call


@pytest.mark.parametrize(("text", "code"), [("", 0), (INTERRUPTED, EXIT_INTERRUPTED)])
def test_a_second_ctrl_c_leaves_neither_the_record_of_the_end_nor_the_close_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: int
) -> None:
    file = tmp_path / "program.py"
    file.write_text(text)
    ended: list[object] = []
    closed: list[object] = []
    on_ended = interrupted_first(ended, 7)
    before_close = interrupted_first(closed, None)
    executor = cast("PipelineExecutor", SparkExecutor(Settings({})))
    found = run_here(Program(file), {}, executor, on_ended=on_ended, before_close=before_close)
    assert found == 7
    assert (ended, closed) == ([(code,)] * 2, [()] * 2)
    assert capsys.readouterr().err.count("still stopping") == 2


def test_sigterm_tells_that_a_job_of_a_session_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = SimpleNamespace(
        get_job_id=lambda: "ab1", outlives_program=True, has_told_end=False
    )
    heard: list[object] = []
    executor: Any = SimpleNamespace(close=lambda: None)

    def submit_and_be_terminated(_: Program) -> None:
        job_submitted(client)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("headrace.cli.program_run.run_as_main", submit_and_be_terminated)
    program, settings = Program(tmp_path / "program.py"), {"execution.target": "remote"}
    code = run_here(program, settings, executor, on_submitted=heard.append)
    assert (code, heard) == (EXIT_TERMINATED, [client])
    assert caplog.messages == ["terminated: job ab1 goes on: 'headrace cancel ab1' ends it"]

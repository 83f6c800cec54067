"""Streams that a program never runs, and results that a job makes for nobody: neither passes in silence."""

import logging

import pytest

from headrace.api.client import program_end
from headrace.api.environment import StreamExecutionEnvironment
from tests.unit.api.recording import RecordingExecutor


@pytest.fixture(autouse=True)
def new_program() -> None:
    program_end.program_begins()


def test_a_job_without_a_sink_warns_that_its_results_are_discarded(
    env: StreamExecutionEnvironment, executor: RecordingExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    env.from_collection([1]).map(str).name("Texts")
    env.execute_async("idle")
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("job 'idle' has no sink: the results of 'Texts' (")
    assert "test_programs_not_executed.py, line" in told


def test_a_job_with_a_sink_or_for_a_cached_stream_is_not_mentioned(
    env: StreamExecutionEnvironment, executor: RecordingExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    env.from_collection([1]).print()
    env.execute_async()
    env.from_collection([1]).map(str).cache()
    env.execute_async()
    assert "no sink" not in caplog.text


def test_a_plain_python_program_is_told_at_its_exit_of_the_sink_that_it_never_ran(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at_exit: list[object] = []
    monkeypatch.setattr(program_end.atexit, "register", at_exit.append)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    (log_unexecuted,) = set(at_exit)
    assert callable(log_unexecuted)
    with caplog.at_level(logging.WARNING):
        log_unexecuted()
    assert "the program ended without running 'Print to Std. Out' (" in caplog.text
    assert "call env.execute()" in caplog.text
    caplog.clear()
    env.explain()
    log_unexecuted()
    assert not caplog.records

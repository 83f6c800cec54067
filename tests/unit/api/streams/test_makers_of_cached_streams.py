"""Jobs that make a cached stream and were submitted only: how they ended is asked, and decides what is known of it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment
from headrace.core.lifecycle import JobStatus
from headrace.gateways.errors import UnknownJobError
from headrace.gateways.messages import DataSetInfo
from tests.unit.api.recording import RecordingExecutor
from tests.unit.api.streams.cached_stream_programs import Raising, doubled, kept_by


def client_of(result: Callable[[], Any]) -> Any:
    return SimpleNamespace(
        has_told_end=False,
        outlives_program=False,
        get_job_status=lambda: SimpleNamespace(result=result),
    )


@pytest.mark.parametrize(
    ("status", "is_kept"),
    [
        (lambda: JobStatus.FAILED, False),
        (lambda: JobStatus.CANCELED, False),
        (lambda: JobStatus.FINISHED, True),
        (lambda: JobStatus.RUNNING, True),
        (Raising(UnknownJobError("id")).result, True),
        (Raising(TimeoutError()).result, True),
    ],
)
def test_how_a_job_ended_that_was_only_submitted_is_asked_before_the_next_one(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
    status: Callable[[], Any],
    is_kept: bool,
) -> None:
    cached = doubled(env).cache()
    executor.client = client_of(status)
    env.execute_async()
    submitted = kept_by(executor.last)
    executor.client = client_of(lambda: JobStatus.RUNNING)
    cached.print()
    env.execute_async()
    env.close()
    assert executor.released == [submitted] * is_kept + [kept_by(executor.last)]


def test_a_job_is_asked_until_it_is_known_how_it_ended(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    told = [JobStatus.RUNNING, JobStatus.FINISHED]
    asked: list[JobStatus] = []

    def status() -> JobStatus:
        asked.append(told[len(asked)])
        return asked[-1]

    cached = doubled(env).cache()
    executor.client = client_of(status)
    env.execute_async()
    executor.data_sets = [DataSetInfo(kept_by(executor.last), 3, 3)]
    for _ in range(3):
        cached.print()
        env.execute_async()
    assert asked == told

"""Notices of a job whose end the program did not wait for."""

import asyncio
import atexit
import gc
import weakref
from collections.abc import Callable

import pytest

from headrace import StreamExecutionEnvironment
from headrace.api import executors
from headrace.api.client import program_end
from headrace.api.client.job_client import ClusterClosedError, JobClient
from headrace.api.client.program_end import JobLeftBehindError, forget_jobs, left_jobs
from headrace.core.errors import JobExecutionError
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.messages import Acknowledge, ErrorInfo
from tests.unit.api.recording import RecordingExecutor

JOB_ID = JobId(bytes(16))
CAUSE = "ZeroDivisionError: division by zero (in operator 'Map', job.py, line 4)"


class OneJob:
    """A Dispatcher with one job, which is as it says."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status

    async def request_job_status(self, job_id: JobId) -> JobStatus:
        return self.status

    async def await_job_end(self, job_id: JobId, wait_max_ms: int) -> JobStatus:
        return self.status

    async def cancel_job(self, job_id: JobId, is_forced: bool = False) -> Acknowledge:
        return Acknowledge()

    async def request_job_result(self, job_id: JobId) -> JobResult:
        failure = ErrorInfo("UserCodeError", CAUSE, "USER", True, "")
        return JobResult(job_id, "hours", self.status, 42, {}, failure)


@pytest.fixture(autouse=True)
def no_job_before() -> None:
    forget_jobs()


def client(status: JobStatus, loop: asyncio.AbstractEventLoop) -> JobClient:
    return JobClient(JOB_ID, OneJob(status), loop)  # type: ignore[arg-type]


@pytest.fixture
def submit(
    env: StreamExecutionEnvironment, executor: RecordingExecutor, loop: asyncio.AbstractEventLoop
) -> Callable[[JobStatus], JobClient]:
    def run(status: JobStatus) -> JobClient:
        executor.client = client(status, loop)
        env.from_collection([1]).print()
        return env.execute_async("hours")

    return run


def test_a_job_that_runs_as_the_program_ends_is_named_with_how_to_wait(
    submit: Callable[[JobStatus], JobClient],
) -> None:
    submit(JobStatus.RUNNING)
    (error,) = left_jobs()
    assert isinstance(error, JobLeftBehindError)
    assert str(error).startswith(f"job 'hours' ({JOB_ID}) was still RUNNING when the program ended")
    assert "client.get_job_execution_result().result()" in str(error)
    assert left_jobs() == []


def test_a_job_that_failed_unseen_says_why(submit: Callable[[JobStatus], JobClient]) -> None:
    submit(JobStatus.FAILED)
    (error,) = left_jobs()
    assert isinstance(error, JobExecutionError)
    assert str(error).splitlines() == [CAUSE, f"job 'hours' ({JOB_ID}) FAILED: {CAUSE}"]


def test_a_failure_that_the_program_saw_is_its_own(
    submit: Callable[[JobStatus], JobClient],
) -> None:
    submit(JobStatus.FAILED).get_job_execution_result().exception()
    assert left_jobs() == []


def test_a_failure_of_which_the_program_saw_only_that_it_happened_says_why(
    submit: Callable[[JobStatus], JobClient],
) -> None:
    assert submit(JobStatus.FAILED).get_job_status().result() is JobStatus.FAILED
    (error,) = left_jobs()
    assert str(error).startswith(CAUSE)


def test_a_result_that_was_asked_for_and_never_read_is_not_seen(
    submit: Callable[[JobStatus], JobClient],
) -> None:
    submit(JobStatus.FAILED).get_job_execution_result()
    assert len(left_jobs()) == 1


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.CANCELLING])
def test_a_job_that_ended_as_it_should_is_not_mentioned(
    submit: Callable[[JobStatus], JobClient], status: JobStatus
) -> None:
    submit(status)
    assert left_jobs() == []


def test_a_job_that_the_program_cancelled_is_not_mentioned(
    submit: Callable[[JobStatus], JobClient],
) -> None:
    submit(JobStatus.RUNNING).cancel().result()
    assert left_jobs() == []


def test_a_job_that_failed_before_the_program_cancelled_it_is_told_all_the_same(
    submit: Callable[[JobStatus], JobClient],
) -> None:
    submit(JobStatus.FAILED).cancel().result()
    (error,) = left_jobs()
    assert str(error).startswith(CAUSE)


def test_a_job_whose_end_was_told_is_not_kept_once_another_is_submitted(
    loop: asyncio.AbstractEventLoop,
) -> None:
    first = client(JobStatus.FINISHED, loop)
    program_end.remember_job(first, "first")
    kept = weakref.ref(first)
    first.get_job_execution_result().result()
    del first
    gc.collect()
    assert kept() is not None
    program_end.remember_job(client(JobStatus.RUNNING, loop), "second")
    gc.collect()
    assert kept() is None


def test_a_job_of_a_cluster_that_was_closed_is_passed_over(
    submit: Callable[[JobStatus], JobClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise ClusterClosedError

    monkeypatch.setattr(submit(JobStatus.RUNNING), "get_job_status", gone)
    assert left_jobs() == []


def test_a_plain_python_program_is_told_at_its_exit_before_the_session_goes(
    loop: asyncio.AbstractEventLoop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    exits: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", exits.append)
    monkeypatch.setattr(atexit, "unregister", lambda exit_: exits and exits.remove(exit_))
    assert executors.active_executor() is None
    program_end.remember_job(client(JobStatus.FINISHED, loop), "first")
    exits.append(lambda: None)  # a second session, made for the second job
    program_end.remember_job(client(JobStatus.RUNNING, loop), "second")
    assert len(exits) == 2
    exits[-1]()
    (line,) = caplog.messages
    assert line.startswith("job 'second'")


def test_a_job_of_a_cluster_that_is_closed_by_now_is_not_asked_for(
    submit: Callable[[JobStatus], JobClient],
) -> None:
    closed = asyncio.new_event_loop()
    closed.close()
    gone = client(JobStatus.RUNNING, closed)
    with pytest.raises(ClusterClosedError):
        gone.get_job_status()
    program_end.remember_job(gone, "gone")
    assert left_jobs() == []

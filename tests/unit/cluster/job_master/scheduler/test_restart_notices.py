"""When the user is told of a restart: at once, with the cause rather than with what followed from it, and once."""

import pytest

from headrace.api.client.job_client import execution_result
from headrace.cluster.job_master.job_details import result_of
from headrace.cluster.job_master.scheduler.scheduler_states import Cancelling
from headrace.core.errors import JobCancelledError
from headrace.core.lifecycle import ExecutionState as S
from headrace.core.lifecycle import JobStatus
from tests.unit.cluster.job_master.scheduler_world import LOST, USER_ERROR, Fixture

CAUSE = USER_ERROR.text


def running(restarts: int = 3) -> Fixture:
    job = Fixture(restarts=restarts)
    job.run()
    return job


def cancel_all(job: Fixture) -> None:
    for attempt in job.attempts:
        job.report(attempt, S.CANCELED)


def test_a_restart_is_told_at_once_with_cause_pause_and_number() -> None:
    job = running()
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    assert job.services.restarts_told == [(CAUSE, 100, 1)]
    job.report(job.attempts[1], S.FAILED, USER_ERROR)
    cancel_all(job)
    job.services.later.pop()[1]()
    assert job.scheduler.status is JobStatus.RUNNING
    assert len(job.services.restarts_told) == 1
    job.report_all(S.RUNNING)
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    assert job.services.restarts_told[1:] == [(CAUSE, 100, 2)]


def test_a_broken_connection_is_not_told_before_what_broke_it() -> None:
    job = running()
    job.report(job.attempts[0], S.FAILED, LOST)
    assert job.services.restarts_told == []
    job.report(job.attempts[1], S.FAILED, USER_ERROR)
    assert job.services.restarts_told == [(CAUSE, 100, 1)]


def test_a_broken_connection_without_a_cause_is_told_when_the_pause_is_over() -> None:
    job = running()
    job.report(job.attempts[0], S.FAILED, LOST)
    cancel_all(job)
    job.services.later.pop()[1]()
    assert [(delay_ms, count) for _, delay_ms, count in job.services.restarts_told] == [(0, 1)]


def test_a_job_that_ends_instead_tells_no_restart() -> None:
    cancelled = running()
    cancelled.report(cancelled.attempts[0], S.FAILED, LOST)
    cancelled.scheduler.cancel()
    assert cancelled.scheduler.status is Cancelling.status
    cancelled.report(cancelled.attempts[1], S.FAILED, USER_ERROR)
    failed = running(restarts=0)
    failed.report(failed.attempts[0], S.FAILED, USER_ERROR)
    assert (cancelled.services.restarts_told, failed.services.restarts_told) == ([], [])


def test_what_a_cancelled_job_had_not_got_over_is_told_with_its_end_and_what_it_had_is_not() -> (
    None
):
    job = running()
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    job.scheduler.cancel()
    cancel_all(job)
    result = result_of(job.scheduler)
    assert result.status is JobStatus.CANCELED
    with pytest.raises(JobCancelledError, match="was cancelled after it had failed: ValueError"):
        execution_result(result)
    again = running()
    again.report(again.attempts[0], S.FAILED, USER_ERROR)
    cancel_all(again)
    again.services.later.pop()[1]()
    again.scheduler.cancel()
    cancel_all(again)
    assert result_of(again.scheduler).failure is None

"""A job's slots come while it is found out what it starts from; nothing is deployed before both are there."""

from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.core.errors import NoResourceAvailableError
from headrace.core.lifecycle import ExecutionState as S
from headrace.core.lifecycle import JobStatus
from tests.unit.cluster.job_master.scheduler_world import Fixture


def restoring(first_attempt_number: int = 0) -> Fixture:
    job = Fixture(first_attempt_number=first_attempt_number)
    job.services.answers_restores = False
    job.scheduler.start()
    return job


def test_the_whole_need_is_declared_while_the_job_is_restored() -> None:
    job = restoring()
    ((need,),) = job.services.declared
    assert need.slot_count == 2
    assert job.scheduler.status is JobStatus.INITIALIZING
    assert not job.scheduler.is_waiting_for_slots


def test_slots_that_came_meanwhile_serve_at_once_when_the_job_is_restored() -> None:
    job = restoring()
    job.give_slots()
    assert job.services.submitted == [] and job.states == [S.CREATED] * 4
    job.scheduler.restored({}, job.services.version)
    assert len(job.services.submitted) == 4 and job.states == [S.DEPLOYING] * 4


def test_a_job_whose_slots_cannot_come_ends_though_it_is_not_restored_yet() -> None:
    job = restoring()
    error = NoResourceAvailableError(2, 0, "no worker fits", "'source'")
    job.scheduler.slots_cannot_come(Failure.of_error(error))
    assert job.scheduler.status is JobStatus.FAILED
    job.scheduler.restored({}, job.services.version)
    assert job.scheduler.status is JobStatus.FAILED and job.services.submitted == []


def test_a_job_of_an_earlier_leader_is_reconciling_until_its_state_is_found_and_its_slots_are_back() -> (
    None
):
    job = restoring(first_attempt_number=1 << 20)
    assert job.scheduler.status is JobStatus.RECONCILING
    job.scheduler.restored({}, job.services.version)
    assert job.scheduler.status is JobStatus.RECONCILING
    assert job.scheduler.is_waiting_for_slots
    job.give_slots()
    assert job.services.statuses == [JobStatus.RUNNING]
    assert job.states == [S.DEPLOYING] * 4
    assert list(job.scheduler.status_timestamps_ms) == ["INITIALIZING", "RECONCILING", "RUNNING"]


def test_a_job_of_an_earlier_leader_restarts_where_its_slots_do_not_come_in_time() -> None:
    job = Fixture(restarts=1, first_attempt_number=1 << 20)
    job.scheduler.start()
    error = NoResourceAvailableError(2, 1, "no worker fits", "'source'")
    job.scheduler.slots_cannot_come(Failure.of_error(error))
    assert job.scheduler.status is JobStatus.RESTARTING


def test_a_job_of_an_earlier_leader_that_is_cancelled_at_once_ends_so() -> None:
    job = restoring(first_attempt_number=1 << 20)
    job.scheduler.cancel()
    assert job.services.statuses == [JobStatus.CANCELLING, JobStatus.CANCELED]

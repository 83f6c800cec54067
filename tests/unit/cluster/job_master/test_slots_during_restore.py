"""A job's slots come while it is found out what it starts from; nothing is deployed before both are there."""

from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.core.errors import NoResourceAvailableError
from headrace.core.lifecycle import ExecutionState as S
from headrace.core.lifecycle import JobStatus
from tests.unit.cluster.job_master.scheduler_world import Fixture


def restoring() -> Fixture:
    job = Fixture()
    job.services.answers_restores = False
    job.scheduler.start()
    return job


def test_the_whole_need_is_declared_while_the_job_is_restored() -> None:
    job = restoring()
    ((need,),) = job.services.declared
    assert need.slot_count == 2
    assert job.scheduler.status is JobStatus.CREATED
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

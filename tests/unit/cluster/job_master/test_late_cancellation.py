"""Cancelling a job in the moment between its end and that in which the Dispatcher hears of it."""

from collections.abc import Iterator

import pytest

from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.errors import JobAlreadyEndedError
from headrace.gateways.messages import Acknowledge, ExecutionReport
from tests.unit.cluster.cluster_samples import attempt
from tests.unit.cluster.job_master.job_master_world import World

TASK = attempt(0)


@pytest.fixture
def world() -> Iterator[World]:
    """The job's only task runs."""
    world = World({}, submit_task=Acknowledge(), cancel_task=Acknowledge())
    world.loop.run_for(100)
    report(world, ExecutionState.RUNNING)
    yield world
    world.close()


def report(world: World, state: ExecutionState) -> None:
    world.loop.run_until(world.gateway.update_task_execution_state(ExecutionReport(TASK, state)))


def test_a_job_that_has_just_failed_is_not_said_to_be_cancelled(world: World) -> None:
    world.job_master.fail_for_good(ValueError("no more"))
    report(world, ExecutionState.CANCELED)
    assert world.job_master.status is JobStatus.FAILED
    with pytest.raises(JobAlreadyEndedError, match="FAILED"):
        world.loop.run_until(world.job_master.cancel())


def test_a_job_that_fails_keeps_its_cause_where_its_cluster_ends_meanwhile(world: World) -> None:
    world.job_master.fail_for_good(ValueError("no more"))
    world.job_master.cancel_by_dispatcher()
    world.loop.run_for(10)
    report(world, ExecutionState.CANCELED)
    assert world.job_master.status is JobStatus.FAILED


def test_a_job_that_was_just_cancelled_may_be_cancelled_again(world: World) -> None:
    world.loop.run_until(world.job_master.cancel())
    report(world, ExecutionState.CANCELED)
    assert world.job_master.status is JobStatus.CANCELED
    assert world.loop.run_until(world.job_master.cancel()) == Acknowledge()

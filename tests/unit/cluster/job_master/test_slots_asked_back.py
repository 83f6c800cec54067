"""What a JobMaster answers when the ResourceManager asks for its slots, which another job could run with."""

from collections.abc import Iterator

import pytest

from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.messages import Acknowledge, ExecutionReport
from tests.unit.cluster.cluster_samples import TM_1, attempt
from tests.unit.cluster.job_master.job_master_world import World

TASK = attempt(0)


@pytest.fixture
def world() -> Iterator[World]:
    """The job's only task runs."""
    settings = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "1 s",
    }
    world = World(settings, submit_task=Acknowledge(), cancel_task=Acknowledge())
    world.loop.run_for(100)
    report(world, ExecutionState.RUNNING)
    yield world
    world.close()


def report(world: World, state: ExecutionState) -> None:
    world.loop.run_until(world.gateway.update_task_execution_state(ExecutionReport(TASK, state)))


def ask_back(world: World) -> bool:
    return world.loop.run_until(world.gateway.request_slots_back("another job"))


def test_a_job_of_which_a_part_runs_says_that_it_keeps_its_slots(world: World) -> None:
    assert not ask_back(world)
    assert world.task_manager.script.called("free_slot") == []


def test_a_job_whose_tasks_are_about_to_end_is_to_be_asked_again(world: World) -> None:
    world.loop.run_until(world.job_master.cancel())
    assert ask_back(world)


def test_a_job_that_waits_with_nothing_deployed_says_that_it_gives_them_back(world: World) -> None:
    world.job_master.disconnect_task_manager(TM_1, "lost")
    world.loop.run_for(60_000)
    assert world.job_master.status is JobStatus.RUNNING, "it waits for another slot"
    assert ask_back(world)

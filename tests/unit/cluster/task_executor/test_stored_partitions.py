"""TaskExecutor: stored results are dropped by the word of their JobMaster, and with their job."""

from collections.abc import Iterator

import pytest

from headrace.core.ids import JobMasterId
from headrace.core.lifecycle import ExecutionState
from tests.unit.cluster.cluster_samples import JOB
from tests.unit.cluster.task_executor.task_executor_world import JM_ID, World
from tests.unit.network.exchange import partition_id

PARTITIONS = (partition_id(0), partition_id(1))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_the_job_master_says_what_is_not_needed_any_more(world: World) -> None:
    world.request_slot()
    world.gateway.release_partitions(JOB, JM_ID, PARTITIONS)
    world.run_for(10)
    assert world.partitions.released == list(PARTITIONS)


def test_the_word_of_an_old_leader_releases_nothing(world: World) -> None:
    world.request_slot()
    world.gateway.release_partitions(JOB, JobMasterId(b"x" * 16), PARTITIONS)
    world.run_for(10)
    assert world.partitions.released == []


def test_what_is_left_goes_when_the_job_is_over(world: World) -> None:
    world.request_slot()
    task = world.submit()
    task.reach(ExecutionState.FINISHED)
    world.run_for(10)
    assert world.partitions.released_jobs == []
    world.gateway.disconnect_job_master(JOB, JM_ID, None)
    world.run_for(10)
    assert set(world.partitions.released_jobs) == {JOB}


def test_what_is_left_goes_when_the_job_master_is_lost(world: World) -> None:
    world.request_slot()
    world.job_master.rpc_service.abort()
    world.run_for(60_000)
    assert world.slot_owner is None
    assert JOB in world.partitions.released_jobs


def test_a_task_manager_with_a_result_to_be_read_is_not_given_away(world: World) -> None:
    assert world.ask(world.gateway.can_be_released())
    world.partitions.partition_count = 1
    assert not world.ask(world.gateway.can_be_released())

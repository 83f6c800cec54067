"""A task asks for the state of a producer that it cannot find: TaskExecutor and JobMaster."""

from collections.abc import Iterator

import pytest

from headrace.core.ids import ExecutionAttemptId, IntermediateDataSetId, ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.errors import StaleLeaderError
from headrace.gateways.job_master import JobMasterGateway
from headrace.network.gates.partition_requests import ProducerVerdict
from tests.unit.cluster.cluster_samples import attempt
from tests.unit.cluster.job_master.job_master_world import World as JobMasterWorld
from tests.unit.cluster.task_executor.task_executor_world import JM_ID, World, never


def partition_of(producer: ExecutionAttemptId) -> ResultPartitionId:
    return ResultPartitionId(IntermediateDataSetId(b"d" * 16), 0, producer)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.request_slot()
    yield world
    world.close()


def verdicts(world: World, answer: object, wait_ms: float = 100) -> list[ProducerVerdict]:
    """What a task hears when its JobMaster answers like that."""
    world.job_master.script.answers["request_partition_state"] = answer
    task = world.submit()
    found: list[ProducerVerdict] = []
    task._listener.check_producer(task.attempt_id, partition_of(attempt(1)), found.append)
    world.run_for(wait_ms)
    assert world.job_master.script.called("request_partition_state") == [(partition_of(attempt(1)),)]  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (ExecutionState.RUNNING, ProducerVerdict.ASK_AGAIN),
        (ExecutionState.FAILED, ProducerVerdict.CANCEL),
        (lambda *_: None, ProducerVerdict.CANCEL),
        (ExecutionState.CREATED, ProducerVerdict.FAIL),
        (StaleLeaderError("not me"), ProducerVerdict.FAIL),
    ],
)
def test_the_job_masters_answer_becomes_a_verdict(
    world: World, state: object, verdict: ProducerVerdict
) -> None:
    assert verdicts(world, state) == [verdict]


def test_a_job_master_that_does_not_answer_is_no_reason_to_give_up(world: World) -> None:
    assert verdicts(world, lambda *_: never(), wait_ms=11_000) == [ProducerVerdict.ASK_AGAIN]


def test_a_job_master_knows_the_current_attempt_only() -> None:
    world = JobMasterWorld({})
    gateway = world.network.create_service("asker").gateway(
        world.job_master.address, JobMasterGateway, JM_ID
    )
    states = [
        world.loop.run_until(
            gateway.request_partition_state(partition_of(attempt(0, number=number)))
        )
        for number in (0, 1)
    ]
    assert states == [ExecutionState.DEPLOYING, None]
    world.close()

"""Tasks that a JobMaster and a TaskManager think to run are made equal with every heartbeat."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.core.ids import ExecutionAttemptId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.messages import Acknowledge, ExecutionDeploymentReport, ExecutionReport
from headrace.rpc.errors import RpcConnectionError
from tests.unit.cluster.cluster_samples import TM_1, attempt
from tests.unit.cluster.job_master.job_master_world import World
from tests.unit.cluster.task_executor.task_executor_world import never

HEARTBEAT_MS = 10_000
TASK = attempt(0)
STRANGER = attempt(0, number=7)


class Reconciled:
    """A job of one task, and a TaskManager that says in each heartbeat that `running` are there."""

    def __init__(self, submit_answer: Any) -> None:
        self.running: tuple[ExecutionAttemptId, ...] = (TASK,)
        self.cancel_answer: Any = Acknowledge()
        self.world = World(
            {},
            submit_task=submit_answer,
            heartbeat_from_job_master=lambda *_: ExecutionDeploymentReport(TM_1, self.running),
            cancel_task=lambda *_: self.cancel_answer,
        )
        self.world.loop.run_for(100)

    def heartbeat(self) -> None:
        self.world.loop.run_for(HEARTBEAT_MS)

    def report(self, state: ExecutionState) -> None:
        self.world.loop.run_until(
            self.world.gateway.update_task_execution_state(ExecutionReport(TASK, state))
        )

    @property
    def cancelled(self) -> list[ExecutionAttemptId]:
        return [call[0] for call in self.world.task_manager.script.called("cancel_task")]

    @property
    def status(self) -> JobStatus:
        return self.world.job_master.status


@pytest.fixture
def taken() -> Iterator[Reconciled]:
    """The TaskManager took the task, which runs."""
    reconciled = Reconciled(Acknowledge())
    reconciled.report(ExecutionState.RUNNING)
    yield reconciled
    reconciled.world.close()


@pytest.fixture
def asked() -> Iterator[Reconciled]:
    """The TaskManager does not say whether it took the task."""
    reconciled = Reconciled(lambda *_: never())
    yield reconciled
    reconciled.world.close()


def test_a_task_that_its_task_manager_does_not_have_any_more_is_lost(taken: Reconciled) -> None:
    taken.heartbeat()
    assert taken.status is JobStatus.RUNNING
    taken.running = ()
    taken.heartbeat()
    assert taken.status is JobStatus.FAILED
    (end,) = taken.world.ends
    assert f"task {TASK} is no longer running on TaskManager {TM_1}" in str(end)


def test_a_task_that_is_still_on_its_way_is_not_missed(asked: Reconciled) -> None:
    asked.running = ()
    asked.heartbeat()
    asked.heartbeat()
    assert asked.status is JobStatus.RUNNING


def test_a_task_that_nobody_knows_any_more_is_cancelled(taken: Reconciled) -> None:
    taken.running = (STRANGER, TASK)
    taken.heartbeat()
    assert set(taken.cancelled) == {STRANGER}
    assert taken.status is JobStatus.RUNNING


def test_a_cancellation_that_was_lost_is_asked_for_again_until_the_task_has_ended(
    taken: Reconciled,
) -> None:
    taken.cancel_answer = RpcConnectionError("tm", "reset by peer")
    taken.world.loop.run_until(taken.world.gateway.cancel())
    taken.world.loop.run_for(100)
    lost_count = len(taken.cancelled)
    assert lost_count >= 1 and taken.status is JobStatus.CANCELLING
    taken.cancel_answer = Acknowledge()
    taken.heartbeat()
    assert len(taken.cancelled) == lost_count + 1
    taken.report(ExecutionState.CANCELED)
    assert taken.status is JobStatus.CANCELED

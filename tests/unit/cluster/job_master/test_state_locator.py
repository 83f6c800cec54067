"""A JobMaster finds the subtask whose state is wanted, and says what stands in the way where it cannot be asked."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headrace.checkpoint.errors import StateKeyMismatchError, SubtaskNotReadableError
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.state_queries import RowsQuery, StateReadResult
from headrace.cluster.job_master.executions import Executions
from headrace.cluster.job_master.slots.slot_pool import PhysicalSlot
from headrace.cluster.job_master.state_locator import StateLocator
from headrace.core.config import Settings
from headrace.core.ids import JobMasterId, OperatorId, ResourceId
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.errors import UnknownOperatorError
from headrace.gateways.messages import (
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.rpc.errors import RecipientUnreachableError
from tests.unit.cluster.cluster_samples import TM_1, TM_2, allocation, job_graph, vertex
from tests.unit.cluster.job_master.task_manager_worlds import World as TaskManagerWorld

QUERY = RowsQuery(StateTable.KEYED, "count", duration_ms_max=200)
RESULT = StateReadResult(5, 7, (), is_found=True)
RUNNING = (
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)


class World(TaskManagerWorld):
    """A job whose first vertex has two subtasks: the first runs on a scripted TaskManager."""

    def __init__(self) -> None:
        super().__init__()
        head, tail = vertex(1, 2), vertex(2, 1)
        (counter,) = head.operators
        twins = tuple(
            msgspec.structs.replace(tail.operators[0], operator_id=OperatorId(one * 16))
            for one in (b"p", b"q")
        )
        named = (msgspec.structs.replace(counter, uid="counter"),)
        graph = job_graph(
            (
                msgspec.structs.replace(head, operators=named),
                msgspec.structs.replace(tail, operators=twins),
            )
        )
        self.executions = Executions(graph, 0)
        self.newest: Any = None
        self.graph = graph
        scheduler: Any = SimpleNamespace(graph=graph, executions=self.executions)
        self.scheduler = scheduler
        self.locator = StateLocator(
            scheduler,
            self.task_managers,
            self._newest,
            Settings({"headrace.checkpoint.key-file": "/a/key"}),
        )
        self.first = next(iter(self.executions))
        self.run(self.first, TM_1)

    async def _newest(self) -> Any:
        return self.newest

    def run(self, execution: Any, resource_id: ResourceId) -> None:
        for state in RUNNING:
            execution.become(state, 0)
        execution.slot = PhysicalSlot(allocation(1), resource_id, 0, None)  # type: ignore[arg-type]

    def answer(self, answer: Any) -> list[tuple[Any, ...]]:
        script = self.task_manager.script
        script.answers["read_state"] = answer
        return [call.arguments for call in script.calls if call.method == "read_state"]

    def read(self, operator: str = "counter", index: int = 0) -> SubtaskState:
        return self.loop.run_until(self.locator.read(StateReadRequest(operator, index, QUERY)))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


@pytest.mark.parametrize("named", ["counter", (b"\0" * 15 + b"\1").hex(), "operator 1"])
def test_the_attempt_that_runs_is_asked_and_named_in_the_answer(world: World, named: str) -> None:
    world.answer(RESULT)
    assert world.read(named) == SubtaskState(0, "tm-1", RESULT)
    ((attempt_id, leader, operator_id, query),) = world.answer(RESULT)
    assert (attempt_id, leader) == (world.first.attempt_id, JobMasterId(b"m" * 16))
    assert operator_id == OperatorId(b"\0" * 15 + b"\1")
    assert query == QUERY


def test_operators_that_are_not_there_or_share_a_name_are_told_from_others(world: World) -> None:
    with pytest.raises(
        UnknownOperatorError, match=r"no operator 'other': its operators are counter, op"
    ):
        world.read("other")
    with pytest.raises(UnknownOperatorError, match=r"several operators 'operator 2'.*7070.*7171"):
        world.read("operator 2")
    assert world.locator.operators()[0] == OperatorDescription(
        OperatorId(b"\0" * 15 + b"\1"), "counter", "operator 1", "vertex 1", 2, 128
    )


def test_a_uid_comes_before_the_same_name_of_another_operator(world: World) -> None:
    assert world.locator.operator("counter").parallelism == 2
    (head, tail) = world.graph.vertices
    (first, second) = tail.operators
    renamed = (msgspec.structs.replace(first, name="counter"), second)
    # The other one stands before it.
    world.graph = msgspec.structs.replace(
        world.graph, vertices=(msgspec.structs.replace(tail, operators=renamed), head)
    )
    world.scheduler.graph = world.graph
    assert world.locator.operators()[0].name == "counter"
    assert world.locator.operator("counter") == OperatorDescription(
        OperatorId(b"\0" * 15 + b"\1"), "counter", "operator 1", "vertex 1", 2, 128
    )
    with pytest.raises(UnknownOperatorError, match="no operator 'other'"):
        world.locator.operator("other")


def test_a_subtask_that_does_not_run_is_named_with_its_state(world: World) -> None:
    with pytest.raises(SubtaskNotReadableError, match=r"'vertex 1 \(2/2\)'.*it is CREATED"):
        world.read(index=1)
    with pytest.raises(SubtaskNotReadableError, match=r"subtask 2.*has 2 subtasks"):
        world.read(index=2)
    second = list(world.executions)[1]
    world.run(second, TM_2)
    with pytest.raises(SubtaskNotReadableError, match="TaskManager tm-2 is lost"):
        world.read(index=1)


def test_a_task_that_restarts_meanwhile_is_no_failure_of_the_request_alone(world: World) -> None:
    def restart(*_: object) -> BaseException:
        for state in (ExecutionState.CANCELING, ExecutionState.CANCELED):
            world.first.become(state, 0)
        world.executions.reset({world.first.attempt_id.execution_vertex_id}, 0)
        return RecipientUnreachableError("tm", "read_state", "it is gone")

    world.answer(restart)
    with pytest.raises(SubtaskNotReadableError, match=r"does not respond and the subtask restarts"):
        world.read()


def test_errors_of_the_read_itself_go_to_the_client_as_they_are(world: World) -> None:
    world.answer(StateKeyMismatchError("count", "its keys are numbers"))
    with pytest.raises(StateKeyMismatchError, match="its keys are numbers"):
        world.read()


def test_the_newest_checkpoint_is_told_with_the_key_that_its_metadata_need(world: World) -> None:
    assert world.loop.run_until(world.locator.latest_checkpoint()) is None
    world.newest = SimpleNamespace(
        checkpoint_id=4, uri="/a/chk-4", metadata=SimpleNamespace(timestamp_ms=9)
    )
    stored = world.loop.run_until(world.locator.latest_checkpoint())
    assert stored == StoredCheckpoint(4, "/a/chk-4", 9, "/a/key")

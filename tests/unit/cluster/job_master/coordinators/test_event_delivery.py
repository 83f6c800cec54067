"""Events of coordinators reach their subtask in order and once, however messages get lost."""

from collections.abc import Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.coordinators.event_delivery import EventDelivery
from headrace.core.clock import ManualClock
from headrace.core.errors import HeadraceError
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobVertexId,
    OperatorId,
)
from headrace.rpc.errors import RecipientUnreachableError
from testkit.simulation.virtual_loop import VirtualLoop

OPERATOR = OperatorId(bytes(16))


def attempt(index: int, number: int = 0) -> ExecutionAttemptId:
    vertex = ExecutionVertexId(JobVertexId(bytes(16)), index)
    return ExecutionAttemptId(JobId(bytes(16)), vertex, number)


class World:
    """Subtasks that take events as TaskExecutors do; `fates` says what becomes of each message."""

    def __init__(self, fates: list[str]) -> None:
        self.loop = VirtualLoop(ManualClock())
        self.fates = fates
        self.taken: dict[ExecutionAttemptId, list[bytes]] = {}
        self.refused: list[ExecutionAttemptId] = []
        self.quiet_count = 0
        endpoint: Any = self
        self.delivery = EventDelivery(endpoint, self.send_once, self.quiet, self.refuse)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Any:
        return self.loop.create_task(coroutine)

    async def send_once(
        self, attempt_id: ExecutionAttemptId, operator_id: OperatorId, number: int, payload: bytes
    ) -> None:
        fate = self.fates.pop(0) if self.fates else "arrives"
        taken = self.taken.setdefault(attempt_id, [])
        if fate == "refused":
            raise HeadraceError("nobody wants this")
        if fate != "lost":
            assert number <= len(taken)
            if number == len(taken):
                taken.append(payload)
        if fate in ("lost", "answer lost"):
            raise RecipientUnreachableError("subtask", "send", "broken")

    def quiet(self) -> None:
        assert self.delivery.is_quiet
        self.quiet_count += 1

    def refuse(self, attempt_id: ExecutionAttemptId, error: HeadraceError) -> None:
        self.refused.append(attempt_id)


FATES = st.lists(st.sampled_from(["arrives", "lost", "answer lost"]), max_size=12)


@given(FATES, st.lists(st.integers(0, 2), max_size=8))
def test_each_event_arrives_once_and_in_order(fates: list[str], targets: list[int]) -> None:
    world = World(fates)
    for number, index in enumerate(targets):
        world.delivery.send(attempt(index), OPERATOR, b"%d" % number)
    assert world.delivery.is_quiet == (not targets)
    world.loop.run_for(60_000)
    expected: dict[ExecutionAttemptId, list[bytes]] = {}
    for number, index in enumerate(targets):
        expected.setdefault(attempt(index), []).append(b"%d" % number)
    assert world.taken == expected
    assert world.delivery.is_quiet


def test_an_event_on_its_way_is_waited_for_until_it_arrives() -> None:
    world = World(["lost"])
    world.delivery.send(attempt(0), OPERATOR, b"split")
    world.loop.run_for(100)
    assert not world.delivery.is_quiet and world.quiet_count == 0
    world.loop.run_for(1000)
    assert world.delivery.is_quiet and world.quiet_count == 1


def test_nobody_waits_for_what_an_ended_attempt_was_told() -> None:
    world = World(["lost"] * 100)
    world.delivery.send(attempt(0), OPERATOR, b"split")
    world.loop.run_for(2000)
    world.delivery.attempt_ended(attempt(0))
    assert world.delivery.is_quiet and world.quiet_count == 1
    world.loop.run_for(2000)
    world.fates.clear()
    world.delivery.send(attempt(0, 1), OPERATOR, b"another")
    world.loop.run_for(2000)
    assert world.taken[attempt(0, 1)] == [b"another"]
    assert world.taken[attempt(0)] == []


def test_an_attempt_that_takes_no_events_is_given_up() -> None:
    world = World(["refused"])
    world.delivery.send(attempt(0), OPERATOR, b"split")
    world.delivery.send(attempt(0), OPERATOR, b"split")
    world.loop.run_for(100)
    assert world.refused == [attempt(0)]
    assert world.delivery.is_quiet

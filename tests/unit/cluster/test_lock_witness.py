"""LockWitness: what the watcher of a silent TaskManager says, and for how long that counts."""

from collections.abc import Coroutine
from typing import Any

import pytest

from headrace.cluster.lock_witness import LockWitness
from headrace.core.ids import ResourceId
from headrace.gateways.lock_watcher import HeldLock, LockWatcherGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.options import HEARTBEAT_TIMEOUT, HELD_LOCK_TIMEOUT
from headrace.rpc.service import RpcService
from tests.unit.rpc.conftest import World, make_world

TASK_MANAGER = ResourceId("worker")
GRACE_MS = 50_000
TEN_MINUTES_MS = 600_000
SETTINGS = {HEARTBEAT_TIMEOUT.key: "50 s", HELD_LOCK_TIMEOUT.key: "5 min"}


class Watcher(RpcEndpoint):
    """Says what it is told to say; raises where that is an error."""

    gateway_types = (LockWatcherGateway,)

    def __init__(self, service: RpcService) -> None:
        super().__init__(service, "watcher")
        self.answer: HeldLock | Exception | None = None

    async def request_held_lock(self) -> HeldLock | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Leader(RpcEndpoint):
    def __init__(self, service: RpcService) -> None:
        super().__init__(service, "leader")
        self.witness = LockWitness(self)


@pytest.fixture
def world() -> World:
    return make_world("remote", SETTINGS)


async def pair(world: World) -> tuple[Leader, Watcher]:
    leader, watcher = Leader(world.caller), Watcher(world.callee)
    leader.start()
    watcher.start()
    await world.advance_ms(1)
    leader.witness.heard(TASK_MANAGER, watcher.address)
    await world.advance_ms(1)
    return leader, watcher


def run(world: World, scenario: Coroutine[Any, Any, None]) -> None:
    world.run(scenario, max_virtual_ms=TEN_MINUTES_MS)


def test_a_task_manager_of_which_nothing_is_known_has_no_excuse(world: World) -> None:
    async def scenario() -> None:
        leader, _ = await pair(world)
        assert not await leader.witness.excuses(TASK_MANAGER)

    run(world, scenario())


@pytest.mark.parametrize("answer", [None, ValueError("the watcher is busy")])
def test_a_lock_that_was_held_a_moment_ago_excuses_until_the_timeout(
    world: World, answer: Exception | None
) -> None:
    async def scenario() -> None:
        leader, watcher = await pair(world)
        watcher.answer = HeldLock(60_000, "hold")
        assert await leader.witness.excuses(TASK_MANAGER)
        watcher.answer = answer
        await world.advance_ms(GRACE_MS - 1_000)
        assert await leader.witness.excuses(TASK_MANAGER)
        await world.advance_ms(1_000)
        assert not await leader.witness.excuses(TASK_MANAGER)

    run(world, scenario())


def test_a_lock_that_is_held_for_longer_than_its_bound_is_no_excuse_at_once(world: World) -> None:
    async def scenario() -> None:
        leader, watcher = await pair(world)
        watcher.answer = HeldLock(60_000, "hold")
        assert await leader.witness.excuses(TASK_MANAGER)
        watcher.answer = HeldLock(TEN_MINUTES_MS, "hold")
        assert not await leader.witness.excuses(TASK_MANAGER)
        watcher.answer = None
        assert not await leader.witness.excuses(TASK_MANAGER)

    run(world, scenario())


def test_an_answer_ends_what_an_earlier_silence_excuses(world: World) -> None:
    async def scenario() -> None:
        leader, watcher = await pair(world)
        watcher.answer = HeldLock(60_000, "hold")
        assert await leader.witness.excuses(TASK_MANAGER)
        watcher.answer = None
        leader.witness.heard(TASK_MANAGER, watcher.address)
        assert not await leader.witness.excuses(TASK_MANAGER)

    run(world, scenario())

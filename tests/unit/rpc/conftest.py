"""Worlds in which the same calls must have the same results: by reference, serialised, over a network, over TCP."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import pytest
import uvloop

from headrace.core.clock import ManualClock, SystemClock
from headrace.core.config import Settings
from headrace.rpc import service as rpc_service
from headrace.rpc.loopback import LoopbackNetwork, LoopbackRpcService
from headrace.rpc.service import RpcService
from headrace.rpc.tcp import TcpRpcService
from testkit.simulation.virtual_loop import VirtualLoop

T = TypeVar("T")

FORCED = "pekko.rpc.force-invocation-serialization"
SETTINGS = {"pekko.framesize": "64kb", "pekko.ask.timeout": "10 s"}
_TCP_TEST_TIMEOUT_S = 30


def is_forced(service: RpcService) -> bool:
    """Whether calls within the process of `service` are encoded."""
    # Looked up in the module, where `--force-serialization` changes the option's default.
    return service.settings.get_option(rpc_service.FORCE_INVOCATION_SERIALIZATION)


@dataclass
class World:
    """Where endpoints are (`callee`) and where calls come from (`caller`); time is virtual."""

    clock: ManualClock
    loop: VirtualLoop
    network: LoopbackNetwork
    callee: LoopbackRpcService
    caller: LoopbackRpcService

    @property
    def is_serialized(self) -> bool:
        return self.caller is not self.callee or is_forced(self.callee)

    async def advance_ms(self, duration_ms: float) -> None:
        """Let virtual time pass, with all that is due in it."""
        passed = asyncio.Event()
        self.loop.call_later(duration_ms / 1000, passed.set)
        await passed.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let things happen until `condition` holds."""
        while not condition():
            await self.advance_ms(1)

    def run(self, coroutine: Coroutine[Any, Any, T], max_virtual_ms: float = 600_000) -> T:
        """Run a whole test; the world ends with it."""
        try:
            return self.loop.run_until(coroutine, max_virtual_ms)
        finally:
            self.loop.close()


class TcpWorld:
    """Two services on real sockets; they are there while `run` runs. Time is real, so bodies wait for conditions."""

    is_serialized = True
    callee: TcpRpcService
    caller: TcpRpcService

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = Settings(settings)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let things happen until `condition` holds; `run` ends a test that waits in vain."""
        while not condition():
            await asyncio.sleep(0)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a whole test; the world ends with it."""
        with asyncio.Runner() as runner:
            return runner.run(asyncio.wait_for(self._run(coroutine), _TCP_TEST_TIMEOUT_S))

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self.callee, self.caller = self._make_service(), self._make_service()
        await self.callee.start()
        await self.caller.start()
        try:
            return await coroutine
        finally:
            await self.caller.stop()
            await self.callee.stop()

    def _make_service(self) -> TcpRpcService:
        return TcpRpcService(
            self._settings,
            bind_host="127.0.0.1",
            secret=b"s" * 32,
            clock=SystemClock(),
            random=Random(),
        )


AnyWorld = World | TcpWorld


def make_world(kind: str, settings: dict[str, str] | None = None) -> World:
    settings = {**SETTINGS, **(settings or {})}
    if kind == "serialized":
        settings[FORCED] = "true"
    clock = ManualClock(1_000_000)
    loop = VirtualLoop(clock)
    network = LoopbackNetwork(clock, Random(7), loop=loop, settings=Settings(settings))
    callee = network.create_service("callee")
    caller = network.create_service("caller") if kind == "remote" else callee
    return World(clock, loop, network, callee, caller)


VIRTUAL = ["by reference", "serialized", "remote"]


@pytest.fixture(params=[*VIRTUAL, pytest.param("tcp", marks=pytest.mark.integration)])
def world(request: pytest.FixtureRequest) -> AnyWorld:
    """Every way a call can go. What needs virtual time or a network that fails asks for another world."""
    return TcpWorld(SETTINGS) if request.param == "tcp" else make_world(request.param)


@pytest.fixture(params=VIRTUAL)
def virtual_world(request: pytest.FixtureRequest) -> World:
    return make_world(request.param)


@pytest.fixture
def local_world() -> World:
    return make_world("by reference")


@pytest.fixture
def remote_world() -> World:
    return make_world("remote")


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run_on_loop(scenario: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(scenario, 30))

    return run_on_loop

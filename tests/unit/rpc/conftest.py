"""Worlds in which the same calls must have the same results: by reference, serialised, over a network."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import pytest
import uvloop

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.rpc.loopback import LoopbackNetwork, LoopbackRpcService
from headrace.testing.virtual_loop import VirtualLoop

T = TypeVar("T")


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
        return self.caller is not self.callee or "headrace.rpc.force-invocation-serialization" in (
            self.callee.settings
        )

    def run(self, coroutine: Coroutine[Any, Any, T], max_virtual_ms: float = 600_000) -> T:
        """Run a whole test; the world ends with it."""
        try:
            return self.loop.run_until(coroutine, max_virtual_ms)
        finally:
            self.loop.close()


SETTINGS = {"pekko.framesize": "64kb", "pekko.ask.timeout": "10 s"}


def make_world(kind: str, settings: dict[str, str] | None = None) -> World:
    settings = {**SETTINGS, **(settings or {})}
    if kind == "serialized":
        settings["headrace.rpc.force-invocation-serialization"] = "true"
    clock = ManualClock(1_000_000)
    loop = VirtualLoop(clock)
    network = LoopbackNetwork(clock, Random(7), loop=loop, settings=Settings(settings))
    callee = network.create_service("callee")
    caller = network.create_service("caller") if kind == "remote" else callee
    return World(clock, loop, network, callee, caller)


@pytest.fixture(params=["by reference", "serialized", "remote"])
def world(request: pytest.FixtureRequest) -> World:
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

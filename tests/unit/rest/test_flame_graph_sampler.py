"""FlameGraphSampler: what is sampled when, and for how long it is kept; its clock stands still between steps."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.process.stack_sampler import StackSamples
from headrace.rest.flame_graph_sampler import FlameGraphSampler, Place
from headrace.rest.handler_errors import UnavailableError
from tests.unit.rest.sample_cluster import COUNTER, RUNNING_JOB, SOURCE

VERTEX: Place = (RUNNING_JOB, COUNTER, None)
OTHER: Place = (RUNNING_JOB, SOURCE, None)
REFRESH_MS, CLEANUP_MS = 60_000, 600_000
"""Defaults of Flink's, and ours."""


class World:
    """Flame graphs with a clock, and a sampler that counts its samplings and numbers their results."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.taken: list[Place] = []
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.graphs = FlameGraphSampler(Settings({}), self.clock, self.sample)

    async def sample(self, place: Place, count: int, delay_ms: int, depth: int) -> StackSamples:
        assert (count, delay_ms, depth) == (100, 50, 100)
        self.taken.append(place)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return StackSamples(0, 0, sample_count=len(self.taken))

    async def ask(self, place: Place = VERTEX) -> int | None:
        """Return the number of the sampling that is shown, None while there is none; one that begins has its turn."""
        found = self.graphs.newest(place)
        await settled()
        return None if found is None else found.sample_count


async def settled() -> None:
    """Let whatever can go on do so: a sampling has two steps."""
    for _ in range(5):
        await asyncio.sleep(0)


def simulate(scenario: Callable[[World], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        await scenario(World())

    asyncio.run(run())


def test_many_that_ask_within_the_refresh_interval_share_one_sampling_and_the_next_takes_another() -> (
    None
):
    async def scenario(world: World) -> None:
        assert await world.ask() is None
        for _ in range(9):
            world.clock.advance_ms(6_666)
            assert await world.ask() == 1
        assert world.taken == [VERTEX]
        world.clock.advance_ms(REFRESH_MS - 9 * 6_666)
        assert await world.ask() == 1, "the old one is shown until the new one is there"
        assert await world.ask() == 2
        assert world.taken == [VERTEX] * 2

    simulate(scenario)


def test_none_begins_while_one_is_taken_however_long_that_lasts() -> None:
    async def scenario(world: World) -> None:
        world.gate.clear()
        for _ in range(10):
            world.clock.advance_ms(CLEANUP_MS)
            assert await world.ask() is None
        assert len(world.taken) == 1
        world.gate.set()
        await settled()
        assert await world.ask() == 1
        assert len(world.taken) == 1, "its time begins when it has been taken"

    simulate(scenario)


def test_nothing_is_sampled_while_nobody_asks_and_what_nobody_asked_for_is_dropped() -> None:
    async def scenario(world: World) -> None:
        await world.ask()
        world.clock.advance_ms(CLEANUP_MS - 1)
        await settled()
        assert len(world.taken) == 1
        assert await world.ask() == 1, "it is kept until then"
        world.clock.advance_ms(CLEANUP_MS)
        await settled()
        assert len(world.taken) == 2
        assert await world.ask() is None
        assert await world.ask() == 3

    simulate(scenario)


def test_a_sampling_that_failed_is_tried_again_after_the_refresh_interval() -> None:
    async def scenario(world: World) -> None:
        world.failure = ProgramError("the TaskManager is gone")
        for _ in range(10):
            assert await world.ask() is None
        assert len(world.taken) == 1
        world.failure = None
        world.clock.advance_ms(REFRESH_MS)
        await world.ask()
        assert await world.ask() == 2

    simulate(scenario)


def test_beyond_a_hundred_places_the_next_is_unavailable_until_nobody_looks_at_one_any_more() -> (
    None
):
    async def scenario(world: World) -> None:
        for index in range(100):
            await world.ask((RUNNING_JOB, COUNTER, index))
        with pytest.raises(UnavailableError, match="flame graphs of 100 places") as refused:
            await world.ask(OTHER)
        assert refused.value.status == 503
        assert OTHER not in world.taken
        world.clock.advance_ms(CLEANUP_MS - 1)
        assert await world.ask((RUNNING_JOB, COUNTER, 7)) is not None, "those that are shown go on"
        world.clock.advance_ms(1)
        await world.ask(OTHER)
        assert world.taken[-1] == OTHER

    simulate(scenario)

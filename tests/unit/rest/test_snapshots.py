"""Snapshots: values that are computed once per interval, however many ask."""

import asyncio

import pytest

from headrace.core.clock import ManualClock
from headrace.rest.cluster_view import Snapshots


class Computation:
    """Counts how often it runs; waits until it is let through."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.count += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.count


def test_many_that_ask_at_once_wait_for_one_computation() -> None:
    async def scenario() -> None:
        snapshots, computation = Snapshots(ManualClock()), Computation()
        waiting = [
            asyncio.ensure_future(snapshots.get("jobs", 3000, computation)) for _ in range(10)
        ]
        await asyncio.sleep(0)
        computation.gate.set()
        assert await asyncio.gather(*waiting) == [1] * 10
        assert computation.count == 1

    asyncio.run(scenario())


def test_a_value_is_computed_anew_when_the_interval_is_over() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        snapshots, computation = Snapshots(clock), Computation()
        computation.gate.set()
        assert await snapshots.get("jobs", 3000, computation) == 1
        clock.advance_ms(2999)
        assert await snapshots.get("jobs", 3000, computation) == 1
        clock.advance_ms(1)
        assert await snapshots.get("jobs", 3000, computation) == 2
        assert await snapshots.get("others", 3000, computation) == 3

    asyncio.run(scenario())


def test_an_error_reaches_all_who_wait_and_is_not_kept() -> None:
    async def scenario() -> None:
        snapshots, computation = Snapshots(ManualClock()), Computation()
        computation.error = ValueError("no such job")
        computation.gate.set()
        for _ in range(2):
            with pytest.raises(ValueError, match="no such job"):
                await snapshots.get("job", 3000, computation)
        assert computation.count == 2

    asyncio.run(scenario())


def test_who_stops_waiting_stops_nobody_else() -> None:
    async def scenario() -> None:
        snapshots, computation = Snapshots(ManualClock()), Computation()
        first = asyncio.ensure_future(snapshots.get("jobs", 3000, computation))
        second = asyncio.ensure_future(snapshots.get("jobs", 3000, computation))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        computation.gate.set()
        assert await second == 1

    asyncio.run(scenario())


def test_no_more_than_a_thousand_values_are_kept() -> None:
    async def scenario() -> None:
        snapshots, computation = Snapshots(ManualClock()), Computation()
        computation.gate.set()
        for number in range(1001):
            await snapshots.get(number, 3000, computation)
        assert await snapshots.get(0, 3000, computation) == 1002, "the oldest was forgotten"
        assert await snapshots.get(1000, 3000, computation) == 1001

    asyncio.run(scenario())

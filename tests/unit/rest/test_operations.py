"""Operations: savepoints and the like, begun once for a trigger id and told about until they are forgotten."""

import asyncio

import pytest

from headrace.core.clock import ManualClock
from headrace.rest.handler_errors import UnavailableError
from headrace.rest.operations import Operations

STORE_MS = 300_000
TRIGGER = "0" * 32


def test_the_same_trigger_id_begins_nothing_new() -> None:
    async def scenario() -> None:
        operations, begun = Operations(ManualClock(), STORE_MS), 0

        async def take() -> str:
            nonlocal begun
            begun += 1
            return f"savepoint-{begun}"

        for _ in range(3):
            operations.start("savepoint", "job", TRIGGER, take)
        task = operations.find("savepoint", "job", TRIGGER)
        assert task is not None
        assert await task == "savepoint-1"
        operations.start("savepoint", "job", TRIGGER, take)
        assert begun == 1
        assert operations.find("savepoint", "another job", TRIGGER) is None
        assert operations.find("checkpoint", "job", TRIGGER) is None

    asyncio.run(scenario())


def test_a_result_is_forgotten_some_time_after_its_completion_and_never_before() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        operations, gate = Operations(clock, STORE_MS), asyncio.Event()

        async def take() -> str:
            await gate.wait()
            return "done"

        operations.start("savepoint", "job", TRIGGER, take)
        clock.advance_ms(10 * STORE_MS)
        task = operations.find("savepoint", "job", TRIGGER)
        assert task is not None, "it runs"
        gate.set()
        await task
        await asyncio.sleep(0)
        clock.advance_ms(STORE_MS - 1)
        assert operations.find("savepoint", "job", TRIGGER) is task
        clock.advance_ms(1)
        assert operations.find("savepoint", "job", TRIGGER) is None

    asyncio.run(scenario())


def test_the_end_waits_until_each_result_was_told() -> None:
    async def scenario() -> None:
        operations, gate = Operations(ManualClock(), STORE_MS), asyncio.Event()

        async def take() -> str:
            await gate.wait()
            return "done"

        await asyncio.wait_for(operations.all_fetched(), 10)
        operations.start("savepoint", "job", TRIGGER, take)
        waiting = asyncio.ensure_future(operations.all_fetched())
        task = operations.find("savepoint", "job", TRIGGER)
        assert task is not None
        gate.set()
        await task
        await asyncio.sleep(0)
        assert not waiting.done(), "nobody knows the result"
        assert operations.find("savepoint", "job", TRIGGER) is task
        await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_there_is_a_bound_on_operations() -> None:
    async def scenario() -> None:
        operations = Operations(ManualClock(), STORE_MS)

        async def take() -> None:
            return None

        for number in range(1000):
            operations.start("savepoint", "job", f"{number:032x}", take)
        with pytest.raises(UnavailableError, match="1000 operations"):
            operations.start("savepoint", "job", "f" * 32, take)

    asyncio.run(scenario())

"""The virtual loop: order, time that jumps, and refusal of the outside world."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from testkit.simulation.virtual_loop import (
    SimulationStuckError,
    SimulationTimeoutError,
    VirtualLoop,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def loop(clock: ManualClock) -> VirtualLoop:
    return VirtualLoop(clock)


def test_an_hour_passes_at_once_and_exactly(clock: ManualClock, loop: VirtualLoop) -> None:
    loop.run_until(asyncio.sleep(3599.999))
    assert clock.now_ms() == 1_700_000_000_000 + 3_599_999
    loop.run_for(1)
    assert clock.now_ms() == 1_700_000_000_000 + 3_600_000


@given(st.lists(st.floats(0, 10_000), max_size=30))
def test_timers_fire_in_order_of_time_then_of_setting(delays: list[float]) -> None:
    clock = ManualClock()
    loop = VirtualLoop(clock)
    fired: list[int] = []
    for index, delay in enumerate(delays):
        loop.call_later(delay, fired.append, index)
    loop.run_for(10_001_000)
    instants = [round(delay * 1e9) for delay in delays]
    assert fired == sorted(range(len(delays)), key=lambda index: (instants[index], index))


def test_callbacks_run_in_the_order_in_which_they_were_scheduled(loop: VirtualLoop) -> None:
    order: list[str] = []

    async def scenario() -> None:
        loop.call_soon(order.append, "first")
        task = asyncio.create_task(_append(order, "second"))
        loop.call_soon_threadsafe(order.append, "third")
        loop.call_later(0, order.append, "fourth")
        await task
        await asyncio.sleep(0)

    loop.run_until(scenario())
    assert order == ["first", "second", "third", "fourth"]


async def _append(order: list[str], text: str) -> None:
    order.append(text)


def test_cancelled_callbacks_and_timers_do_not_run(loop: VirtualLoop) -> None:
    fired: list[int] = []
    loop.call_soon(fired.append, 1).cancel()
    loop.call_later(1, fired.append, 2).cancel()
    loop.run_for(5000)
    assert fired == []


def test_usual_asyncio_works_on_it(loop: VirtualLoop) -> None:
    async def scenario() -> list[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.put("grouped"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        done, pending = await asyncio.wait([asyncio.create_task(asyncio.sleep(9))], timeout=1)
        assert not done and len(pending) == 1
        return [await queue.get(), await asyncio.wait_for(asyncio.sleep(1, "waited"), 2)]

    assert loop.run_until(scenario()) == ["grouped", "waited"]
    loop.close()


def test_waiting_for_what_cannot_happen_names_the_tasks_that_wait(loop: VirtualLoop) -> None:
    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        task = asyncio.create_task(wait_for_nothing(), name="the hopeful")
        await task

    with pytest.raises(SimulationStuckError, match=r"the hopeful: .*wait_for_nothing"):
        loop.run_until(scenario())
    loop.close()


def test_virtual_time_is_bounded(loop: VirtualLoop) -> None:
    async def for_ever() -> None:
        while True:
            await asyncio.sleep(0.5)

    with pytest.raises(SimulationTimeoutError, match="for_ever"):
        loop.run_until(for_ever(), max_virtual_ms=10_000)
    loop.close()


def test_an_error_in_a_callback_fails_the_run(loop: VirtualLoop) -> None:
    async def scenario() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="callbacks failed") as caught:
        loop.run_until(scenario())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_error_of_the_coroutine_is_raised(loop: VirtualLoop) -> None:
    async def scenario() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError):
        loop.run_until(scenario())


def test_the_outside_world_is_out_of_reach(loop: VirtualLoop) -> None:
    async def dial() -> None:
        await asyncio.open_connection("localhost", 1)

    async def work_elsewhere() -> None:
        await asyncio.to_thread(print)

    for scenario in (dial(), work_elsewhere()):
        with pytest.raises(NotImplementedError):
            loop.run_until(scenario)
    loop.close()


def test_other_threads_are_refused(loop: VirtualLoop) -> None:
    errors: list[BaseException] = []

    def intrude() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except AssertionError as error:
            errors.append(error)

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    assert "only be used on one thread" in str(errors[0])


def test_closing_ends_every_task(loop: VirtualLoop) -> None:
    ended: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("tidy")

    async def scenario() -> None:
        asyncio.create_task(tidy())  # noqa: RUF006 - left behind on purpose
        await asyncio.sleep(1)

    loop.run_until(scenario())
    loop.close()
    loop.close()
    assert ended == ["tidy"] and loop.is_closed()


def test_a_clock_that_is_moved_from_outside_makes_timers_due(
    clock: ManualClock, loop: VirtualLoop
) -> None:
    fired: list[int] = []
    loop.call_later(100, lambda: fired.append(clock.now_ms()))
    clock.advance_ms(200_000)
    loop.run_for(0)
    assert fired == [1_700_000_200_000]

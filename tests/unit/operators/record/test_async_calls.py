"""Calls on a real event loop of a real thread; queues make the tests wait, not clocks."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.operators.record.async_wait_operator import AsyncCall, CallThread


class _Calls:
    """A CallThread whose ended calls wait in a queue, and in which groups they came."""

    def __init__(self) -> None:
        self.ended: queue.Queue[AsyncCall] = queue.Queue()
        self.group_sizes: list[int] = []
        self.thread = CallThread("calls under test", self._take)

    def _take(self, calls: Any) -> None:
        self.group_sizes.append(len(calls))
        for call in calls:
            self.ended.put(call)

    def start(self, *invokes: Any) -> list[AsyncCall]:
        calls = [AsyncCall(number, invoke) for number, invoke in enumerate(invokes)]
        self.thread.start(calls)
        return calls

    def next(self) -> AsyncCall:
        return self.ended.get(timeout=30)


@pytest.fixture
def calls() -> Iterator[_Calls]:
    made = _Calls()
    yield made
    made.thread.close()


def test_calls_run_beside_each_other_on_one_other_thread(calls: _Calls) -> None:
    threads: set[int] = set()
    meeting: list[asyncio.Event] = []

    async def wait_for_the_other() -> list[int]:
        threads.add(threading.get_ident())
        if not meeting:
            meeting.append(asyncio.Event())
            await meeting[0].wait()
            return [1]
        meeting[0].set()
        return [2]

    calls.start(wait_for_the_other, wait_for_the_other)
    ended = [calls.next(), calls.next()]
    assert sorted((call.subject, call.results) for call in ended) == [(0, [1]), (1, [2])]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_what_ends_in_one_round_of_the_loop_is_told_together(calls: _Calls) -> None:
    async def answer() -> list[int]:
        return []

    calls.start(*[answer] * 50)
    for _ in range(50):
        calls.next()
    assert calls.group_sizes == [50]


def test_an_error_is_handed_over_and_the_loop_goes_on(calls: _Calls) -> None:
    async def leave() -> Any:
        raise SystemExit(3)

    def not_even_a_coroutine() -> Any:
        raise ValueError("at once")

    calls.start(leave)
    assert isinstance(calls.next().error, SystemExit)
    calls.start(not_even_a_coroutine)
    assert isinstance(calls.next().error, ValueError)


def test_a_cancelled_call_is_not_told_of(calls: _Calls) -> None:
    seen: queue.Queue[str] = queue.Queue()

    async def wait() -> None:
        try:
            seen.put("started")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.put("cancelled")
            raise

    async def answer() -> list[int]:
        return []

    (call,) = calls.start(wait)
    assert seen.get(timeout=30) == "started"
    calls.thread.cancel(call)
    assert seen.get(timeout=30) == "cancelled"
    (last,) = calls.start(answer)
    assert calls.next() is last
    assert calls.ended.empty()


def test_a_call_that_is_cancelled_before_it_begins_does_not_begin(calls: _Calls) -> None:
    release = threading.Event()

    async def block_the_loop() -> list[int]:
        release.wait(30)
        return []

    async def never() -> list[int]:
        raise AssertionError("it was cancelled")

    (first,) = calls.start(block_the_loop)
    (second,) = calls.start(never)
    calls.thread.cancel(second)
    release.set()
    assert calls.next() is first
    calls.thread.close()
    assert second.error is None
    assert second.task is None


def test_closing_ends_what_still_runs(calls: _Calls) -> None:
    seen: queue.Queue[str] = queue.Queue()

    async def wait() -> None:
        try:
            seen.put("started")
            await asyncio.Event().wait()
        finally:
            seen.put("ended")

    calls.start(wait)
    assert seen.get(timeout=30) == "started"
    calls.thread.close()
    calls.thread.close()
    assert seen.get(timeout=30) == "ended"

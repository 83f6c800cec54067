"""Calls on a real event loop of a real thread; queues make the tests wait, not clocks."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.operators.async_calls import AsyncCall, CallThread


@pytest.fixture
def calls() -> Iterator[CallThread]:
    thread = CallThread("calls under test")
    yield thread
    thread.close()


def test_calls_run_beside_each_other_on_one_other_thread(calls: CallThread) -> None:
    done: queue.Queue[AsyncCall] = queue.Queue()
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

    calls.start([AsyncCall(wait_for_the_other, done.put), AsyncCall(wait_for_the_other, done.put)])
    ended = [done.get(timeout=30), done.get(timeout=30)]
    assert sorted(call.results for call in ended) == [[1], [2]]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_an_error_is_handed_over_and_the_loop_goes_on(calls: CallThread) -> None:
    done: queue.Queue[AsyncCall] = queue.Queue()

    async def leave() -> Any:
        raise SystemExit(3)

    def not_even_a_coroutine() -> Any:
        raise ValueError("at once")

    calls.start([AsyncCall(leave, done.put)])
    assert isinstance(done.get(timeout=30).error, SystemExit)
    calls.start([AsyncCall(not_even_a_coroutine, done.put)])
    assert isinstance(done.get(timeout=30).error, ValueError)


def test_a_cancelled_call_is_never_done(calls: CallThread) -> None:
    done: queue.Queue[AsyncCall] = queue.Queue()
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

    call = AsyncCall(wait, done.put)
    calls.start([call])
    assert seen.get(timeout=30) == "started"
    calls.cancel(call)
    assert seen.get(timeout=30) == "cancelled"
    last = AsyncCall(answer, done.put)
    calls.start([last])
    assert done.get(timeout=30) is last
    assert done.empty()


def test_a_call_that_is_cancelled_before_it_begins_does_not_begin(calls: CallThread) -> None:
    done: queue.Queue[AsyncCall] = queue.Queue()
    release = threading.Event()

    async def block_the_loop() -> list[int]:
        release.wait(30)
        return []

    async def never() -> list[int]:
        raise AssertionError("it was cancelled")

    first, second = AsyncCall(block_the_loop, done.put), AsyncCall(never, done.put)
    calls.start([first])
    calls.start([second])
    calls.cancel(second)
    release.set()
    assert done.get(timeout=30) is first
    calls.close()
    assert second.error is None
    assert second.task is None


def test_closing_ends_what_still_runs() -> None:
    calls = CallThread("calls under test")
    seen: queue.Queue[str] = queue.Queue()

    async def wait() -> None:
        try:
            seen.put("started")
            await asyncio.Event().wait()
        finally:
            seen.put("ended")

    calls.start([AsyncCall(wait, lambda call: None)])
    assert seen.get(timeout=30) == "started"
    calls.close()
    calls.close()
    assert seen.get(timeout=30) == "ended"

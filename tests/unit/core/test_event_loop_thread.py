"""The one bridge between threads and an event loop, in both directions."""

import asyncio
import gc
import threading
from collections.abc import Iterator

import pytest

from headrace.core.threads import EventLoopThread, run_in_thread, run_on_loop


@pytest.fixture
def thread() -> Iterator[EventLoopThread]:
    thread = EventLoopThread("tested")
    yield thread
    thread.stop()


def test_a_coroutine_runs_on_the_thread_and_its_result_or_error_comes_back(
    thread: EventLoopThread,
) -> None:
    async def name() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ValueError("no")

    assert thread.run(name()) == "tested"
    with pytest.raises(ValueError, match="no"):
        thread.run(fail())


def test_a_coroutine_that_takes_too_long_is_cancelled(thread: EventLoopThread) -> None:
    cancelled = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        thread.run(endless(), timeout_s=0.01)
    assert cancelled.wait(10)


def test_stopping_cancels_what_still_runs_and_may_be_repeated() -> None:
    thread = EventLoopThread("tested")
    begun, ended = threading.Event(), threading.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.run_coroutine_threadsafe(endless(), thread.loop)
    assert begun.wait(10)
    thread.stop()
    thread.stop()
    assert ended.is_set() and waiting.cancelled()
    assert thread.loop.is_closed()


def test_blocking_work_leaves_the_loop_free_and_brings_its_result_or_error(
    thread: EventLoopThread,
) -> None:
    release = threading.Event()

    async def scenario() -> str:
        blocked = run_in_thread("blocking", lambda: release.wait(10) and "done")
        # Only a loop that is free gets here.
        release.set()
        failed = run_in_thread("failing", lambda: {}["x"])
        with pytest.raises(KeyError):
            await failed
        return str(await blocked)

    assert thread.run(scenario(), 10) == "done"


@pytest.mark.parametrize("error_type", [SystemExit, KeyboardInterrupt])
def test_the_loop_outlives_what_ends_python_and_its_owner_hears_of_it(
    thread: EventLoopThread, error_type: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[BaseException] = []
    hears = threading.Event()

    def on_fatal_error(error: BaseException) -> None:
        heard.append(error)
        hears.set()

    def leave() -> None:
        raise error_type(3)

    async def answer() -> int:
        return 4

    thread.on_fatal_error = on_fatal_error
    thread.loop.call_soon_threadsafe(leave)
    assert thread.run(answer(), 10) == 4
    assert hears.wait(10)
    assert [type(error) for error in heard] == [error_type]
    assert "reached the loop of thread tested" in caplog.text


def test_the_owner_hears_of_a_timer_that_fails_and_not_of_a_task(
    thread: EventLoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[BaseException] = []
    hears = threading.Event()

    def on_fatal_error(error: BaseException) -> None:
        heard.append(error)
        hears.set()
        raise ValueError("what the owner does fails, too")

    def fail() -> None:
        raise LookupError("a timer")

    async def fail_unwatched() -> None:
        asyncio.get_running_loop().create_task(fail_later())

    async def fail_later() -> None:
        raise LookupError("a task")

    thread.on_fatal_error = on_fatal_error
    thread.run(fail_unwatched(), 10)
    gc.collect()
    thread.loop.call_soon_threadsafe(thread.loop.call_later, 0.001, fail)
    assert hears.wait(10)
    thread.stop()
    assert [str(error) for error in heard] == ["a timer"]
    assert "LookupError: a timer" in caplog.text


def test_a_caller_that_is_cancelled_as_its_answer_comes_from_another_loop_is_cancelled() -> None:
    async def cancelled_after(step_count: int) -> bool:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        async def call() -> None:
            await answer

        asking = loop.create_task(run_on_loop(call(), loop))
        for _ in range(5):
            await asyncio.sleep(0)
        answer.set_result(None)
        for _ in range(step_count):
            await asyncio.sleep(0)
        came_first = asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return asking.cancelled() or came_first

    assert [asyncio.run(cancelled_after(count)) for count in range(10)] == [True] * 10

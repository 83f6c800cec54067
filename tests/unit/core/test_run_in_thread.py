"""Blocking calls run beside the loop, and their outcome comes back."""

import asyncio
import threading

import pytest

from headrace.core.threads import run_in_thread


def test_the_result_and_the_error_of_a_body_come_back_from_its_own_thread() -> None:
    def fail() -> None:
        raise OSError("no disk")

    async def both() -> str:
        with pytest.raises(OSError, match="no disk"):
            await run_in_thread("fails", fail)
        return await run_in_thread("says its name", lambda: threading.current_thread().name)

    assert asyncio.run(both()) == "says its name"


def test_a_caller_that_is_cancelled_leaves_the_thread_to_its_work() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def body() -> None:
        begun.set()
        go_on.wait()
        done.set()

    async def cancel() -> None:
        call = asyncio.ensure_future(run_in_thread("goes on", body))
        while not begun.is_set():
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancel())
    go_on.set()
    assert done.wait(20), "the loop has ended, the thread has not"

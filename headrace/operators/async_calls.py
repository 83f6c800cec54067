"""Calls of an asynchronous function: coroutines that run on an event loop beside the task's thread."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from headrace.core.event_loop_thread import EventLoopThread
from headrace.core.threads import spawn


class AsyncCall:
    """One attempt. Once `done` is called with it, `results` or `error` is set; a cancelled one is never done."""

    __slots__ = ("_done", "_invoke", "error", "is_cancelled", "results", "task")

    def __init__(
        self, invoke: Callable[[], Awaitable[Any]], done: Callable[["AsyncCall"], None]
    ) -> None:
        self._invoke = invoke
        self._done = done
        self.results: Any = None
        self.error: BaseException | None = None
        self.is_cancelled = False
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Await the user's coroutine and tell how it ended."""
        try:
            self.results = await self._invoke()
        except BaseException as error:  # whatever leaves user code has to reach the task's thread
            if self.is_cancelled:
                raise
            self.error = error
        if not self.is_cancelled:
            self._done(self)


class AsyncCalls(Protocol):
    """Runs calls; used by one thread, the task's."""

    def start(self, calls: Sequence[AsyncCall]) -> None:
        """Begin with all of them; does not wait."""
        ...

    def cancel(self, call: AsyncCall) -> None:
        """Make sure that `done` is not called any more, or that it does not matter; does not wait."""
        ...

    def close(self) -> None:
        """Cancel what runs and release resources. Idempotent."""
        ...


class CallThread:
    """An event loop on a thread of its own. Implements AsyncCalls."""

    def __init__(self, name: str) -> None:
        self._thread: Final = EventLoopThread(name)
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, calls: Sequence[AsyncCall]) -> None:
        # One crossing for many calls: waking the loop costs more than starting a coroutine on it.
        self._thread.loop.call_soon_threadsafe(self._start, calls)

    def cancel(self, call: AsyncCall) -> None:
        call.is_cancelled = True
        self._thread.loop.call_soon_threadsafe(_cancel, call)

    def close(self) -> None:
        self._thread.stop()

    def _start(self, calls: Sequence[AsyncCall]) -> None:
        for call in calls:
            if not call.is_cancelled:
                call.task = spawn(call.run(), self._thread.loop, "async_invoke", self._tasks)


def _cancel(call: AsyncCall) -> None:
    if call.task is not None:
        call.task.cancel()

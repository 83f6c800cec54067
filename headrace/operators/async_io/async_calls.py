"""Calls of an asynchronous function: coroutines that run on an event loop beside the task's thread."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from headrace.core.threads import EventLoopThread, spawn


class AsyncCall:
    """One attempt. Once it has ended, `results` or `error` is set. `subject`: what it was made for."""

    __slots__ = ("_invoke", "error", "is_cancelled", "results", "subject", "task")

    def __init__(self, subject: Any, invoke: Callable[[], Awaitable[Any]]) -> None:
        self.subject = subject
        self._invoke = invoke
        self.results: Any = None
        self.error: BaseException | None = None
        self.is_cancelled = False
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Await the user's coroutine and keep how it ended."""
        try:
            self.results = await self._invoke()
        except asyncio.CancelledError as error:
            if self.is_cancelled:
                raise
            self.error = error
        except BaseException as error:  # whatever leaves user code has to reach the task's thread
            self.error = error


CallsEnded = Callable[[Sequence[AsyncCall]], None]
"""Told of calls that ended, several at once; not on the task's thread. Cancelled ones may be among them."""


class AsyncCalls(Protocol):
    """Runs calls; used by one thread, the task's."""

    def start(self, calls: Sequence[AsyncCall]) -> None:
        """Begin with all of them; does not wait."""
        ...

    def cancel(self, call: AsyncCall) -> None:
        """End a call whose outcome does not matter any more; does not wait."""
        ...

    def close(self) -> None:
        """Cancel what runs and release resources. Idempotent."""
        ...


class CallThread:
    """An event loop on a thread of its own. Implements AsyncCalls.

    Crossing over between threads costs more than a coroutine does, so calls are begun together, and what ends in one
    round of the loop is told together.
    """

    def __init__(self, name: str, ended: CallsEnded) -> None:
        self._thread: Final = EventLoopThread(name)
        self._tell_ended: Final = ended
        self._ended: list[AsyncCall] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, calls: Sequence[AsyncCall]) -> None:
        self._thread.loop.call_soon_threadsafe(self._start, calls)

    def cancel(self, call: AsyncCall) -> None:
        call.is_cancelled = True
        self._thread.loop.call_soon_threadsafe(_cancel, call)

    def close(self) -> None:
        self._thread.stop()

    def _start(self, calls: Sequence[AsyncCall]) -> None:
        for call in calls:
            if not call.is_cancelled:
                call.task = spawn(self._run(call), self._thread.loop, "async_invoke", self._tasks)

    async def _run(self, call: AsyncCall) -> None:
        await call.run()
        if not self._ended:
            self._thread.loop.call_soon(self._hand_over)
        self._ended.append(call)

    def _hand_over(self) -> None:
        ended, self._ended = self._ended, []
        self._tell_ended(ended)


def _cancel(call: AsyncCall) -> None:
    if call.task is not None:
        call.task.cancel()

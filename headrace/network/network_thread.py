"""NetworkThread: the one event loop of a process's data plane, and the way into it."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.core.threads import start_thread
from headrace.network.transport import Cancellable

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop where it is installed; the stock loop moves up to a quarter less."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class NetworkThread:
    """Runs callbacks, timers and connections. `post` wakes the loop only when nothing was waiting yet."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = new_event_loop()
        self._posted: deque[Callable[[], None]] = deque()
        self._is_wake_pending = False
        self._join: Callable[[], None] | None = None
        # Once the loop has stopped its state has no owner any more: whoever still posts takes turns.
        self._afterlife = threading.RLock()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; to be used on the thread only."""
        return self._loop

    def start(self) -> None:
        """Start the thread."""
        self._join = start_thread(self._name, self._run).join

    def post(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the thread, in the order of posting. Any thread."""
        self._posted.append(callback)
        if self._is_wake_pending:
            return
        self._is_wake_pending = True
        try:
            self._loop.call_soon_threadsafe(self._drain)
        except RuntimeError:
            self._drain_after_stop()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` after `delay_ms`; on the thread only."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the loop and wait for it. Not from the thread itself."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def stop(self) -> None:
        """Run what was posted, end the loop and join the thread. Idempotent."""
        join, self._join = self._join, None
        if join is None:
            return
        self.post(self._loop.stop)
        join()
        self._drain_after_stop()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _drain(self) -> None:
        # Before looking: what is appended after this line wakes the loop again.
        self._is_wake_pending = False
        try:
            while self._posted:
                self._posted.popleft()()
        finally:
            # Only where a callback raised: the loop reports it, and the others still have their turn.
            if self._posted and not self._loop.is_closed():
                self._loop.call_soon(self._drain)

    def _drain_after_stop(self) -> None:
        with self._afterlife:
            self._drain()

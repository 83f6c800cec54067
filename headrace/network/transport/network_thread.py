"""NetworkThread: the one event loop of a process's data plane, and the way into it."""

import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from headrace.core.clock import Cancellable
from headrace.core.threads import EventLoopThread

T = TypeVar("T")


class NetworkThread:
    """Runs callbacks, timers and connections. `post` wakes the loop only when nothing was waiting yet."""

    def __init__(self, name: str) -> None:
        self._thread: Final = EventLoopThread(name)
        self._loop: Final = self._thread.loop
        self._posted: deque[Callable[[], None]] = deque()
        self._is_wake_pending = False
        # Once the loop has stopped its state has no owner any more: whoever still posts takes turns.
        self._afterlife = threading.RLock()

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
        return self._thread.run(coroutine, timeout_s)

    def stop(self) -> None:
        """Run what was posted, end the loop and join the thread. Idempotent."""
        self._thread.stop(None)
        self._drain_after_stop()

    def _drain(self) -> None:
        """Run what is there; what comes meanwhile finds a wake-up pending, and has its turn behind everybody else."""
        try:
            for _ in range(len(self._posted)):
                self._posted.popleft()()
        finally:
            # Also where a callback raised: the loop reports it, and the others still have their turn.
            self._is_wake_pending = False
            # Behind that line, so that what is appended after this look wakes the loop again.
            if self._posted and not self._loop.is_closed():
                self._is_wake_pending = True
                self._loop.call_soon(self._drain)

    def _drain_after_stop(self) -> None:
        with self._afterlife:
            while self._posted:
                self._drain()

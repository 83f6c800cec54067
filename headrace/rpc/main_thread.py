"""The main thread: every endpoint of a process runs on the one event loop of its RpcService.

HandlerWatch finds handlers that hold this thread, as a blocked main thread looks like a dead peer to other processes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from headrace.core.clock import Clock

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


def is_on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the caller runs in a callback or task of `loop`."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class ForeignTimer:
    """A timer that another thread sets: `arm` runs on the loop, `cancel` on any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback: Callable[[], None] | None = callback

    def arm(self, delay_ms: float) -> None:
        """Start the timer."""
        self._loop.call_later(delay_ms / 1000, self._fire)

    def cancel(self) -> None:
        """Prevent the callback, unless it has run already."""
        self._callback = None

    def _fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class HandlerWatch:
    """Measures how long handlers hold the main thread; logs those that exceed `threshold_ms`, with their names.

    In an async handler each step between two awaits is measured separately, as waiting does not block the thread.
    """

    def __init__(self, owner: str, clock: Clock, threshold_ms: float) -> None:
        self._owner = owner
        self._clock = clock
        self._threshold_ns = int(threshold_ms * 1_000_000)
        self.slowest_name = ""
        self.slowest_ns = 0

    def call(self, name: str, function: Callable[..., T], *args: object) -> T:
        """Run `function` and measure it."""
        started_ns = self._clock.monotonic_ns()
        try:
            return function(*args)
        finally:
            self.record(name, self._clock.monotonic_ns() - started_ns)

    def awaiting(self, name: str, awaitable: Awaitable[T]) -> Awaitable[T]:
        """Wrap `awaitable` so that its steps are measured."""
        return _MeasuredAwaitable(self, self._clock, name, awaitable)

    def record(self, name: str, held_ns: int) -> None:
        """Record one period in which a handler held the main thread."""
        if held_ns > self.slowest_ns:
            self.slowest_name, self.slowest_ns = name, held_ns
        if held_ns >= self._threshold_ns:
            _LOG.warning(
                "%s held the main thread of %s for %d ms; calls and heartbeats had to wait",
                name,
                self._owner,
                held_ns // 1_000_000,
            )


class _MeasuredAwaitable(Generic[T]):
    def __init__(
        self, watch: HandlerWatch, clock: Clock, name: str, awaitable: Awaitable[T]
    ) -> None:
        self._watch = watch
        self._clock = clock
        self._name = name
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, T]:
        # Awaitables of asyncio, coroutines and futures, have `send` and `throw`.
        steps = self._awaitable.__await__()
        sent: Any = None
        thrown: BaseException | None = None
        while True:
            started_ns = self._clock.monotonic_ns()
            try:
                waited_for = steps.send(sent) if thrown is None else steps.throw(thrown)
            except StopIteration as stop:
                return stop.value
            finally:
                self._watch.record(self._name, self._clock.monotonic_ns() - started_ns)
            try:
                sent, thrown = (yield waited_for), None
            except BaseException as error:
                sent, thrown = None, error

"""A deterministic event loop: virtual time, one thread, no sockets.

Callbacks run in the order in which they were scheduled. When nothing is ready, the ManualClock jumps to the next
timer: a simulated hour takes no time, and the same seed gives the same order of events. Operations on the
outside world (sockets, threads, subprocesses, signals) raises NotImplementedError, as AbstractEventLoop does by itself.
Source: Trio's MockClock and the simulators of FoundationDB and TigerBeetle, in idea.
"""

import asyncio
import collections
import contextvars
import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from headrace.core.clock import ManualClock

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_NS_PER_S: Final = 1_000_000_000
_CANCEL_ROUNDS_MAX: Final = 100


class SimulationStuckError(AssertionError):
    """All tasks wait and no timer is set: the awaited result will never come."""


class SimulationTimeoutError(AssertionError):
    """The allowed virtual time has passed."""


class _Handle(asyncio.Handle):
    def run(self) -> None:
        if not self.cancelled():
            try:
                assert self._context is not None
                self._context.run(self._callback, *self._args)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                self._loop.call_exception_handler(
                    {"message": f"error in {self._callback!r}", "exception": error, "handle": self}
                )


class _Timer(asyncio.TimerHandle, _Handle):
    pass


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop on `clock`, which only the loop should advance while it runs.

    Exceptions of callbacks are kept in `callback_errors` and raised at the end of `run_until`.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._start_ns = clock.monotonic_ns()
        self._ready: collections.deque[_Handle] = collections.deque()
        self._timers: list[tuple[int, int, _Timer]] = []
        self._sequence = itertools.count()
        self._thread_id = threading.get_ident()
        self._is_running = False
        self._is_stopping = False
        self._is_closed = False
        self._exception_handler: Callable[[Any, dict[str, Any]], object] | None = None
        self._task_factory: Any = None
        self.callback_errors: list[dict[str, Any]] = []

    def run_until(self, coroutine: Coroutine[Any, Any, T], max_virtual_ms: float = 3_600_000) -> T:
        """Run `coroutine` to its end and return its result.

        SimulationStuckError if nothing can happen any more, SimulationTimeoutError after `max_virtual_ms` of
        virtual time; both list the waiting tasks.
        """
        deadline_ns = self.clock.monotonic_ns() + int(max_virtual_ms * 1_000_000)
        task = self.create_task(coroutine, name="run_until")
        self._run(lambda: task.done(), deadline_ns, task)
        if self.callback_errors:
            raise AssertionError(f"callbacks failed: {self.callback_errors}") from next(
                (context.get("exception") for context in self.callback_errors), None
            )
        return task.result()

    def run_for(self, duration_ms: float) -> None:
        """Let `duration_ms` of virtual time pass, even if nothing happens."""
        self.run_until(asyncio.sleep(duration_ms / 1000), duration_ms + 1)

    def run_forever(self) -> None:
        """Run until `stop`; SimulationStuckError if nothing can happen any more."""
        self._is_stopping = False
        self._run(lambda: self._is_stopping, None, None)

    def run_until_complete(self, future: Any) -> Any:
        """Run as `run_until` does, for libraries that only know the standard name."""
        task = future if asyncio.isfuture(future) else self.create_task(future)
        self._run(lambda: task.done(), None, task)
        return task.result()

    def _run(
        self,
        is_done: Callable[[], bool],
        deadline_ns: int | None,
        awaited: asyncio.Future[Any] | None,
    ) -> None:
        assert not self._is_running and not self._is_closed
        previous = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage] - made for event loops
        self._is_running = True
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage] - made for event loops
        try:
            while not is_done():
                self._step(deadline_ns, awaited)
        finally:
            self._is_running = False
            asyncio._set_running_loop(previous)  # pyright: ignore[reportPrivateUsage]

    def _step(self, deadline_ns: int | None, awaited: asyncio.Future[Any] | None) -> None:
        """Run one ready callback, or jump to the next timer."""
        self._collect_due_timers()
        if self._ready:
            self._ready.popleft().run()
            return
        if not self._timers:
            raise SimulationStuckError(
                f"nothing is ready and no timer is set at {self.clock.now_ms()} ms; "
                + self._describe_waiting(awaited)
            )
        next_ns = self._timers[0][0]
        if deadline_ns is not None and next_ns > deadline_ns:
            raise SimulationTimeoutError(
                f"not done at {self.clock.now_ms()} ms, the next timer is "
                f"{(next_ns - deadline_ns) // 1_000_000} ms past the allowed time; "
                + self._describe_waiting(awaited)
            )
        self._advance_to(next_ns)

    def _advance_to(self, target_ns: int) -> None:
        # advance_ms takes a float: rounding may stop a nanosecond short, hence the loop.
        while (missing_ns := target_ns - self.clock.monotonic_ns()) > 0:
            self.clock.advance_ms(max(missing_ns / 1_000_000, 0.000001))

    def _collect_due_timers(self) -> None:
        now_ns = self.clock.monotonic_ns()
        while self._timers and (self._timers[0][0] <= now_ns or self._timers[0][2].cancelled()):
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled():
                self._ready.append(timer)

    def _describe_waiting(self, awaited: asyncio.Future[Any] | None) -> str:
        tasks = [task for task in asyncio.all_tasks(self) if not task.done()]
        names = sorted(f"{task.get_name()}: {_place_of(task)}" for task in tasks)
        return f"waiting tasks: {'; '.join(names) or 'none'} (awaited: {awaited!r})"

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return (self.clock.monotonic_ns() - self._start_ns) / _NS_PER_S

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Append a callback to the ready queue."""
        assert threading.get_ident() == self._thread_id, (
            "a VirtualLoop can only be used on one thread"
        )
        assert not self._is_closed, "the loop is closed"
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Do the same as `call_soon`, as other threads are an error."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after `delay` virtual seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at virtual second `when`.

        Timers of the same instant run in the order in which they were set.
        """
        timer = _Timer(when, callback, args, self, context)
        when_ns = self._start_ns + round(when * _NS_PER_S)
        heapq.heappush(self._timers, (when_ns, next(self._sequence), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # found cancelled when its time comes

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # pyright: ignore[reportIncompatibleMethodOverride] - wider than the stub
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Return a task of this loop."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def set_task_factory(self, factory: Any) -> None:
        """Raise an error: a factory would change the order of events."""
        assert factory is None, "a VirtualLoop makes its own tasks"

    def get_task_factory(self) -> None:
        """Return None."""
        return None

    def is_running(self) -> bool:
        """Return whether the loop is running."""
        return self._is_running

    def is_closed(self) -> bool:
        """Return whether the loop was closed."""
        return self._is_closed

    def stop(self) -> None:
        """End `run_forever`."""
        self._is_stopping = True

    def close(self) -> None:
        """Cancel every task, let them end, and drop all scheduled callbacks; idempotent.

        AssertionError if a task does not end although it is cancelled.
        """
        if self._is_closed:
            return
        for _ in range(_CANCEL_ROUNDS_MAX):
            pending = asyncio.all_tasks(self)
            if not pending:
                break
            for task in pending:
                task.cancel()
            self._run(lambda: not self._ready, None, None)
        stubborn = asyncio.all_tasks(self)
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()
        assert not stubborn, f"tasks do not end although they are cancelled: {stubborn}"

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""

    def set_exception_handler(self, handler: Any) -> None:
        """Set the function that is called instead of storing an error."""
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        """Return the handler, or None."""
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Store the error for `run_until` and log it."""
        self.callback_errors.append(context)
        _LOG.error("%s", context.get("message"), exc_info=context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Handle an error of a callback."""
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)


def _place_of(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    if not frames:
        return "not started"
    return f"{frames[-1].f_code.co_qualname}, line {frames[-1].f_lineno}"

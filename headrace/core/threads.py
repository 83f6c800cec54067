"""Threads and asyncio tasks: only this file may call their constructors.

A process has a named daemon thread for each long-lived loop, and for each call that may block, so that no forgotten
thread keeps a Spark worker alive. EventLoopThread is one such thread with an event loop, which other threads call.
"""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import inspect
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Protocol, TypeVar, cast

T = TypeVar("T")

Thread = threading.Thread
"""A thread that `start_thread` started: for annotations."""

_LOG: Final = logging.getLogger(__name__)

SWITCH_INTERVAL_S: Final = 0.0005
"""Longest time for which a computing thread keeps the interpreter from others; CPython's default is 5 ms."""


class BlockingRunner(Protocol):
    """Runs a call that may block while the event loop continues: `run_in_thread`, or at once in a simulation."""

    def __call__(self, name: str, body: Callable[[], T], /) -> Awaitable[T]:
        """Return the result of `body`, or raise its error. `name` is for people."""
        ...


BlockingStarter = Callable[[str, Callable[[], None]], object]
"""Runs blocking work on another thread (`start_thread`), or at once in a simulation; the name is for logs."""


@dataclass(frozen=True)
class ThreadIds:
    """Ids of a thread: the interpreter's, which finds its frames, and the kernel's, which finds its clock."""

    ident: int
    native_id: int


def own_thread_ids() -> ThreadIds:
    """Return the ids of the calling thread."""
    return ThreadIds(threading.get_ident(), threading.get_native_id())


def current_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by its id in the interpreter; the threads keep running."""
    # The standard library's own access to frames, with an underscore because it is meant for debugging.
    return sys._current_frames()  # pyright: ignore[reportPrivateUsage]


def share_interpreter() -> None:
    """Let the threads of this process take turns more often; called once in TaskManager processes.

    Otherwise a task that runs Python code would delay the network thread, and with it credit, for milliseconds at a
    time.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def start_thread(name: str, body: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread called `name` that runs `body` and return it."""
    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread


def raise_in_thread(ident: int, error: type[BaseException]) -> None:
    """Make the thread with this id raise an error of the class, without arguments, before its next step of Python code.

    Code outside the interpreter continues until it returns.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


def forget_raised(ident: int) -> None:
    """Cancel an error of `raise_in_thread` that the thread has not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), None)


class OrderedTasks(dict[asyncio.Task[Any], None]):
    """Tasks in the order of their start, in which they are cancelled, because a set's order differs between runs."""

    def add(self, task: asyncio.Task[Any]) -> None:
        """Add a task."""
        self[task] = None

    def discard(self, task: asyncio.Task[Any]) -> None:
        """Remove a task, if it is there."""
        self.pop(task, None)


def spawn(
    coroutine: Coroutine[Any, Any, T],
    loop: asyncio.AbstractEventLoop,
    name: str,
    owner: set[asyncio.Task[Any]] | OrderedTasks,
) -> asyncio.Task[T]:
    """Start `coroutine` on `loop` as a task that `owner` holds until it ends."""
    task = loop.create_task(coroutine, name=name)
    owner.add(task)
    task.add_done_callback(owner.discard)
    return task


def run_in_thread(name: str, body: Callable[[], T]) -> asyncio.Future[T]:
    """Run `body`, which may block, on a daemon thread of its own; the thread continues if the future is cancelled.

    A new thread costs less than the shortest file operation; the caller limits their number.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(value: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(T, value))

    def run() -> None:
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = body()
        except BaseException as error:
            failure = error
        # If the loop has ended meanwhile, the outcome is not awaited any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, value, failure)

    start_thread(name, run)
    return done


async def run_on_loop(
    call: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, timeout_s: float | None = None
) -> T:
    """Return the result of a coroutine that runs on another thread's loop.

    TimeoutError after `timeout_s`; RuntimeError if that loop has ended.
    """
    try:
        answer = asyncio.run_coroutine_threadsafe(call, loop)
    except RuntimeError:
        call.close()
        raise
    try:
        # Not `wait_for`, which in Python 3.11 may lose a cancellation that comes together with the answer.
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(answer)
    finally:
        if loop.is_closed() and inspect.getcoroutinestate(call) == inspect.CORO_CREATED:
            call.close()  # The loop has ended before it came to this call.


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop if it is installed; the stock loop moves up to a quarter less data."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class EventLoopThread:
    """A daemon thread with an event loop, started by the constructor; `run` waits for a coroutine on it.

    Callable from other threads. Python ends a loop at `SystemExit` and `KeyboardInterrupt` from anything that runs on
    it, and callers that wait for the loop would then wait forever. This loop continues, and calls `on_fatal_error`. It
    also does so if a timer or a callback fails, which would otherwise be unnoticed.
    """

    def __init__(self, name: str) -> None:
        self.loop: Final[asyncio.AbstractEventLoop] = new_event_loop()
        self.on_fatal_error: Callable[[BaseException], None] | None = None
        """Callback on the thread, with the exception."""
        self._is_stopping = False
        self._is_running = threading.Event()
        self._thread: Final = start_thread(name, self._body)
        self._is_running.wait()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine and wait for its result; TimeoutError after `timeout_s`.

        Do not call it from the thread itself.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def stop(self, timeout_s: float | None = 10.0) -> None:
        """Cancel running coroutines and end the thread, waiting without limit if `timeout_s` is None; idempotent."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop)
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _LOG.error("thread %s does not end", self._thread.name)

    def _body(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._failed)
        self.loop.call_soon(self._is_running.set)
        try:
            while not self._is_stopping:
                self._run_until_stopped()
            self._cancel_rest()
        finally:
            self.loop.close()

    def _run_until_stopped(self) -> None:
        try:
            self.loop.run_forever()
        except BaseException as error:
            _LOG.critical(
                "%r reached the loop of thread %s", error, self._thread.name, exc_info=error
            )
            if self.on_fatal_error is not None:
                self.loop.call_soon(self.on_fatal_error, error)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        error = context.get("exception")
        if self.on_fatal_error is None or self._is_stopping:
            return
        # Only timers and callbacks have a handle: connections and tasks fail alone. What is cancelled has not failed.
        if "handle" in context and isinstance(error, Exception):
            self.on_fatal_error(error)

    def _stop(self) -> None:
        self._is_stopping = True
        self.loop.stop()

    def _cancel_rest(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())

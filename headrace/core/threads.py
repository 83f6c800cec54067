"""Starts all threads and asyncio tasks: only this file may call their constructors.

A named daemon thread for each long-lived loop of a process, and for each call that may block, so that no forgotten
thread keeps a Spark worker alive.
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar, cast

T = TypeVar("T")


SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread that computes may keep the interpreter from one that has bytes to move; CPython's own is 5 ms."""


class BlockingRunner(Protocol):
    """Runs what may block beside the event loop that awaits it: `run_in_thread`, or at once in a simulation."""

    def __call__(self, name: str, body: Callable[[], T], /) -> Awaitable[T]:
        """The result of `body`, or its error. `name` is for people."""
        ...


def share_interpreter() -> None:
    """Let the threads of this process take turns more often: for processes that are TaskManagers, once.

    A task that runs Python code would hold up the network thread for milliseconds at a time, and with it credit.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def start_thread(name: str, body: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread called `name` that runs `body` and return it."""
    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread


def spawn(
    coroutine: Coroutine[Any, Any, T],
    loop: asyncio.AbstractEventLoop,
    name: str,
    owner: set[asyncio.Task[Any]],
) -> asyncio.Task[T]:
    """Start `coroutine` on `loop` as a task that `owner` holds until it ends."""
    task = loop.create_task(coroutine, name=name)
    owner.add(task)
    task.add_done_callback(owner.discard)
    return task


def run_in_thread(name: str, body: Callable[[], T]) -> asyncio.Future[T]:
    """Run `body`, which may block, on a daemon thread of its own; the thread goes on if the future is cancelled.

    A new thread costs less than the shortest file operation; whoever calls bounds how many there are.
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
        # Where the loop has ended meanwhile, nobody waits for the outcome.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, value, failure)

    start_thread(name, run)
    return done

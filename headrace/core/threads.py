"""Where threads and asyncio tasks are born: only this file may call their constructors.

A named daemon thread for each long-lived loop of a process, so that no forgotten thread keeps a Spark worker alive.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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

"""Signals between a test and the tasks of a program: how many things have happened, and whether to answer."""

import asyncio
import contextlib
import threading
from typing import Final

WAIT_S: Final = 100


class Counted:
    """How often something has happened. Tasks count, the test waits: hence the lock."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def add_one(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    @property
    def count(self) -> int:
        with self._changed:
            return self._count

    def await_count(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._count >= count, WAIT_S), self._count


class Answers:
    """Holds answers back until `release`. Loops of tasks and the test's thread meet here: hence the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_released = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def event(self) -> asyncio.Event:
        event = asyncio.Event()
        with self._lock:
            if self._is_released:
                event.set()
            self._waiting.append((asyncio.get_running_loop(), event))
        return event

    def release(self) -> None:
        with self._lock:
            self._is_released = True
            for loop, event in self._waiting:
                with contextlib.suppress(RuntimeError):  # the loop of a task that has ended
                    loop.call_soon_threadsafe(event.set)


READ: Final[dict[str, Counted]] = {}
"""By run, how many numbers have been read."""
FIRED: Final[dict[str, Counted]] = {}
"""By run, how many timers and windows of processing time have fired."""
ANSWERS: Final[dict[str, Answers]] = {}
"""By run, when those who are asked answer."""

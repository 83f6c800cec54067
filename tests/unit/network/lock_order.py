"""Locks that remember in which order they were taken, to watch the exchange with."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from headrace.network.trace.simulated_transport import SimulatedTransport
from headrace.network.transport.socket_transport import SocketTransport
from headrace.task.mailbox import Mailbox

_REAL_LOCK = threading.Lock
_REAL_CONDITION = threading.Condition


class LockOrder:
    """Which locks were taken while which others were held, and what was called under a lock though it is foreign."""

    def __init__(self) -> None:
        self.edges: dict[str, set[str]] = {}
        self.foreign_calls: list[str] = []
        self.names: set[str] = set()
        self._held = threading.local()

    @property
    def held(self) -> list[str]:
        """Locks that this thread holds, the outermost first."""
        if not hasattr(self._held, "names"):
            self._held.names = []
        return self._held.names

    def taken(self, name: str) -> None:
        for outer in self.held:
            self.edges.setdefault(outer, set()).add(name)
        self.held.append(name)
        self.names.add(name)

    def given_back(self, name: str) -> None:
        # From behind: a condition gives its lock back in between.
        for index in range(len(self.held) - 1, -1, -1):
            if self.held[index] == name:
                del self.held[index]
                return

    def foreign(self, what: str) -> None:
        """Somebody else's code is called, such as a listener's."""
        if self.held:
            self.foreign_calls.append(f"{what} under {' > '.join(self.held)}")

    def cycles(self) -> list[str]:
        """Every lock from which a chain of others leads back to it."""
        found: list[str] = []
        for start in self.edges:
            seen: set[str] = set()
            ahead = [*self.edges[start]]
            while ahead:
                name = ahead.pop()
                if name == start:
                    found.append(start)
                    break
                if name not in seen:
                    seen.add(name)
                    ahead += self.edges.get(name, ())
        return found


class WatchedLock:
    """A lock that tells of itself. Two of the same class are one name: nesting them is a cycle."""

    def __init__(self, order: LockOrder, name: str) -> None:
        self._order = order
        self._name = name
        self._lock = _REAL_LOCK()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        is_taken = self._lock.acquire(blocking, timeout)
        if is_taken:
            self._order.taken(self._name)
        return is_taken

    def release(self) -> None:
        self._order.given_back(self._name)
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        # Asked by conditions; taking it to find out would count as an order.
        return self._lock.locked()


@contextmanager
def watched_locks() -> Iterator[LockOrder]:
    """Have every lock that code of this project makes within the block tell of itself."""
    order = LockOrder()

    def owner() -> str | None:
        frame = sys._getframe(2)
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("headrace."):
            return None
        maker = frame.f_locals.get("self")
        return type(maker).__name__ if maker is not None else name

    def lock() -> Any:
        name = owner()
        return _REAL_LOCK() if name is None else WatchedLock(order, name)

    def condition(of: Any = None) -> Any:
        name = owner()
        if of is None and name is not None:
            of = WatchedLock(order, name)
        return _REAL_CONDITION(of)

    def telling(method: Callable[..., Any], what: str) -> Callable[..., Any]:
        @wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            order.foreign(what)
            return method(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "Lock", lock)
        patch.setattr(threading, "Condition", condition)
        for owner_class, method in (
            (SimulatedTransport, "post"),
            (SimulatedTransport, "call_later"),
            (SocketTransport, "post"),
            (SocketTransport, "call_later"),
            (Mailbox, "put"),
            (Mailbox, "wake"),
        ):
            what = f"{owner_class.__name__}.{method}"
            patch.setattr(owner_class, method, telling(getattr(owner_class, method), what))
        yield order


def assert_lawful(order: LockOrder) -> None:
    """No cycle, and nothing foreign under a lock."""
    assert order.cycles() == [], order.edges
    assert order.foreign_calls == []

"""EventQueue: handles events one after the other, also those that arise while one of them is handled."""

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

E = TypeVar("E")


class EventQueue(Generic[E]):
    """Calls `handle` for each event, to its end before the next. One thread; where it raises, the rest stays queued."""

    def __init__(self, handle: Callable[[E], None]) -> None:
        self._handle: Final = handle
        self._events: deque[E] = deque()
        self._is_handling = False

    def put(self, event: E) -> None:
        """Handle the event now, or from within a handler once that has returned."""
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._is_handling = False

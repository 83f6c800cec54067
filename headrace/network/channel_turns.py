"""ChannelTurns: which channel of a gate is read next, and who is to be told that one can be.

Each channel stands in line once at most, those with priority events in front. A gate over gates keeps them in such a
line, too. Source: Flink SingleInputGate, the queue of its channels with data; UnionInputGate, that of its gates.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final


class ChannelTurns:
    """The line of one gate. `next` is for the task's thread, the rest for any."""

    def __init__(self, channel_count: int) -> None:
        # Channels notify from the transport's and from producers' threads.
        self._lock: Final = threading.Lock()
        self._ready: deque[int] = deque()
        self._is_queued: Final = [False] * channel_count
        self._priority_channels: set[int] = set()
        self._callbacks: list[Callable[[], None]] = []
        self._priority_callbacks: list[Callable[[], None]] = []
        # A gate without channels has nothing to wait for.
        self._is_over = channel_count == 0

    @property
    def is_available(self) -> bool:
        """Whether a channel stands in line, or none ever will again."""
        return bool(self._ready) or self._is_over

    @property
    def has_priority(self) -> bool:
        """Whether one stands in front for its priority events."""
        return bool(self._priority_channels)

    def add(self, index: int, *, has_priority: bool) -> None:
        """Channel `index` may have something; one time too many costs a look."""
        callbacks: list[Callable[[], None]] = []
        with self._lock:
            if has_priority and index not in self._priority_channels:
                self._put_in_front(index)
                callbacks, self._priority_callbacks = self._priority_callbacks, []
            elif self._is_queued[index]:
                return
            else:
                self._ready.append(index)
            self._is_queued[index] = True
            callbacks += self._take_callbacks()
        for callback in callbacks:
            callback()

    def next(self) -> int | None:
        """Take the channel whose turn it is out of the line; None where none stands there."""
        with self._lock:
            if not self._ready:
                return None
            index = self._ready.popleft()
            self._is_queued[index] = False
            self._priority_channels.discard(index)
            return index

    def end(self) -> None:
        """Have everybody told who waits, now and from now on: the gate is finished, or closed."""
        with self._lock:
            self._is_over = True
            callbacks = self._take_callbacks()
        for callback in callbacks:
            callback()

    def on_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as a channel stands in line or the gate has ended; now if so."""
        with self._lock:
            if not self.is_available:
                if callback not in self._callbacks:
                    self._callbacks.append(callback)
                return
        callback()

    def on_priority(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as a channel has priority events; now if one has."""
        with self._lock:
            if not self._priority_channels:
                if callback not in self._priority_callbacks:
                    self._priority_callbacks.append(callback)
                return
        callback()

    def _put_in_front(self, index: int) -> None:
        """Queue a channel behind those that came with priority before it, and before all others."""
        if self._is_queued[index]:
            self._ready.remove(index)
        self._ready.insert(len(self._priority_channels), index)
        self._priority_channels.add(index)

    def _take_callbacks(self) -> list[Callable[[], None]]:
        callbacks, self._callbacks = self._callbacks, []
        return callbacks

"""Clock: the source of time for every component. Only this file reads the machine's time."""

import time
from collections.abc import Iterator
from typing import Protocol


class Clock(Protocol):
    """A clock with two readings: wall time for processing time and people, monotonic time for durations."""

    def now_ms(self) -> int:
        """Return wall-clock time in epoch milliseconds (processing time)."""
        ...

    def now_ns(self) -> int:
        """Return wall-clock time in epoch nanoseconds."""
        ...

    def monotonic_ns(self) -> int:
        """Return the nanoseconds of a clock that never goes back; only differences are meaningful."""
        ...

    def monotonic_ms(self) -> float:
        """Return monotonic time in milliseconds, for deadlines and periods; never compare it with `now_ms`."""
        ...


class Cancellable(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Prevent the call; has no effect after the call has run."""
        ...


def doubling_pauses(first_s: float, longest_s: float) -> Iterator[float]:
    """Yield the pauses, in seconds, between repeated requests: each is twice as long as the last, up to a maximum."""
    while True:
        yield first_s
        first_s = min(2 * first_s, longest_s)


class SystemClock:
    """Clock that reads the machine's clocks."""

    def now_ms(self) -> int:
        """Return wall-clock epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def now_ns(self) -> int:
        """Return wall-clock epoch nanoseconds."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return monotonic nanoseconds."""
        return time.monotonic_ns()

    def monotonic_ms(self) -> float:
        """Return monotonic milliseconds."""
        return time.monotonic_ns() / 1e6


class ManualClock:
    """A clock that moves only when told to, for tests and the simulation.

    Wall and monotonic time advance together.
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ns = start_ms * 1_000_000

    def now_ms(self) -> int:
        """Return wall-clock epoch milliseconds."""
        return self._now_ns // 1_000_000

    def now_ns(self) -> int:
        """Return wall-clock epoch nanoseconds."""
        return self._now_ns

    def monotonic_ns(self) -> int:
        """Return monotonic nanoseconds."""
        return self._now_ns

    def monotonic_ms(self) -> float:
        """Return monotonic milliseconds."""
        return self._now_ns / 1e6

    def advance_ms(self, duration_ms: float) -> None:
        """Move forward by `duration_ms` >= 0."""
        assert duration_ms >= 0
        self._now_ns += int(duration_ms * 1_000_000)

"""ProcessingTimeService: how code on the mailbox thread asks to be called back at a wall-clock time.

Source: Flink ProcessingTimeService.
"""

from collections.abc import Callable
from typing import Protocol


class ScheduledTimer(Protocol):
    """A processing-time timer that may be cancelled."""

    def cancel(self) -> None:
        """Make sure the callback does not run; no effect once it has."""
        ...


class ProcessingTimeService(Protocol):
    """Calls back on the mailbox thread, between batches and parts of them, at or after a wall-clock time."""

    def now_ms(self) -> int:
        """Current processing time, epoch ms."""
        ...

    def schedule(self, time_ms: int, callback: Callable[[int], None]) -> ScheduledTimer:
        """Run `callback(time_ms)` as a mail once `now_ms() >= time_ms`; never after the task finished."""
        ...

"""TimedContext: the runtime's context with its processing-time timers, for readers that wait for a time."""

from collections.abc import Callable
from typing import Any, Protocol

from headrace.functions.subtask_context import SubtaskContext


class ProcessingTimers(Protocol):
    """Calls back on the mailbox thread at or after a wall-clock time."""

    def now_ms(self) -> int:
        """Current processing time, epoch ms."""
        ...

    def schedule(self, time_ms: int, callback: Callable[[int], None]) -> Any:
        """Run `callback(time_ms)` once that time has come."""
        ...


class TimedContext(SubtaskContext, Protocol):
    """What the runtime gives to every reader."""

    @property
    def timers(self) -> ProcessingTimers: ...

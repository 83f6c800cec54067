"""SubtaskContext: facts about its subtask for a source reader or sink writer.

ProcessingTimeService: how code on the mailbox thread asks to be called back at a wall-clock time.

Source: Flink ProcessingTimeService.
"""

from collections.abc import Callable
from typing import Protocol

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, OperatorId
from headrace.core.operator_spec import OperatorTypes
from headrace.functions.ingest import IngestDoor


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


class SubtaskContext(Protocol):
    """The part of the operator's context that connectors use; the runtime's own context has these and more.

    `types` says what the stream carries; batches that are emitted or written have that type. `ingest` is the
    TaskManager's door for pushed data, or None where there is none.
    """

    @property
    def operator_id(self) -> OperatorId: ...
    @property
    def operator_name(self) -> str: ...
    @property
    def subtask_index(self) -> int: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def attempt_number(self) -> int: ...
    @property
    def types(self) -> OperatorTypes: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> ProcessingTimeService: ...
    @property
    def ingest(self) -> IngestDoor | None: ...
    @property
    def attempt_id(self) -> ExecutionAttemptId | None: ...

    def send_event(self, payload: bytes, /) -> None:
        """Speak to the coordinator in the JobMaster; mailbox thread only."""
        ...

    def wake(self) -> None:
        """Have the reader polled again; any thread."""
        ...

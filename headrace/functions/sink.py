"""What a sink is: a description that is shipped, and the writer that each subtask makes of it.

Source: Flink Sink V2, Sink and SinkWriter.
"""

import enum
from abc import ABC, abstractmethod

from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.functions.subtask_context import SubtaskContext


class DeliveryGuarantee(enum.Enum):
    """What a sink promises after failures."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class SinkWriter(ABC):
    """Writes the records of one subtask; used by one thread, the task's mailbox."""

    @abstractmethod
    def write_batch(self, batch: RecordBatch) -> None:
        """Take a batch; it may be kept until the next flush."""

    @abstractmethod
    def flush(self, end_of_input: bool) -> None:
        """Bring everything taken so far to where it belongs; with `end_of_input` nothing will follow."""

    def handle_event(self, payload: bytes) -> None:
        """Take an event from the sink's coordinator."""
        raise AssertionError(f"{type(self).__name__} has no coordinator")

    def close(self) -> None:  # noqa: B027
        """Release resources; also after a failure. A second call has no effect."""


class Sink(ABC):
    """Base of all sinks: picklable, the same for all subtasks."""

    @abstractmethod
    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        """Make the writer of one subtask, on the worker."""

    def check_input(self, value_type: TypeInformation) -> None:  # noqa: B027
        """Raise ProgramError where records of this type cannot be written; called while the program is built."""

    def check_target(self) -> None:  # noqa: B027
        """Raise ProgramError where writing is bound to fail; called on the client before a job is submitted."""

    def coordinator(self) -> tuple[str, bytes] | None:
        """Name and payload of the coordinator that commits in the JobMaster, or None without one."""
        return None

"""Interface of sources: a description that is shipped, and the reader that each subtask makes of it.

A reader is used by one thread, the task's mailbox. It never blocks: where it has to wait it returns
NOTHING_AVAILABLE and has `context.wake` called, by any thread, once there are records again.
Source: Flink FLIP-27, Source and SourceReader.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.functions.column_conditions import ColumnCondition
from headrace.functions.subtask_context import SubtaskContext


class Boundedness(enum.Enum):
    """Whether a source ends by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


class InputStatus(enum.Enum):
    """Result of polling a source. Source: Flink InputStatus, DataInputStatus."""

    MORE_AVAILABLE = "MORE_AVAILABLE"
    NOTHING_AVAILABLE = "NOTHING_AVAILABLE"
    END_OF_INPUT = "END_OF_INPUT"


class SourceOutput(Protocol):
    """Output to which a reader emits its rows."""

    @property
    def rows_wanted(self) -> int:
        """Return the most rows that should be emitted at once, >= 1. Emitting more delays checkpoints."""
        ...

    def emit(self, batch: RecordBatch, split_id: str = "", /) -> None:
        """Hand over rows of one split, of the stream's type, with timestamps where the source knows them."""
        ...

    def add_split(self, split_id: str, /) -> None:
        """From now on the split holds the watermark back until it has rows; for readers that tell splits apart."""
        ...

    def release_split(self, split_id: str, /) -> None:
        """The split has ended and no longer holds the watermark back."""
        ...


class SourceReader(ABC):
    """Reads the share of one subtask."""

    def start(self) -> None:  # noqa: B027
        """Get ready: open what is read, ask the coordinator for work."""

    @abstractmethod
    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit at most one batch and say what is next; never blocks."""

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        """Return the splits that this subtask has, each with its position right behind what was emitted.

        Each is an item of its own: after a restart with another parallelism items go to other subtasks.
        NotImplementedError makes a job that takes checkpoints fail as it starts: such a source cannot be replayed.
        """
        raise NotImplementedError

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        """Begin with these splits of a checkpoint (maybe none) instead of afresh; called before `start`."""
        raise NotImplementedError

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027
        """A checkpoint is published: what it read will not be asked for again. May be lost."""

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        """Read nothing more of some splits for a while, and go on with others; ids are those of `output.emit`.

        Asked by watermark alignment of readers that have several splits. A reader whose splits are all paused answers
        NOTHING_AVAILABLE.
        """
        raise NotImplementedError

    def handle_event(self, payload: bytes) -> None:
        """Take an event from the source's coordinator."""
        raise AssertionError(f"{type(self).__name__} has no coordinator")

    def close(self) -> None:  # noqa: B027
        """Release resources; also after a failure. A second call has no effect."""


class Source(ABC):
    """Base of all sources: picklable, the same for all subtasks."""

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether it ends by itself."""

    @property
    def produced_type(self) -> TypeInformation | None:
        """Type of the records where the source itself knows it, else None."""
        return None

    def with_condition(self, condition: ColumnCondition) -> "Source":
        """Return a source that may leave out rows for which `condition` does not hold, or this one.

        Whoever asks filters all the same: what is left out is what costs nothing to tell.
        Source: Flink SupportsFilterPushDown.
        """
        return self

    @abstractmethod
    def create_reader(self, context: SubtaskContext) -> SourceReader:
        """Make the reader of one subtask, on the worker."""

    def coordinator(self) -> tuple[str, bytes] | None:
        """Name and payload of the coordinator that shares out the work in the JobMaster, or None without one."""
        return None

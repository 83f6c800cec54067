"""Source: a description that is shipped, the reader that each subtask makes from it, and the enumerator of its splits.

A reader is used by one thread, the task's mailbox. It never blocks: if it must wait it returns NOTHING_AVAILABLE, and
any thread calls `context.wake` once there are records again.

A SplitEnumerator finds splits and assigns them to readers, in the JobMaster; SplitReader is the base of such readers:

    source ── enumerator() ──► (name, payload) ── entry point ──► SplitEnumerator ── assign_splits ──► readers
                                                                        ▲───── request ◄────────────────┘

An enumerator is made from its name and from bytes, so that the JobMaster loads no user code. All its
methods run on the JobMaster's main thread and return at once; calls that may block go through `context.call_async`.

Source: Flink FLIP-27, Source, SourceReader, SplitEnumerator, SourceReaderBase.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from headrace.core.config import Settings
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.functions.column_conditions import ColumnCondition
from headrace.functions.runtime_context import SubtaskContext, UserMetricGroup

T = TypeVar("T")
SPLIT_COORDINATOR: Final = "source"
"""Name of the coordinator that runs enumerators in the JobMaster."""
SPLIT_ENUMERATORS: Final = "headrace.split_enumerators"
"""Entry points by the name that a source gives; each is an EnumeratorFactory."""


class Boundedness(enum.Enum):
    """Kinds of sources: bounded and unbounded."""

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
        """Return the maximum number of rows to emit at once, >= 1. Emitting more delays checkpoints."""
        ...

    def emit(self, batch: RecordBatch, split_id: str = "", /) -> None:
        """Emit rows of one split, of the stream's type, with timestamps if the source knows them."""
        ...

    def add_split(self, split_id: str, /) -> None:
        """Register a split, which holds the watermark back until it has rows; for readers that distinguish splits."""
        ...

    def release_split(self, split_id: str, /) -> None:
        """Release an ended split, which then no longer holds the watermark back."""
        ...


class SourceReader(ABC):
    """Reads the share of one subtask."""

    def start(self) -> None:  # noqa: B027
        """Get ready: open files or connections, request work from the coordinator."""

    @abstractmethod
    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit at most one batch and return the reader's status; never block."""

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        """Return the splits of this subtask, each with its position right after the emitted records.

        Each split is an item of its own: after a restart with another parallelism items may go to other subtasks.
        NotImplementedError makes a job that takes checkpoints fail as it starts: such a source cannot be replayed.
        """
        raise NotImplementedError

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        """Begin with these splits of a checkpoint (possibly none); called before `start`."""
        raise NotImplementedError

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027
        """Handle a published checkpoint: records before it will not be requested again. The call may be lost."""

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        """Pause some splits, and resume others; ids are those of `output.emit`.

        Called by watermark alignment for readers with several splits. A reader whose splits are all paused returns
        NOTHING_AVAILABLE.
        """
        raise NotImplementedError

    def pending_record_count(self) -> int | None:
        """Return the number of records that wait in the source's system for this subtask; None if it is not known.

        Called by any thread, only for metrics, so a value of the last second suffices.
        """
        return None

    def pending_byte_count(self) -> int | None:
        """Return the number of bytes of this subtask's splits that are still to be read; None if it is not known.

        Called like `pending_record_count`.
        """
        return None

    def unreadable_record_count(self) -> int:
        """Return the number of records skipped because they could not be read. Called like `pending_record_count`."""
        return 0

    def handle_event(self, payload: bytes) -> None:
        """Handle an event from the source's coordinator."""
        raise AssertionError(f"{type(self).__name__} has no coordinator")

    def close(self) -> None:  # noqa: B027
        """Release resources; also after a failure. A second call has no effect."""


class Source(ABC):
    """Base of all sources: picklable, the same for all subtasks."""

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Return whether the source ends by itself."""

    @property
    def produced_type(self) -> TypeInformation | None:
        """Return the type of the records if the source itself knows it, else None."""
        return None

    def with_condition(self, condition: ColumnCondition) -> "Source":
        """Return a source that may skip rows for which `condition` does not hold, or this one.

        The caller filters anyway, so the source needs to skip only rows that are cheap to recognise.
        Source: Flink SupportsFilterPushDown.
        """
        return self

    @abstractmethod
    def create_reader(self, context: SubtaskContext) -> SourceReader:
        """Make the reader of one subtask, on the worker."""

    def coordinator(self) -> tuple[str, bytes] | None:
        """Return name and payload of the coordinator that distributes the work in the JobMaster, or None."""
        return None


class SourceSplit(msgspec.Struct, frozen=True, array_like=True):
    """A part of a source's input, with the position in it. `content` is the connector's own encoding.

    `split_id` is unique within the source and does not depend on the position.
    """

    split_id: str
    content: bytes


_SPLIT: Final = msgspec.msgpack.Decoder(SourceSplit)


def encode_split(split: SourceSplit) -> bytes:
    """Return a split, with its position, as an item of a reader's or an enumerator's state."""
    return msgspec.msgpack.encode(split)


def decode_split(state: bytes) -> SourceSplit:
    """Decode the result of `encode_split`; msgspec.ValidationError for anything else."""
    return _SPLIT.decode(state)


class SplitEnumeratorContext(Protocol):
    """Context of an enumerator, with the calls that it may make; on the main thread only."""

    @property
    def parallelism(self) -> int:
        """Return the number of readers of the source, once all of them run."""
        ...

    @property
    def settings(self) -> Settings:
        """Return the job's settings on top of the cluster's."""
        ...

    @property
    def metric_group(self) -> UserMetricGroup:
        """Return the enumerator's own metrics; those of an earlier enumerator are removed.

        `unassignedSplits` is Flink's name of a gauge for the number of unassigned splits. Gauges are read on the main
        thread. Source: Flink SplitEnumeratorMetricGroup.
        """
        ...

    @property
    def registered_readers(self) -> Sequence[int]:
        """Return the subtask indexes of the registered readers, ascending."""
        ...

    def assign_splits(self, subtask_index: int, splits: Sequence[SourceSplit]) -> None:
        """Assign splits to a registered reader. AssertionError for any other."""
        ...

    def signal_no_more_splits(self, subtask_index: int) -> None:
        """Tell a registered reader that no more splits will follow: it may end after its current ones."""
        ...

    def send_source_event(self, subtask_index: int, payload: bytes) -> None:
        """Send an event of the connector to a registered reader."""
        ...

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        """Set whether readers work off a backlog. A new enumerator begins without one.

        During a backlog, `execution.checkpointing.interval-during-backlog` applies.
        """
        ...

    def call_async(
        self,
        work: Callable[[], T],
        handler: Callable[[T | None, BaseException | None], None],
        *,
        delay_ms: float = 0,
    ) -> None:
        """Run `work`, which may block, on another thread after `delay_ms`, then `handler` with its result or error.

        The handler runs on the main thread, and not once the enumerator is closed. An error that it raises fails the
        job.
        """
        ...


class SplitEnumerator(ABC):
    """Finds and assigns splits; one per source and, because recovery makes a new one, per restart of the whole job."""

    def restore(self, state: bytes) -> None:
        """Begin with the state that `snapshot_state` returned; called before `start`."""
        raise NotImplementedError

    @abstractmethod
    def start(self) -> None:
        """Start looking for splits. No reader is registered yet."""

    @abstractmethod
    def handle_split_request(self, subtask_index: int, host: str) -> None:
        """Handle the request of an idle reader; `host` is its host, empty if unknown."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[SourceSplit], subtask_index: int) -> None:
        """Take back splits that were assigned to the reader, and are not in its restored state."""

    def add_reader(self, subtask_index: int) -> None:  # noqa: B027
        """Handle the registration of a reader, for the first time or again."""

    def handle_source_event(self, subtask_index: int, payload: bytes) -> None:
        """Handle an event of the connector from a reader."""
        raise AssertionError(f"{type(self).__name__} has nothing to say to its readers")

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> bytes:
        """Return the state for `restore`: everything except the assigned splits."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027
        """Handle a published checkpoint. The call may be lost."""

    def close(self) -> None:  # noqa: B027
        """Release resources when the job has ended, or another enumerator follows. Idempotent."""


EnumeratorFactory = Callable[[SplitEnumeratorContext, bytes], SplitEnumerator]
"""Function that makes an enumerator from the payload that the source gave."""


class EnumeratorPayload(msgspec.Struct, frozen=True, array_like=True):
    """Configuration of a source's coordinator: the enumerator's entry point and its serialized arguments."""

    enumerator: str
    content: bytes


class SplitSource(Source):
    """Base of sources whose splits an enumerator assigns."""

    @abstractmethod
    def enumerator(self) -> tuple[str, bytes]:
        """Return the name of the enumerator's factory among the entry points of SPLIT_ENUMERATORS, and its payload."""

    def coordinator(self) -> tuple[str, bytes]:
        return SPLIT_COORDINATOR, msgspec.msgpack.encode(EnumeratorPayload(*self.enumerator()))


class AddSplits(msgspec.Struct, frozen=True, array_like=True, tag="add"):
    """Coordinator → reader: splits that are assigned to it."""

    splits: tuple[SourceSplit, ...]


class NoMoreSplits(msgspec.Struct, frozen=True, array_like=True, tag="no-more"):
    """Coordinator → reader: end after the current splits."""


class RegisterReader(msgspec.Struct, frozen=True, array_like=True, tag="register"):
    """Reader → coordinator: the reader opens; its first event. Source: Flink ReaderRegistrationEvent."""


class RequestSplit(msgspec.Struct, frozen=True, array_like=True, tag="request"):
    """Reader → coordinator: the reader has nothing to do."""


class ConnectorEvent(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """Either direction: an event of the connector. Source: Flink SourceEventWrapper."""

    payload: bytes


EventToReader = AddSplits | NoMoreSplits | ConnectorEvent
EventToCoordinator = RegisterReader | RequestSplit | ConnectorEvent

_TO_READER: Final = msgspec.msgpack.Decoder[Any](EventToReader)
_TO_COORDINATOR: Final = msgspec.msgpack.Decoder[Any](EventToCoordinator)


def event_bytes(event: EventToReader | EventToCoordinator) -> bytes:
    """Return the event's bytes."""
    return msgspec.msgpack.encode(event)


def event_to_reader(payload: bytes) -> EventToReader:
    """Decode an event of a coordinator; msgspec.ValidationError for anything else."""
    return _TO_READER.decode(payload)


def event_to_coordinator(payload: bytes) -> EventToCoordinator:
    """Decode an event of a reader; msgspec.ValidationError for anything else."""
    return _TO_COORDINATOR.decode(payload)


class SplitReader(SourceReader):
    """Handles the coordinator's events; subclasses keep the splits and read them.

    Assigned and restored splits are values of the same type; `snapshot_state` returns `encode_split` of each split that
    has not ended.
    """

    def __init__(self, context: SubtaskContext) -> None:
        self.context = context
        self.has_no_more_splits = False
        """True once the enumerator has no more splits for this reader."""

    def start(self) -> None:
        """Register the reader at the enumerator; overriding methods call this one first."""
        self.context.send_event(event_bytes(RegisterReader()))

    @abstractmethod
    def add_splits(self, splits: Sequence[SourceSplit]) -> None:
        """Read these splits too, each from its position."""

    def handle_source_event(self, payload: bytes) -> None:
        """Handle an event of the connector from the enumerator."""
        raise AssertionError(f"{type(self).__name__} expects no events")

    def request_split(self) -> None:
        """Request another split; each request is answered by one AddSplits or one NoMoreSplits, after any time."""
        self.context.send_event(event_bytes(RequestSplit()))

    def send_source_event(self, payload: bytes) -> None:
        """Send an event of the connector to the enumerator."""
        self.context.send_event(event_bytes(ConnectorEvent(payload)))

    def handle_event(self, payload: bytes) -> None:
        match event_to_reader(payload):
            case AddSplits(splits):
                self.add_splits(splits)
            case NoMoreSplits():
                self.has_no_more_splits = True
            case ConnectorEvent(content):
                self.handle_source_event(content)
        self.context.wake()

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        self.add_splits([decode_split(state) for state in splits])

"""Source: a description that is shipped, the reader that each subtask makes of it, and the enumerator of its splits.

A reader is used by one thread, the task's mailbox. It never blocks: where it has to wait it returns
NOTHING_AVAILABLE and has `context.wake` called, by any thread, once there are records again.

A SplitEnumerator finds splits and assigns them to readers, in the JobMaster; SplitReader is the base of such readers:

    source ── enumerator() ──► (name, payload) ── entry point ──► SplitEnumerator ── assign_splits ──► readers
                                                                        ▲───── request ◄────────────────┘

An enumerator is made from its name and from bytes, so that nothing of a user is loaded in the JobMaster. All its
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
    """Kinds of sources: those that end by themselves, and those that do not."""

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
        """Get ready: open files or connections, ask the coordinator for work."""

    @abstractmethod
    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit at most one batch and return the reader's status; never block."""

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        """Return the splits that this subtask has, each with its position right after the emitted records.

        Each is an item of its own: after a restart with another parallelism items go to other subtasks.
        NotImplementedError makes a job that takes checkpoints fail as it starts: such a source cannot be replayed.
        """
        raise NotImplementedError

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        """Begin with these splits of a checkpoint (maybe none) instead of afresh; called before `start`."""
        raise NotImplementedError

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027
        """A checkpoint is published: records before it will not be asked for again. The call may be lost."""

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        """Read nothing more of some splits for a while, and go on with others; ids are those of `output.emit`.

        Asked by watermark alignment of readers that have several splits. A reader whose splits are all paused answers
        NOTHING_AVAILABLE.
        """
        raise NotImplementedError

    def pending_record_count(self) -> int | None:
        """Return how many records wait in the source's system for this subtask; None where that is not known.

        Called by any thread: for metrics alone, so that a figure of the last second is good enough.
        """
        return None

    def pending_byte_count(self) -> int | None:
        """Return how many bytes of the splits of this subtask are still to be read; None where that is not known.

        Called as `pending_record_count` is.
        """
        return None

    def unreadable_record_count(self) -> int:
        """Return how many records were left out because they could not be read. Called as `pending_record_count` is."""
        return 0

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
        """Return whether it ends by itself."""

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


class SourceSplit(msgspec.Struct, frozen=True, array_like=True):
    """A part of a source's input, with the position in it. `content` is the connector's own encoding.

    `split_id` is unique within the source and stays the same while the position moves.
    """

    split_id: str
    content: bytes


_SPLIT: Final = msgspec.msgpack.Decoder(SourceSplit)


def encode_split(split: SourceSplit) -> bytes:
    """Return a split, with its position, as an item of a reader's or an enumerator's state."""
    return msgspec.msgpack.encode(split)


def decode_split(state: bytes) -> SourceSplit:
    """Decode the bytes of `encode_split`; msgspec.ValidationError for anything else."""
    return _SPLIT.decode(state)


class SplitEnumeratorContext(Protocol):
    """Context of an enumerator, with the calls that it may make; on the main thread only."""

    @property
    def parallelism(self) -> int:
        """Return the number of readers that the source has once all of them run."""
        ...

    @property
    def settings(self) -> Settings:
        """Return the job's settings over the cluster's."""
        ...

    @property
    def metric_group(self) -> UserMetricGroup:
        """Return the enumerator's own metrics; those of an earlier enumerator are gone.

        `unassignedSplits` is Flink's name of a gauge that tells how many splits nobody has. Gauges are read on the main
        thread. Source: Flink SplitEnumeratorMetricGroup.
        """
        ...

    @property
    def registered_readers(self) -> Sequence[int]:
        """Subtask indexes of the readers that run now, ascending."""
        ...

    def assign_splits(self, subtask_index: int, splits: Sequence[SourceSplit]) -> None:
        """Hand splits to a registered reader, whose they are from now on. AssertionError for any other."""
        ...

    def signal_no_more_splits(self, subtask_index: int) -> None:
        """Tell a registered reader that none will follow: it may end when it has read those that it has."""
        ...

    def send_source_event(self, subtask_index: int, payload: bytes) -> None:
        """Say something of the connector's own to a registered reader."""
        ...

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        """Say whether readers work off a backlog. A new enumerator begins without one.

        Meanwhile `execution.checkpointing.interval-during-backlog` counts.
        """
        ...

    def call_async(
        self,
        work: Callable[[], T],
        handler: Callable[[T | None, BaseException | None], None],
        *,
        delay_ms: float = 0,
    ) -> None:
        """Run `work`, which may block, on another thread after `delay_ms`, and `handler` with its result or error.

        The handler runs on the main thread, and not at all once the enumerator is closed. What it raises fails the job.
        """
        ...


class SplitEnumerator(ABC):
    """One per source and, as recovery makes a new one, per restart of the whole job."""

    def restore(self, state: bytes) -> None:
        """Begin with the state that `snapshot_state` returned, instead of afresh; called before `start`."""
        raise NotImplementedError

    @abstractmethod
    def start(self) -> None:
        """Begin to look for splits. No reader is registered yet."""

    @abstractmethod
    def handle_split_request(self, subtask_index: int, host: str) -> None:
        """A registered reader has nothing to do; `host` is where it runs, empty where that is unknown."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[SourceSplit], subtask_index: int) -> None:
        """Take back splits that the reader had been given, and that its restored state does not hold."""

    def add_reader(self, subtask_index: int) -> None:  # noqa: B027
        """A reader is registered, for the first time or again."""

    def handle_source_event(self, subtask_index: int, payload: bytes) -> None:
        """A reader says something of the connector's own."""
        raise AssertionError(f"{type(self).__name__} has nothing to say to its readers")

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> bytes:
        """Return the state for `restore`: everything but the splits that were assigned."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027
        """A checkpoint is published. May be lost."""

    def close(self) -> None:  # noqa: B027
        """The job has ended, or another enumerator follows. Idempotent."""


EnumeratorFactory = Callable[[SplitEnumeratorContext, bytes], SplitEnumerator]
"""Makes an enumerator of the payload that the source gave."""


class EnumeratorPayload(msgspec.Struct, frozen=True, array_like=True):
    """Configuration of a source's coordinator: the enumerator's entry point and its serialized arguments."""

    enumerator: str
    content: bytes


class SplitSource(Source):
    """Base of sources whose splits an enumerator shares out."""

    @abstractmethod
    def enumerator(self) -> tuple[str, bytes]:
        """Name of the enumerator's factory among the entry points of SPLIT_ENUMERATORS, and its payload."""

    def coordinator(self) -> tuple[str, bytes]:
        return SPLIT_COORDINATOR, msgspec.msgpack.encode(EnumeratorPayload(*self.enumerator()))


class AddSplits(msgspec.Struct, frozen=True, array_like=True, tag="add"):
    """Coordinator → reader: these are yours."""

    splits: tuple[SourceSplit, ...]


class NoMoreSplits(msgspec.Struct, frozen=True, array_like=True, tag="no-more"):
    """Coordinator → reader: end when you have read your splits."""


class RegisterReader(msgspec.Struct, frozen=True, array_like=True, tag="register"):
    """Reader → coordinator: I am opening; the first thing it says. Source: Flink ReaderRegistrationEvent."""


class RequestSplit(msgspec.Struct, frozen=True, array_like=True, tag="request"):
    """Reader → coordinator: I have nothing to do."""


class ConnectorEvent(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """Either way: the connector's own words. Source: Flink SourceEventWrapper."""

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

    A split that was given and one that was restored are the same kind of value; `snapshot_state` returns, for each
    split that has not ended, `encode_split` of it.
    """

    def __init__(self, context: SubtaskContext) -> None:
        self.context = context
        self.has_no_more_splits = False
        """True once the enumerator has nothing left for this reader."""

    def start(self) -> None:
        """Tell the enumerator that there is a reader; overriding methods call this one first."""
        self.context.send_event(event_bytes(RegisterReader()))

    @abstractmethod
    def add_splits(self, splits: Sequence[SourceSplit]) -> None:
        """Read these too, each from its position."""

    def handle_source_event(self, payload: bytes) -> None:
        """The enumerator says something of the connector's own."""
        raise AssertionError(f"{type(self).__name__} expects no events")

    def request_split(self) -> None:
        """Ask for another split; each answer is one AddSplits or one NoMoreSplits, sooner or later."""
        self.context.send_event(event_bytes(RequestSplit()))

    def send_source_event(self, payload: bytes) -> None:
        """Say something of the connector's own to the enumerator."""
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

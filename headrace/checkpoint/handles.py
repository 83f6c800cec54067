"""State handles: references to the files and small contents of a subtask's part of a checkpoint, by operator.

A chunk is one table of rows, readable by any Arrow reader if Arrow has types for them: `headrace.state.backend` names
the columns of each table. Handles are frozen values, sent over the control plane and stored in the checkpoint's
metadata. Source: Flink TaskStateSnapshot, OperatorSubtaskState, KeyedStateHandle, StreamStateHandle.

Chunks of in-flight data hold the records that one subtask had of one channel: as its receiver (queued there) or as its
sender (overtaken there). After rescaling, the chunks of senders are distributed among the new senders, which send each
row to its current receiver. The chunks of receivers go to the receivers that may own their rows:

    rows sent by key (HASH)             the subtasks whose key groups overlap those of the old one; each keeps its own
    others (REBALANCE, SHUFFLE)         in turn: any subtask may process any row
    others (GLOBAL)                     in turn as well: only subtask 0 had rows, and is the first in turn

On all other edges barriers do not overtake records, so that there is no in-flight data to store.
Source: Flink SubtaskStateMapper, StreamPartitioner.getDownstreamSubtaskStateMapper.
"""

import enum
from collections.abc import Iterable, Iterator
from typing import Final, Self

import msgspec

from headrace.checkpoint.errors import MetadataError
from headrace.core.ids import ExecutionAttemptId, OperatorId
from headrace.core.key_groups import key_group_range


class StateFile(msgspec.Struct, frozen=True):
    """An immutable piece of state: the file at `uri`, or `content` itself if that is small (then `uri` is empty).

    `digest`: BLAKE2b-128 of the content, checked before the content is used.
    """

    uri: str
    content: bytes
    size_bytes: int
    digest: bytes
    is_shared: bool = False
    """True if the file is among those to which several checkpoints may refer."""


NO_FILE: Final = StateFile("", b"", 0, b"")
"""File of chunks that consist only of attributes."""


class StateTable(enum.Enum):
    """Kinds of rows in a chunk."""

    KEYED = "keyed"
    TIMERS = "timers"
    COLUMNAR = "columnar"
    """Keyed state of a vectorised operator, in columns of its own."""
    NATIVE = "native"
    """Files of a state backend in its own format; their rows cannot be read elsewhere."""
    OPERATOR = "operator_state"
    SPLITS = "source_splits"
    ITEMS = "items"
    """State of a connector in its own encoding, redistributed item by item, as splits are."""
    WATERMARKS = "watermarks"
    CHANNELS = "channel_frames"


class OperatorStateMode(enum.Enum):
    """Modes of redistributing items when the parallelism changes. Source: Flink OperatorStateHandle.Mode."""

    SPLIT = "SPLIT_DISTRIBUTE"
    UNION = "UNION"
    BROADCAST = "BROADCAST"


ITEM_COUNT: Final = "item_count"
"""Attribute of OPERATOR and SPLITS chunks: the number of items, the units of redistribution, as rows."""
ITEM_MODE: Final = "mode"
"""Attribute of OPERATOR, SPLITS and ITEMS chunks: the name of an OperatorStateMode; absent: SPLIT."""
ITEM_RANGE: Final = "item_range"
"""Attribute of assigned chunks: `start:stop`, the subtask's own items; absent: all."""
EXPIRED_ROWS: Final = "expired_rows"
"""Attribute of KEYED chunks of states with a time to live: the number of expired rows that are not cleaned up yet.
Absent: none, or not counted.
"""
EXPIRED_UNTIL: Final = "expired_until_ms"
"""Attribute of KEYED chunks of states with a time to live: rows last accessed at this time (epoch ms) or before had
expired when they were stored. Absent: not known.
"""
WATERMARK: Final = "watermark"
"""Attribute of WATERMARKS chunks, which have no rows: the operator's event time, epoch ms."""
OUTPUT_WATERMARK: Final = "output_watermark"
"""Attribute of WATERMARKS chunks: the last watermark that the operator has sent, epoch ms."""


class StateChunk(msgspec.Struct, frozen=True):
    """One table of one state of one operator's subtask, or part of it.

    `key_groups`: first and last key group that rows belong to (keyed tables), or None. `attributes`: facts that a
    reader of the rows needs (kind, declared type, mode, edge …); the writer of the table defines the keys.
    """

    table: StateTable
    name: str
    row_count: int
    file: StateFile
    key_groups: tuple[int, int] | None = None
    attributes: dict[str, str] = {}


def row_count_of(chunks: Iterable[StateChunk]) -> int | None:
    """Return the number of rows of chunks, or None if some are a backend's own files, whose rows are not counted."""
    given = list(chunks)
    if any(chunk.table is StateTable.NATIVE for chunk in given):
        return None
    return sum(chunk.row_count for chunk in given)


class Committable(msgspec.Struct, frozen=True):
    """A prepared effect on an external system that is not visible yet. `content` is the sink's own encoding.

    `key`: globally unique (a UUID's hex), so that duplicates count once.
    """

    key: str
    content: bytes


class OperatorSubtaskState(msgspec.Struct, frozen=True):
    """State of one operator of one subtask in a checkpoint.

    `committables`: all that are not known to be committed or discarded.
    """

    chunks: tuple[StateChunk, ...] = ()
    committables: tuple[Committable, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all chunks, including those of older checkpoints."""
        return sum(chunk.file.size_bytes for chunk in self.chunks)


class TaskStateSnapshot(msgspec.Struct, frozen=True):
    """One subtask's part of a checkpoint. `is_finished`: its operators had finished, and no state will follow."""

    operators: dict[OperatorId, OperatorSubtaskState] = {}
    is_finished: bool = False

    def files(self) -> Iterator[StateFile]:
        """Yield every file to which it refers."""
        for state in self.operators.values():
            for chunk in state.chunks:
                yield chunk.file


class CheckpointMetrics(msgspec.Struct, frozen=True):
    """Measurements of a subtask's part in a checkpoint. Durations in ms.

    `start_delay_ms`: from the trigger to the first barrier. `alignment_ms`: from the first to the last barrier.
    `processed_bytes`: size of the buffers that were processed meanwhile. `in_flight_bytes`: size of those that were
    stored instead.
    Source: Flink CheckpointMetrics.
    """

    start_delay_ms: int = 0
    alignment_ms: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    written_bytes: int = 0
    in_flight_bytes: int = 0
    is_unaligned: bool = False
    processed_bytes: int = 0


class SubtaskPhase(enum.Enum):
    """Phases of a subtask's part in a checkpoint."""

    NOT_SEEN = "no barrier of it has come"
    ALIGNING = "it waits for barriers"
    WRITING = "its state is being written"
    ANSWERED = "its part is done, or given up"


class CheckpointProgress(msgspec.Struct, frozen=True):
    """Progress of a subtask with a checkpoint.

    `missing`: the producers of up to eight channels on which its barrier has not arrived. `elapsed_ms`: time since the
    first barrier arrived, or since the state was frozen. `queued_bytes`: bytes that wait in its inputs. `occupation`:
    whether it is now BUSY, IDLE or BACKPRESSURED.
    """

    phase: SubtaskPhase
    elapsed_ms: int = 0
    missing: tuple[ExecutionAttemptId, ...] = ()
    missing_count: int = 0
    channel_count: int = 0
    queued_bytes: int = 0
    occupation: str = ""


class SubtaskRestore(msgspec.Struct, frozen=True):
    """State from which one subtask starts: the restored checkpoint's id and, by operator, its chunks.

    A chunk may hold more key groups or items than the subtask's own: on restore it takes only its own.
    """

    checkpoint_id: int
    operators: dict[OperatorId, OperatorSubtaskState]
    is_finished: bool = False

    def state_of(self, operator_id: OperatorId) -> OperatorSubtaskState:
        """Return the operator's state; an empty one if there is none."""
        return self.operators.get(operator_id, _EMPTY)


_EMPTY = OperatorSubtaskState()


class ChannelRole(enum.Enum):
    """End of a channel to which a chunk belongs: the receiver (INPUT) or the sender (OUTPUT)."""

    INPUT = "input"
    OUTPUT = "output"


class ReceiverMapping(enum.Enum):
    """Modes of distributing the in-flight data of former receivers among the new ones."""

    RANGE = "range"
    ROUND_ROBIN = "round robin"


class ChannelPart(msgspec.Struct, frozen=True):
    """The attributes of a chunk of StateTable.CHANNELS.

    `edge`: the id of the channel's data set, in hex, which is the same in every attempt and after every restart. `part`
    numbers the chunks of one channel, in the order in which their rows are read.
    """

    role: ChannelRole
    edge: str
    sender: int
    receiver: int
    sender_count: int
    receiver_count: int
    max_parallelism: int
    """Max parallelism of the receivers."""
    mapping: ReceiverMapping
    part: int = 0

    @property
    def place(self) -> tuple[str, str, int, int, int]:
        """Return the chunk's key, unique in a snapshot, by which chunks are ordered."""
        return (self.role.value, self.edge, self.sender, self.receiver, self.part)

    @classmethod
    def of(cls, chunk: StateChunk) -> Self:
        """Read the attributes of a chunk. Raises MetadataError."""
        try:
            return msgspec.convert(chunk.attributes, cls, strict=False)
        except msgspec.ValidationError as error:
            raise MetadataError(
                f"the snapshot has in-flight data that cannot be assigned to a channel: {error}"
            ) from error

    def attributes(self) -> dict[str, str]:
        """Return the attributes of the chunk."""
        plain = msgspec.to_builtins(self)
        return {key: str(value) for key, value in plain.items()}

    def concerns(self, index: int, parallelism: int) -> bool:
        """Return whether it is for today's subtask `index` of `parallelism`: INPUT by receiver, OUTPUT by sender."""
        if self.role is ChannelRole.OUTPUT:
            return self.sender % parallelism == index
        if self.receiver_count == parallelism:
            return self.receiver == index
        match self.mapping:
            case ReceiverMapping.RANGE:
                old = key_group_range(self.receiver, self.receiver_count, self.max_parallelism)
                own = key_group_range(index, parallelism, self.max_parallelism)
                return max(old.start, own.start) < min(old.stop, own.stop)
            case ReceiverMapping.ROUND_ROBIN:
                return self.receiver % parallelism == index


def concerns_subtask(chunk: StateChunk, index: int, parallelism: int) -> bool:
    """Return whether a chunk is in-flight data for the current subtask `index` of its operator. MetadataError."""
    if chunk.table is not StateTable.CHANNELS:
        return False
    return ChannelPart.of(chunk).concerns(index, parallelism)

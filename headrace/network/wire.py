"""Every frame of the data plane: id, layout, meaning; stated once and used both to write and to read.

    prefix (16 bytes)   magic u32 · version u8 · id u8 · flags u16 · header length u32 · body length u32
    header              the fields of the frame in the order of its class, big-endian, then its markers if it has any
    body                opaque bytes: an Arrow message, a schema, UTF-8 text

Channels are numbered by the consumer, per connection. A connection carries both directions: whether a channel number
is the sender's or the receiver's own follows from the frame. Flags are zero in version 1.
Frames 30 to 35, with which results are pushed to a shuffle service, stand in push_wire.py.
Source: Flink NettyMessage, with the changes that batches, versions and authentication ask for.
"""

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Final, Self, TypeVar

import msgspec

from headrace.core.elements import PlacedMarker
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    OperatorId,
    ResultPartitionId,
)
from headrace.network.errors import ProtocolError, UnknownFrameError
from headrace.network.markers import decode_markers, encode_markers

MAGIC: Final = 0x48445257  # "HDRW"
VERSION: Final = 1
PREFIX: Final = struct.Struct("!IBBHII")
HEADER_BYTES_MAX: Final = 64 * 1024
TEXT_BYTES_MAX: Final = 64 * 1024
NO_CHANNEL: Final = 0xFFFFFFFF
"""Stands for the whole connection in an Error frame."""

Body = Any
"""A bytes-like object (bytes, memoryview or pyarrow.Buffer) or, to be sent, BodyParts."""

F = TypeVar("F", bound="Frame")

_FRAMES: dict[int, "type[Frame]"] = {}


class BodyParts(msgspec.Struct, frozen=True, gc=False):
    """A body of `size_bytes` in several bytes-like pieces, so that they need not be copied into one."""

    parts: tuple[Any, ...]
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Base of all frames. The last fields may be `markers` and `body`, in this order."""

    FRAME_ID: ClassVar[int]
    SINCE_VERSION: ClassVar[int]
    LAYOUT: ClassVar[struct.Struct]
    HAS_MARKERS: ClassVar[bool] = False
    HAS_BODY: ClassVar[bool] = False

    def header_values(self) -> tuple[Any, ...]:
        """Values of `LAYOUT`, in order."""
        raise NotImplementedError

    @classmethod
    def from_header(
        cls, values: tuple[Any, ...], markers: tuple[PlacedMarker, ...], body: Body
    ) -> Self:
        """Rebuild the frame from the values of `LAYOUT`."""
        raise NotImplementedError


def frame(*, id: int, layout: str, since: int = 1) -> Callable[[type[F]], type[F]]:
    """Register a frame class: `layout` lists its header fields, except `markers` and `body`, for `struct`."""

    def decorate(cls: type[F]) -> type[F]:
        assert id not in _FRAMES, f"frame id {id} is declared twice"
        names = list(cls.__struct_fields__)
        cls.FRAME_ID, cls.SINCE_VERSION, cls.LAYOUT = id, since, struct.Struct(layout)
        cls.HAS_MARKERS, cls.HAS_BODY = "markers" in names, "body" in names
        if "header_values" not in cls.__dict__:
            _add_plain_codec(cls, [name for name in names if name not in ("markers", "body")])
        _FRAMES[id] = cls
        return cls

    return decorate


def _add_plain_codec(cls: type[Frame], names: list[str]) -> None:
    """Fields are struct values as they are."""
    fields = attrgetter(*names) if len(names) > 1 else None

    def header_values(self: Frame) -> tuple[Any, ...]:
        return fields(self) if fields is not None else tuple(getattr(self, name) for name in names)

    def from_header(
        cls: type[Any], values: tuple[Any, ...], markers: tuple[PlacedMarker, ...], body: Body
    ) -> Any:
        if cls.HAS_MARKERS:
            return cls(*values, markers, body)
        return cls(*values, body) if cls.HAS_BODY else cls(*values)

    cls.header_values = header_values  # type: ignore[method-assign]
    cls.from_header = classmethod(from_header)  # type: ignore[method-assign,assignment]


def declared_frames() -> list[type[Frame]]:
    """Every frame class, ordered by id."""
    return [_FRAMES[key] for key in sorted(_FRAMES)]


def encode(message: Frame) -> list[Body]:
    """Return the frame as buffers to be written one after the other: prefix with header, then the body if any."""
    cls = type(message)
    header = cls.LAYOUT.pack(*message.header_values())
    if cls.HAS_MARKERS:
        header += encode_markers(message.markers)  # type: ignore[attr-defined]
    if not cls.HAS_BODY:
        return [PREFIX.pack(MAGIC, VERSION, cls.FRAME_ID, 0, len(header), 0) + header]
    body = message.body  # type: ignore[attr-defined]
    prefix = PREFIX.pack(MAGIC, VERSION, cls.FRAME_ID, 0, len(header), len(body))
    if isinstance(body, BodyParts):
        return [prefix + header, *body.parts]
    return [prefix + header, body] if len(body) else [prefix + header]


def decode_prefix(data: Any, offset: int, peer: str) -> tuple[type[Frame], int, int]:
    """Return frame class, header length and body length; UnknownFrameError where they cannot be ours."""
    magic, version, frame_id, _, header_length, body_length = PREFIX.unpack_from(data, offset)
    if magic != MAGIC:
        raise UnknownFrameError(peer, f"bytes that are no frame (magic {magic:#010x})")
    if version != VERSION:
        raise UnknownFrameError(peer, f"a frame of version {version}, this side speaks {VERSION}")
    cls = _FRAMES.get(frame_id)
    if cls is None:
        raise UnknownFrameError(peer, f"a frame with the unknown id {frame_id}")
    if header_length > HEADER_BYTES_MAX or header_length < cls.LAYOUT.size:
        raise ProtocolError(peer, f"a {cls.__name__} frame with a header of {header_length} bytes")
    if body_length and not cls.HAS_BODY:
        raise ProtocolError(peer, f"a {cls.__name__} frame with a body of {body_length} bytes")
    return cls, header_length, body_length


def decode_header(cls: type[F], data: Any, offset: int, length: int, body: Body, peer: str) -> F:
    """Rebuild a frame from its header at `offset` and its body."""
    values = cls.LAYOUT.unpack_from(data, offset)
    size = cls.LAYOUT.size
    markers: tuple[PlacedMarker, ...] = ()
    if cls.HAS_MARKERS:
        markers = decode_markers(data, offset + size, length - size, peer)
    elif length != size:
        raise ProtocolError(peer, f"a {cls.__name__} frame with {length - size} bytes too many")
    try:
        return cls.from_header(values, markers, body)
    except (ValueError, UnicodeDecodeError) as error:
        raise ProtocolError(
            peer, f"a {cls.__name__} frame with impossible values: {error}"
        ) from error


def attach_body(header: Frame, body: Body) -> None:
    """Give a frame that was decoded without its body, and not yet handed on, the body that came later."""
    msgspec.structs.force_setattr(header, "body", body)


# --- Opening a connection -------------------------------------------------------------------------


@frame(id=1, layout="!BBI32s")
class Hello(Frame, frozen=True, gc=False):
    """Both ways, first: versions and features spoken, and a challenge. `body` is the sender's name. Since version 1."""

    version_min: int  # u8
    version_max: int  # u8
    features: int  # u32, bit set; 0 in version 1
    challenge: bytes  # 32 bytes
    body: Body  # UTF-8, the resource id of a task manager or "ingest"


@frame(id=2, layout="!32s")
class Proof(Frame, frozen=True, gc=False):
    """Both ways, second: HMAC-SHA256 under the cluster's secret over role and both hellos. Since version 1."""

    digest: bytes  # 32 bytes


@frame(id=3, layout="!")
class Close(Frame, frozen=True, gc=False):
    """Both ways: the sender leaves on purpose; what is unfinished is over. Since version 1."""


@frame(id=4, layout="!")
class KeepAlive(Frame, frozen=True, gc=False):
    """Both ways, where nothing else was sent for a while: the sender lives. Not answered. Since version 1."""


# --- Reading a partition --------------------------------------------------------------------------


@frame(id=10, layout="!I16sI16s16sIIIIII")
class PartitionRequest(Frame, frozen=True, gc=False):
    """Consumer → producer: send this subpartition on `channel`. Since version 1. Source: Flink NettyMessage."""

    channel: int  # u32, chosen by the consumer
    partition_id: ResultPartitionId  # 60 bytes with the producer's attempt
    subpartition_index: int  # u32
    initial_credit: int  # segments, u32
    credit_max: int  # segments, u32: what the channel can hold at most
    segment_size: int  # bytes, u32: one credit pays for so many

    def header_values(self) -> tuple[Any, ...]:
        """See Frame."""
        return (
            self.channel,
            *partition_values(self.partition_id),
            self.subpartition_index,
            self.initial_credit,
            self.credit_max,
            self.segment_size,
        )

    @classmethod
    def from_header(
        cls, values: tuple[Any, ...], markers: tuple[PlacedMarker, ...], body: Body
    ) -> Self:
        """See Frame."""
        return cls(values[0], partition_of(values[1:7]), *values[7:])


@frame(id=11, layout="!IQ")
class Schema(Frame, frozen=True, gc=False):
    """Producer → consumer: the Arrow schema of the batches that name `fingerprint` from here on. Since version 1."""

    channel: int  # u32
    fingerprint: int  # u64
    body: Body  # Arrow schema message


@frame(id=12, layout="!IQIIIQ")
class Data(Frame, frozen=True, gc=False):
    """Producer → consumer: one sealed batch and the markers between its rows. Since version 1.

    A batch without rows has no body: its markers are all it carries. Costs `credit_count` credits.
    """

    channel: int  # u32
    sequence: int  # u64, counts data and events of the channel from 0
    credit_count: int  # segments this batch occupies, u32, > 0
    backlog: int  # segments that wait behind it, u32
    row_count: int  # u32
    fingerprint: int  # u64, 0 without rows
    markers: tuple[PlacedMarker, ...]
    body: Body  # Arrow record batch message


@frame(id=13, layout="!IQIBBq")
class Event(Frame, frozen=True, gc=False):
    """Producer → consumer: an event, free of credit, in order with the data unless it has priority. Since version 1.

    One with priority has overtaken what waited on its own channel before it was numbered. After one that blocks
    upstream nothing but priority events comes until ResumeConsumption.
    """

    channel: int  # u32
    sequence: int  # u64
    backlog: int  # segments, u32; 0 where the event blocks upstream
    kind: int  # u8, see `batches.encode_event`
    traits: int  # u8, bit set, see EventTrait
    value: int  # i64


class EventTrait:
    """Bits of `Event.traits`. Source: Flink Buffer.DataType."""

    PRIORITY: Final = 1
    BLOCKS_UPSTREAM: Final = 2
    ALL: Final = PRIORITY | BLOCKS_UPSTREAM


@frame(id=14, layout="!II")
class AddCredit(Frame, frozen=True, gc=False):
    """Consumer → producer: `credit_count` more segments may be sent. Since version 1."""

    channel: int  # u32
    credit_count: int  # segments, u32, > 0


@frame(id=15, layout="!II")
class Backlog(Frame, frozen=True, gc=False):
    """Producer → consumer: `backlog` segments wait and the credit in hand does not suffice. Since version 1."""

    channel: int  # u32
    backlog: int  # segments, u32, > 0


@frame(id=16, layout="!I")
class Cancel(Frame, frozen=True, gc=False):
    """Consumer → producer: the channel is closed, send nothing more. Since version 1."""

    channel: int  # u32


@frame(id=17, layout="!IH")
class Error(Frame, frozen=True, gc=False):
    """Both ways: a channel, or with NO_CHANNEL the connection, failed. Text, never pickled. Since version 1."""

    channel: int  # u32
    code: int  # u16, see ErrorCode
    body: Body  # UTF-8 text


@frame(id=18, layout="!I")
class ResumeConsumption(Frame, frozen=True, gc=False):
    """Consumer → producer: go on after the event that blocked this channel. Since version 1. Source: Flink."""

    channel: int  # u32


@frame(id=19, layout="!I")
class AckAllUserRecordsProcessed(Frame, frozen=True, gc=False):
    """Consumer → producer: all rows before EndOfData were processed. Since version 1. Source: Flink."""

    channel: int  # u32


@frame(id=24, layout="!IQ")
class NewBufferSize(Frame, frozen=True, gc=False):
    """Consumer → producer: how many bytes the channel should hold between the two tasks. Since version 1.

    The producer seals its batches accordingly; credit stays as it is. Source: Flink NettyMessage, whose size is that
    of one buffer.
    """

    channel: int  # u32
    in_flight_bytes: int  # u64, > 0


@frame(id=25, layout="!I")
class TaskEvent(Frame, frozen=True, gc=False):
    """Consumer → producer: an event against the stream, for the task that produces it. Since version 1."""

    channel: int  # u32
    body: Body  # opaque here, at most TEXT_BYTES_MAX


@frame(id=26, layout="!III")
class SegmentId(Frame, frozen=True, gc=False):
    """Consumer → producer: go on with this segment of a hybrid partition. Since version 1. Source: Flink."""

    channel: int  # u32
    subpartition_index: int  # u32
    segment_id: int  # u32, > 0


ChannelMessage = (
    AddCredit
    | Cancel
    | ResumeConsumption
    | AckAllUserRecordsProcessed
    | NewBufferSize
    | TaskEvent
    | SegmentId
)
"""What a consumer says of a channel after it has requested it."""


class ErrorCode:
    """Codes of Error frames."""

    PARTITION_NOT_FOUND: Final = 1
    PRODUCER_FAILED: Final = 2
    RECORD_TOO_LARGE: Final = 3
    PROTOCOL: Final = 4
    INGEST_REFUSED: Final = 5
    TASK_EVENT_REFUSED: Final = 6
    PUSH_REFUSED: Final = 7


# --- Pushing a DataFrame into a source ------------------------------------------------------------


@frame(id=20, layout="!I16s16sIII")
class IngestOpen(Frame, frozen=True, gc=False):
    """Pusher → source: a partition of the DataFrame, by the given attempt of its Spark task. Since version 1."""

    channel: int  # u32
    job_id: JobId  # 16 bytes
    operator_id: OperatorId  # 16 bytes
    subtask_index: int  # u32
    partition: int  # u32
    spark_attempt: int  # u32

    def header_values(self) -> tuple[Any, ...]:
        """See Frame."""
        target = (self.job_id.value, self.operator_id.value, self.subtask_index)
        return (self.channel, *target, self.partition, self.spark_attempt)

    @classmethod
    def from_header(
        cls, values: tuple[Any, ...], markers: tuple[PlacedMarker, ...], body: Body
    ) -> Self:
        """See Frame."""
        channel, job_id, operator_id, *rest = values
        return cls(channel, JobId(job_id), OperatorId(operator_id), *rest)


@frame(id=21, layout="!IQI")
class IngestAccept(Frame, frozen=True, gc=False):
    """Source → pusher: rows up to `accepted_row_count` are known already; send the rest. Since version 1."""

    channel: int  # u32
    accepted_row_count: int  # u64
    initial_credit: int  # batches, u32


@frame(id=22, layout="!IQIQ")
class IngestData(Frame, frozen=True, gc=False):
    """Pusher → source: the batch that begins at row `row_offset`; costs one credit. Since version 1."""

    channel: int  # u32
    row_offset: int  # u64
    row_count: int  # u32
    fingerprint: int  # u64
    body: Body  # Arrow record batch message


@frame(id=23, layout="!IQ")
class IngestEnd(Frame, frozen=True, gc=False):
    """Pusher → source: all `row_count` rows were sent; the source repeats it once they are taken. Since version 1."""

    channel: int  # u32
    row_count: int  # u64


def partition_values(identity: ResultPartitionId) -> tuple[Any, ...]:
    """Return a partition's id as values of `!16sI16s16sII`."""
    producer = identity.producer
    vertex = producer.execution_vertex_id
    return (
        identity.data_set_id.value,
        identity.partition_number,
        producer.job_id.value,
        vertex.vertex_id.value,
        vertex.subtask_index,
        producer.attempt_number,
    )


def partition_of(values: tuple[Any, ...]) -> ResultPartitionId:
    """Inverse of `partition_values`."""
    data_set, number, job, vertex, subtask, attempt = values
    producer = ExecutionAttemptId(
        JobId(job), ExecutionVertexId(JobVertexId(vertex), subtask), attempt
    )
    return ResultPartitionId(IntermediateDataSetId(data_set), number, producer)

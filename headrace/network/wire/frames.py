"""All frames of the data plane, with ids and layouts that both encoding and decoding use.

Channels are numbered by the consumer, per connection. A connection carries both directions: whether a channel number
is the sender's or the receiver's own follows from the frame. The layout of a frame is described in framing.py. Frames
20 to 23 push a DataFrame into a source; frames 30 to 34 push a result to a shuffle service:

    producer                                  shuffle service
    PushOpen ─────────────────────────────►   gives it memory
             ◄───────────────────────────── PushAccept (credit, largest batch)
    Schema, PushData, PushEvent … ────────►   stored, sorted by subpartition
             ◄───────────────────────────── AddCredit for each batch that was stored
    PushCommit ───────────────────────────►   the index is published: consumers may read
             ◄───────────────────────────── PushCommit

One connection pushes one partition; a push that ends without a commit is dropped. Error refuses it at any time.
Source: Flink NettyMessage, with the changes that batches, versions and authentication ask for; Flink Remote Shuffle's
write side (handshake, credit, region, finish, commit), where here the service makes the regions.
"""

from typing import Any, Final, Self

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
from headrace.network.wire.framing import Body, Frame, frame, reserve

TEXT_BYTES_MAX: Final = 64 * 1024
NO_CHANNEL: Final = 0xFFFFFFFF
"""Number in an Error frame that concerns the whole connection."""
ALL_SUBPARTITIONS: Final = 0xFFFFFFFF
"""Number in a PushData frame that is for all subpartitions."""


@frame(id=1, layout="!BBI32s")
class Hello(Frame, frozen=True, gc=False):
    """Both ways, first: supported versions and features, and a challenge; `body` is the sender's name.

    Since version 1.
    """

    version_min: int  # u8
    version_max: int  # u8
    features: int  # u32, bit set, see Feature; what both name is used
    challenge: bytes  # 32 bytes
    body: Body  # UTF-8, the resource id of a task manager or "ingest"


class Feature:
    """Bits of `Hello.features`."""

    CHECKSUM: Final = 1
    """Frames with schemas, rows and events carry checksums, and are refused without them."""


@frame(id=2, layout="!32s")
class Proof(Frame, frozen=True, gc=False):
    """Both ways, second: HMAC-SHA256 under the cluster's secret over role and both hellos. Since version 1."""

    digest: bytes  # 32 bytes


@frame(id=3, layout="!")
class Close(Frame, frozen=True, gc=False):
    """Both ways: the sender closes on purpose; unfinished channels end, unless it only retires. Since version 1."""


@frame(id=4, layout="!")
class KeepAlive(Frame, frozen=True, gc=False):
    """Both ways, if nothing else was sent for a while: the sender is alive. Not answered. Since version 1."""


@frame(id=10, layout="!I16sI16s16sIIIIIIQ")
class PartitionRequest(Frame, frozen=True, gc=False):
    """Consumer → producer: send this subpartition on `channel`. Since version 1. Source: Flink NettyMessage."""

    channel: int  # u32, chosen by the consumer
    partition_id: ResultPartitionId  # 60 bytes with the producer's attempt
    subpartition_index: int  # u32
    initial_credit: int  # segments, u32
    credit_max: int  # segments, u32: what the channel can hold at most
    segment_size: int  # bytes, u32: one credit pays for one segment
    first_sequence: int = (
        0  # u64: the first element wanted; not 0 if reading of a stored result resumes
    )

    def header_values(self) -> tuple[Any, ...]:
        return (
            self.channel,
            *partition_values(self.partition_id),
            self.subpartition_index,
            self.initial_credit,
            self.credit_max,
            self.segment_size,
            self.first_sequence,
        )

    @classmethod
    def from_header(
        cls, values: tuple[Any, ...], markers: tuple[PlacedMarker, ...], body: Body
    ) -> Self:
        return cls(values[0], partition_of(values[1:7]), *values[7:])


@frame(id=11, layout="!IQ", has_checksum=True)
class Schema(Frame, frozen=True, gc=False):
    """Producer → consumer: the Arrow schema of the batches that name `fingerprint` from here on. Since version 1."""

    channel: int  # u32
    fingerprint: int  # u64
    body: Body  # Arrow schema message


@frame(id=12, layout="!IQIIIQ", has_checksum=True)
class Data(Frame, frozen=True, gc=False):
    """Producer → consumer: one sealed batch and the markers between its rows. Since version 1.

    A batch without rows has no body, only markers. Costs `credit_count` credits.
    """

    channel: int  # u32
    sequence: int  # u64, counts data and events of the channel from 0
    credit_count: int  # segments this batch occupies, u32, > 0
    backlog: int  # segments that wait behind it, u32
    row_count: int  # u32
    fingerprint: int  # u64, 0 without rows
    markers: tuple[PlacedMarker, ...]
    body: Body  # Arrow record batch message


@frame(id=13, layout="!IQIBBq", has_checksum=True)
class Event(Frame, frozen=True, gc=False):
    """Producer → consumer: an event, free of credit, in order with the data unless it has priority. Since version 1.

    An event with priority overtakes all elements of its channel that are not numbered yet. After an event that blocks
    upstream only priority events follow until ResumeConsumption.
    """

    channel: int  # u32
    sequence: int  # u64
    backlog: int  # segments, u32; 0 if the event blocks upstream
    kind: int  # u8, see sealed_batch.py, `encode_event`
    traits: int  # u8, bit set, see EventTrait
    value: int  # i64
    body: Body = b""  # msgpack of a checkpoint barrier, at most TEXT_BYTES_MAX; else empty


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
    """Producer → consumer: `backlog` segments wait for more credit than is left. Since version 1."""

    channel: int  # u32
    backlog: int  # segments, u32, > 0


@frame(id=16, layout="!I")
class Cancel(Frame, frozen=True, gc=False):
    """Consumer → producer: the channel is closed, nothing more must be sent. Since version 1."""

    channel: int  # u32


@frame(id=17, layout="!IH")
class Error(Frame, frozen=True, gc=False):
    """Both ways: a channel failed, or the connection if NO_CHANNEL. The text is never pickled. Since version 1."""

    channel: int  # u32
    code: int  # u16, see ErrorCode
    body: Body  # UTF-8 text


@frame(id=18, layout="!I")
class ResumeConsumption(Frame, frozen=True, gc=False):
    """Consumer → producer: continue after the event that blocked this channel. Since version 1. Source: Flink."""

    channel: int  # u32


@frame(id=19, layout="!I")
class AckAllUserRecordsProcessed(Frame, frozen=True, gc=False):
    """Consumer → producer: all rows before EndOfData were processed. Since version 1. Source: Flink."""

    channel: int  # u32


@frame(id=24, layout="!IQ")
class NewBufferSize(Frame, frozen=True, gc=False):
    """Consumer → producer: the rows that the channel should hold between the two tasks. Since version 1.

    The producer seals its batches accordingly; credit does not change. Source: Flink NettyMessage, whose size is that
    of one buffer.
    """

    channel: int  # u32
    in_flight_rows: int  # u64, > 0


reserve(25, "TaskEvent")

ChannelMessage = AddCredit | Cancel | ResumeConsumption | AckAllUserRecordsProcessed | NewBufferSize
"""Frames of a consumer about a channel that it has requested."""


class ErrorCode:
    """Codes of Error frames. 6 is reserved."""

    PARTITION_NOT_FOUND: Final = 1
    PRODUCER_FAILED: Final = 2
    RECORD_TOO_LARGE: Final = 3
    PROTOCOL: Final = 4
    INGEST_REFUSED: Final = 5
    PUSH_REFUSED: Final = 7


@frame(id=20, layout="!I16s16sIII")
class IngestOpen(Frame, frozen=True, gc=False):
    """Pusher → source: begins a partition of the DataFrame, from one attempt of its Spark task. Since version 1."""

    channel: int  # u32
    job_id: JobId  # 16 bytes
    operator_id: OperatorId  # 16 bytes
    subtask_index: int  # u32
    partition: int  # u32
    spark_attempt: int  # u32

    def header_values(self) -> tuple[Any, ...]:
        target = (self.job_id.value, self.operator_id.value, self.subtask_index)
        return (self.channel, *target, self.partition, self.spark_attempt)

    @classmethod
    def from_header(
        cls, values: tuple[Any, ...], markers: tuple[PlacedMarker, ...], body: Body
    ) -> Self:
        channel, job_id, operator_id, *rest = values
        return cls(channel, JobId(job_id), OperatorId(operator_id), *rest)


@frame(id=21, layout="!IQI")
class IngestAccept(Frame, frozen=True, gc=False):
    """Source → pusher: rows up to `accepted_row_count` are known already; send the rest. Since version 1."""

    channel: int  # u32
    accepted_row_count: int  # u64
    initial_credit: int  # batches, u32


@frame(id=22, layout="!IQIQ", has_checksum=True)
class IngestData(Frame, frozen=True, gc=False):
    """Pusher → source: the batch that begins at row `row_offset`; costs one credit. Since version 1."""

    channel: int  # u32
    row_offset: int  # u64
    row_count: int  # u32
    fingerprint: int  # u64
    body: Body  # Arrow record batch message


@frame(id=23, layout="!IQ")
class IngestEnd(Frame, frozen=True, gc=False):
    """Pusher → source: all `row_count` rows were sent; the source echoes it once they are taken. Since version 1."""

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
    """Return the partition id whose `partition_values` are `values`."""
    data_set, number, job, vertex, subtask, attempt = values
    producer = ExecutionAttemptId(
        JobId(job), ExecutionVertexId(JobVertexId(vertex), subtask), attempt
    )
    return ResultPartitionId(IntermediateDataSetId(data_set), number, producer)


@frame(id=30, layout="!I16sI16s16sIII")
class PushOpen(Frame, frozen=True, gc=False):
    """Producer → shuffle service: begins to push a partition on this connection. Since version 1."""

    channel: int  # u32
    partition_id: ResultPartitionId  # 60 bytes with the producer's attempt
    subpartition_count: int  # u32, > 0

    def header_values(self) -> tuple[Any, ...]:
        return (self.channel, *partition_values(self.partition_id), self.subpartition_count)

    @classmethod
    def from_header(
        cls, values: tuple[Any, ...], markers: tuple[PlacedMarker, ...], body: Body
    ) -> Self:
        return cls(values[0], partition_of(values[1:7]), values[7])


@frame(id=31, layout="!III")
class PushAccept(Frame, frozen=True, gc=False):
    """Shuffle service → producer: pushes are accepted; AddCredit follows for every stored batch. Since version 1."""

    channel: int  # u32
    initial_credit: int  # batches, u32
    batch_bytes_max: int  # bytes, u32: largest batch


@frame(id=32, layout="!IIQIQ", has_checksum=True)
class PushData(Frame, frozen=True, gc=False):
    """Producer → shuffle service: one sealed batch, with its markers. Costs one credit. Since version 1."""

    channel: int  # u32
    subpartition_index: int  # u32, ALL_SUBPARTITIONS for a batch that goes to all
    sequence: int  # u64, counts data and events of the partition from 0
    row_count: int  # u32
    fingerprint: int  # u64, 0 without rows
    markers: tuple[PlacedMarker, ...]
    body: Body  # Arrow record batch message


@frame(id=33, layout="!IQBq", has_checksum=True)
class PushEvent(Frame, frozen=True, gc=False):
    """Producer → shuffle service: an event for all subpartitions, free of credit. Since version 1."""

    channel: int  # u32
    sequence: int  # u64
    kind: int  # u8, see sealed_batch.py, `encode_event`
    value: int  # i64


@frame(id=34, layout="!IQ")
class PushCommit(Frame, frozen=True, gc=False):
    """Producer → shuffle service: all `element_count` elements were pushed. Since version 1.

    The service sends it back once the whole partition is stored and may be read; before that, no part can be read.
    """

    channel: int  # u32
    element_count: int  # u64

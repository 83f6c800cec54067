"""The frames with which a result is pushed to a shuffle service; the wire's other frames stand in wire.py.

    producer                                  shuffle service
    PushOpen ─────────────────────────────►   gives it memory
             ◄───────────────────────────── PushAccept (credit, largest batch)
    Schema, PushData, PushEvent … ────────►   stored, sorted by subpartition
             ◄───────────────────────────── AddCredit for each batch that was stored
    PushCommit ───────────────────────────►   the index is published: consumers may read
             ◄───────────────────────────── PushCommit

One connection pushes one partition; what ends without a commit was never there. Error refuses at any time.
Source: Flink Remote Shuffle's write side (handshake, credit, region, finish, commit); the service makes the regions.
"""

from typing import Any, Final, Self

from headrace.core.elements import PlacedMarker
from headrace.core.ids import ResultPartitionId
from headrace.network.wire.frames import partition_of, partition_values
from headrace.network.wire.framing import Body, Frame, frame


@frame(id=30, layout="!I16sI16s16sIII")
class PushOpen(Frame, frozen=True, gc=False):
    """Producer → shuffle service: a partition is going to be pushed on this connection. Since version 1."""

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
    """Shuffle service → producer: push; AddCredit follows for every batch that was stored. Since version 1."""

    channel: int  # u32
    initial_credit: int  # batches, u32
    batch_bytes_max: int  # bytes, u32: a batch may have so many


@frame(id=32, layout="!IIQIQ", has_checksum=True)
class PushData(Frame, frozen=True, gc=False):
    """Producer → shuffle service: one sealed batch, with its markers. Costs one credit. Since version 1."""

    channel: int  # u32
    subpartition_index: int  # u32, ALL_SUBPARTITIONS for a batch that is the same for all
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
    kind: int  # u8, see `batches.encode_event`
    value: int  # i64


@frame(id=34, layout="!IQ")
class PushCommit(Frame, frozen=True, gc=False):
    """Producer → shuffle service: all `element_count` elements were pushed. Since version 1.

    The service repeats it once the partition is stored as a whole and may be read; before, nobody reads any of it.
    """

    channel: int  # u32
    element_count: int  # u64


ALL_SUBPARTITIONS: Final = 0xFFFFFFFF
"""Stands for all subpartitions in a PushData frame."""

"""ResultSubpartitionView: one consumer's reader of a subpartition, and the elements that it returns.

Every kind of result partition has views; a local channel, or the connection that serves a remote one, reads through
them. Source: Flink ResultSubpartition, ResultSubpartitionView.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from headrace.core.elements import StreamEvent
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import RecordTooLargeError
from headrace.network.memory.local_buffer_pool import SegmentLease

LOCAL_SEGMENT_BYTES: Final = 1 << 62
"""Segment size of a consumer in this process: it takes references, so batches are never cut."""


@dataclass(slots=True)
class DataElement:
    """A queued batch, with its `cost` in segments of the consumer.

    `lease` is released when the consumer has the batch; of the pieces of one batch only the last carries it.
    """

    sealed: SealedBatch
    lease: SegmentLease | None
    cost: int


@dataclass(slots=True)
class QueuedEvent:
    """A queued event.

    An event with priority overtakes all elements without priority. After an event that blocks upstream the view returns
    only priority events until it is resumed. Source: Flink Buffer.DataType.
    """

    event: StreamEvent
    is_priority: bool = False
    blocks_upstream: bool = False


Element = DataElement | QueuedEvent


@dataclass(frozen=True, slots=True)
class Stalled:
    """Result of `poll`: the next batch costs more than the available credit."""

    cost: int
    backlog: int


class ResultSubpartitionView(Protocol):
    """Reads one subpartition for one consumer. Used by one thread."""

    def poll(self, credit: int) -> Element | Stalled | None:
        """Return the next element, Stalled if it costs more than `credit`, or None. Raises the producer's failure."""
        ...

    @property
    def queued_count(self) -> int:
        """Number of queued elements. Any thread; a snapshot."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Bytes of the batches queued in memory. Any thread; a snapshot."""
        ...

    @property
    def has_priority_event(self) -> bool:
        """Return whether the next element is an event with priority. Any thread; a snapshot."""
        ...

    @property
    def backlog(self) -> int:
        """Queued segments of the consumer's size that could be handed out; 0 while blocked."""
        ...

    def resume(self) -> None:
        """Continue after an event that blocks upstream. Once per such event, on the polling thread."""
        ...

    def acknowledge_all_data(self) -> None:
        """Record that the consumer has processed all rows before EndOfData. Once, on the polling thread."""
        ...

    def notify_in_flight_rows(self, in_flight_rows: int) -> None:
        """Set the rows that the consumer wants in flight between the two tasks; > 0."""
        ...

    def release(self) -> None:
        """Release the view when its consumer reads no more. Idempotent."""
        ...


def refuse_if_too_large(stalled: Stalled, credit_max: int, segment_size: int) -> None:
    """Raise RecordTooLargeError if the batch costs more than the most credit that the consumer can ever have."""
    if stalled.cost > credit_max:
        raise RecordTooLargeError(stalled.cost * segment_size, credit_max * segment_size)

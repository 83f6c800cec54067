"""ResultSubpartitionView: one consumer's way through a subpartition, and the elements that it hands out.

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
"""Segment size of a consumer in this process: it takes references, which are never cut."""


@dataclass(slots=True)
class DataElement:
    """A batch in the queue, of `cost` segments of the consumer.

    `lease` is released when the consumer has it; of the pieces of one batch only the last has it.
    """

    sealed: SealedBatch
    lease: SegmentLease | None
    cost: int


@dataclass(slots=True)
class QueuedEvent:
    """An event in the queue.

    One with priority overtakes what waits, except its like. After one that blocks upstream the view hands out
    nothing but priority events until it is resumed. Source: Flink Buffer.DataType.
    """

    event: StreamEvent
    is_priority: bool = False
    blocks_upstream: bool = False


Element = DataElement | QueuedEvent


@dataclass(frozen=True, slots=True)
class Stalled:
    """The next batch costs more than the credit in hand."""

    cost: int
    backlog: int


class ResultSubpartitionView(Protocol):
    """One consumer's way through one subpartition. Used by one thread."""

    def poll(self, credit: int) -> Element | Stalled | None:
        """Return the next element, Stalled if it costs more than `credit`, or None. Raises the producer's failure."""
        ...

    @property
    def queued_count(self) -> int:
        """Elements that wait. Any thread; a moment's reading."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Bytes of the batches that wait in memory. Any thread; a moment's reading."""
        ...

    @property
    def has_priority_event(self) -> bool:
        """Return whether the next element is an event with priority. Any thread; a moment's reading."""
        ...

    @property
    def backlog(self) -> int:
        """Segments of the consumer's size that wait and could be handed out: 0 while blocked."""
        ...

    def resume(self) -> None:
        """Go on after an event that blocks upstream. Once per such event, by the thread that polls."""
        ...

    def acknowledge_all_data(self) -> None:
        """The consumer has processed all rows before EndOfData. Once, by the thread that polls."""
        ...

    def notify_in_flight_rows(self, in_flight_rows: int) -> None:
        """The consumer wants so many rows between the two tasks; > 0."""
        ...

    def release(self) -> None:
        """Release the view: its consumer reads no more. Idempotent."""
        ...


def refuse_if_too_large(stalled: Stalled, credit_max: int, segment_size: int) -> None:
    """Raise RecordTooLargeError where no amount of waiting brings enough credit."""
    if stalled.cost > credit_max:
        raise RecordTooLargeError(stalled.cost * segment_size, credit_max * segment_size)

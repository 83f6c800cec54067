"""What a consumer, or the connection that serves it, sees of a subpartition, whatever the kind of its partition.

Source: Flink ResultSubpartitionView.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from headrace.core.elements import StreamEvent
from headrace.network.batches import SealedBatch
from headrace.network.buffer_pool import SegmentLease
from headrace.network.errors import RecordTooLargeError

LOCAL_SEGMENT_BYTES: Final = 1 << 62
"""For a consumer in this process: it takes references, which are never cut."""


@dataclass(slots=True)
class DataElement:
    """A batch in the queue, of `cost` segments of the consumer.

    `lease` is released when the consumer has it; of the pieces of one batch only the last has it.
    """

    sealed: SealedBatch
    lease: SegmentLease | None
    cost: int


@dataclass(slots=True)
class EventElement:
    """An event in the queue."""

    event: StreamEvent


Element = DataElement | EventElement


@dataclass(frozen=True, slots=True)
class Stalled:
    """The next batch costs more than the credit in hand."""

    cost: int
    backlog: int


class SubpartitionView(Protocol):
    """One consumer's way through one subpartition. Used by one thread."""

    def poll(self, credit: int) -> Element | Stalled | None:
        """Return the next element, Stalled if it costs more than `credit`, or None. Raises the producer's failure."""
        ...

    @property
    def queued_count(self) -> int:
        """Elements that wait. Any thread; a moment's reading."""
        ...

    @property
    def backlog(self) -> int:
        """Segments of the consumer's size that wait."""
        ...

    def release(self) -> None:
        """Let go. Idempotent."""
        ...


def refuse_if_too_large(stalled: Stalled, credit_max: int, segment_size: int) -> None:
    """Raise RecordTooLargeError where no amount of waiting brings enough credit."""
    if stalled.cost > credit_max:
        raise RecordTooLargeError(stalled.cost * segment_size, credit_max * segment_size)

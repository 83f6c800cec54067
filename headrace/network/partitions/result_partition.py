"""ResultPartition: the rows that one subtask produces along one edge, as one subpartition for each consumer.

Kinds differ in when consumers may start, whether they may read twice, and where the data lies meanwhile; the writer,
the manager and the connections see only this. Source: Flink ResultPartition.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.core.barriers import CheckpointBarrier
from headrace.core.elements import StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import PartitionError
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.partitions.result_subpartition import ResultSubpartitionView


class ResultPartition(Protocol):
    """Written to by one task; closed, failed, released or attached to from any thread."""

    @property
    def partition_id(self) -> ResultPartitionId:
        """The partition with its producer's attempt."""
        ...

    @property
    def pool(self) -> LocalBufferPool:
        """The memory that bounds what waits in it."""
        ...

    @property
    def subpartition_count(self) -> int:
        """Number of subpartitions, which are the shares of consumers."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether everything was emitted."""
        ...

    @property
    def queued_count(self) -> int:
        """Elements that wait in memory. Any thread; a moment's reading."""
        ...

    @property
    def longest_queue(self) -> int:
        """Elements that wait in memory for the consumer that has most of them. Any thread; a moment's reading."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Bytes of the batches that wait in memory."""
        ...

    def in_flight_rows(self, index: int) -> int | None:
        """Return the most rows that the consumer of a subpartition wants in flight, or None if it set no limit."""
        ...

    def limit_at_first(self, in_flight_rows: int) -> None:
        """Take what all consumers want on its way until they say so themselves; where they read meanwhile."""
        ...

    def prepare(self, index: int, sealed: SealedBatch) -> None:
        """A batch is going to be emitted to one subpartition: serialise it now, where its consumer wants bytes."""
        ...

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Give a batch to one subpartition; the partition releases the lease."""
        ...

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Give the same batch to every subpartition; its lease counts one reference for each."""
        ...

    def emit_event(
        self, event: StreamEvent, *, is_priority: bool = False, blocks_upstream: bool = False
    ) -> None:
        """Give an event to every subpartition; see QueuedEvent."""
        ...

    def emit_barrier(
        self, barrier: CheckpointBarrier, unsealed: Mapping[int, SealedBatch]
    ) -> InFlightOutput:
        """Give a barrier to every subpartition as its options say; return what it overtakes.

        `unsealed`: by subpartition, what the writer has and will only emit behind it.
        """
        ...

    def time_out_barrier(self, checkpoint_id: int) -> None:
        """Have an aligned barrier that may time out, as far as it still waits, overtake now."""
        ...

    def on_all_data_processed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once all consumers have acknowledged EndOfData; now if they have. Any thread.

        To be waited for before `finish`: a consumer whose partition has ended acknowledges nothing any more.
        Where nobody reads while the task runs, there is nothing to wait for.
        """
        ...

    def make_room(self) -> None:
        """Its writer finds no segment: store what can be stored elsewhere than in memory. By the task's thread."""
        ...

    def finish(self) -> None:
        """Everything was emitted. Idempotent."""
        ...

    def fail(self, cause: BaseException | None) -> None:
        """The producer failed (or, without a cause, was cancelled): consumers are told. The first cause counts."""
        ...

    def close(self) -> None:
        """The task is done with it; consumers may still read what was finished. Idempotent."""
        ...

    def release(self) -> None:
        """Withdraw it, whoever reads it: drop everything. Idempotent."""
        ...

    def create_view(
        self, index: int, listener: Callable[[], None], segment_size: int, first_element: int = 0
    ) -> ResultSubpartitionView:
        """Attach a consumer to subpartition `index`; `listener` is called when there is something. PartitionError.

        It is given the elements from `first_element` on, as many as there were for an earlier one with segments of
        this size; only what can be read again begins elsewhere than at 0.
        """
        ...


def cannot_read_on(partition_id: ResultPartitionId) -> PartitionError:
    """Return the error of a consumer that asks for the middle of what is read once."""
    text = str(partition_id)
    return PartitionError(text, f"{text} is read once and from its beginning")


def describe_cause(cause: BaseException | None) -> str:
    """Return the class and first line of an error: enough for a consumer, whose failure is not the first one.

    Without a cause the producer was cancelled.
    """
    if cause is None:
        return "it was cancelled"
    first_line = str(cause).partition("\n")[0]
    return f"{type(cause).__name__}: {first_line}" if first_line else type(cause).__name__

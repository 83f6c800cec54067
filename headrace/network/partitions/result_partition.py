"""ResultPartition: the rows that one subtask produces along one edge, as one subpartition for each consumer.

Kinds differ in when consumers may start, whether they may read twice, and where the data is stored; the writer,
the manager and the connections use only this interface. Source: Flink ResultPartition.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

from headrace.core.barriers import CheckpointBarrier
from headrace.core.elements import StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import PartitionError
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.partitions.result_subpartition import ResultSubpartitionView


class ResultPartition(ABC):
    """Result of one subtask. One task writes; any thread may close, fail, release or attach to it.

    The default methods suit results that nobody reads while their task runs.
    """

    def __init__(
        self, partition_id: ResultPartitionId, subpartition_count: int, pool: LocalBufferPool
    ) -> None:
        self.partition_id: Final = partition_id
        """Id of the partition with its producer's attempt."""
        self.subpartition_count: Final = subpartition_count
        """Number of subpartitions, one per consumer."""
        self.pool: Final = pool
        """Memory that bounds the queued data."""
        self.is_finished = False
        """True once everything was emitted."""

    @property
    def queued_count(self) -> int:
        """Number of elements queued in memory. Any thread; a snapshot."""
        return 0

    @property
    def longest_queue(self) -> int:
        """Number of elements in the longest queue of any consumer, in memory. Any thread; a snapshot."""
        return 0

    @property
    def queued_bytes(self) -> int:
        """Bytes of the batches queued in memory."""
        return 0

    def in_flight_rows(self, index: int) -> int | None:
        """Return the most rows that the consumer of a subpartition wants in flight, or None if it set no limit."""
        return None

    def limit_at_first(self, in_flight_rows: int) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Set the rows in flight that apply to each consumer until it announces its own limit."""

    def prepare(self, index: int, sealed: SealedBatch) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Serialise a batch on the task's thread before it is emitted, if the subpartition's consumer is remote.

        The network thread then only copies bytes.
        """

    @abstractmethod
    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Add a batch to one subpartition; the partition releases the lease."""

    @abstractmethod
    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Add the same batch to every subpartition; its lease counts one reference for each."""

    @abstractmethod
    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Give an event to every subpartition; see QueuedEvent. Nothing blocks where nobody reads yet."""

    def emit_barrier(
        self, barrier: CheckpointBarrier, unsealed: Mapping[int, SealedBatch]
    ) -> InFlightOutput:
        """Add a barrier to every subpartition according to its options; return the batches that it overtakes.

        `unsealed`: rows of the writer by subpartition that it emits only behind the barrier. Jobs with stored results
        take no checkpoints.
        """
        raise AssertionError(f"a stored result takes no {barrier}")

    def time_out_barrier(self, checkpoint_id: int) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Let an aligned barrier that may time out overtake now, where it is still queued."""

    def on_all_data_processed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once all consumers have acknowledged EndOfData; immediately if they have. Any thread.

        Wait for this before `finish`: a consumer acknowledges nothing after the end of its partition. Results that
        nobody reads while the task runs call it at once.
        """
        callback()

    def make_room(self) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Move data out of memory if possible, because the writer finds no segment. Task's thread."""

    @abstractmethod
    def finish(self) -> None:
        """End the partition after everything was emitted. Idempotent."""

    @abstractmethod
    def fail(self, cause: BaseException | None) -> None:
        """Tell consumers that the producer failed or, without a cause, was cancelled. The first cause counts."""

    @abstractmethod
    def close(self) -> None:
        """Release the partition for its task; consumers may still read a finished one. Idempotent."""

    @abstractmethod
    def release(self) -> None:
        """Drop all data, even while consumers read it. Idempotent."""

    @abstractmethod
    def create_view(
        self, index: int, listener: Callable[[], None], segment_size: int, first_element: int = 0
    ) -> ResultSubpartitionView:
        """Attach a consumer to subpartition `index`; `listener` is called when an element arrives.

        The view starts at element `first_element`, counted for segments of this size; only a stored result accepts a
        number other than 0. PartitionError if the consumer is refused.
        """


def cannot_be_read_again(partition_id: ResultPartitionId) -> PartitionError:
    """Return the error for a consumer that asks for the middle of a result that is read only once."""
    text = str(partition_id)
    return PartitionError(text, f"{text} can only be read once, from its beginning")


def describe_cause(cause: BaseException | None) -> str:
    """Return the class and first line of an error, which suffices for a consumer: its failure is not the first one.

    Without a cause the producer was cancelled.
    """
    if cause is None:
        return "the producer was cancelled"
    first_line = str(cause).partition("\n")[0]
    return f"{type(cause).__name__}: {first_line}" if first_line else type(cause).__name__

"""ResultPartition: the rows that one subtask produces along one edge, as one subpartition for each consumer.

Kinds differ in when consumers may start, whether they may read twice, and where the data lies meanwhile; the writer,
the manager and the connections see only this. Source: Flink ResultPartition.
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
    """Written to by one task; closed, failed, released or attached to from any thread.

    The defaults are those of results that nobody reads while their task runs.
    """

    def __init__(
        self, partition_id: ResultPartitionId, subpartition_count: int, pool: LocalBufferPool
    ) -> None:
        self.partition_id: Final = partition_id
        """The partition with its producer's attempt."""
        self.subpartition_count: Final = subpartition_count
        """Number of subpartitions, which are the shares of consumers."""
        self.pool: Final = pool
        """The memory that bounds what waits in it."""
        self.is_finished = False
        """True once everything was emitted."""

    @property
    def queued_count(self) -> int:
        """Elements that wait in memory. Any thread; a moment's reading."""
        return 0

    @property
    def longest_queue(self) -> int:
        """Elements that wait in memory for the consumer that has most of them. Any thread; a moment's reading."""
        return 0

    @property
    def queued_bytes(self) -> int:
        """Bytes of the batches that wait in memory."""
        return 0

    def in_flight_rows(self, index: int) -> int | None:
        """Return the most rows that the consumer of a subpartition wants in flight, or None if it set no limit."""
        return None

    def limit_at_first(self, in_flight_rows: int) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Set how many rows all consumers want in flight until they say so themselves."""

    def prepare(self, index: int, sealed: SealedBatch) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Serialise a batch that is going to be emitted to one subpartition, where its consumer wants bytes.

        By the task's thread, so that the network thread only moves bytes.
        """

    @abstractmethod
    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Give a batch to one subpartition; the partition releases the lease."""

    @abstractmethod
    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Give the same batch to every subpartition; its lease counts one reference for each."""

    @abstractmethod
    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Give an event to every subpartition; see QueuedEvent. Nothing blocks where nobody reads yet."""

    def emit_barrier(
        self, barrier: CheckpointBarrier, unsealed: Mapping[int, SealedBatch]
    ) -> InFlightOutput:
        """Give a barrier to every subpartition as its options say; return what it overtakes.

        `unsealed`: by subpartition, what the writer has and will only emit behind it. Jobs with stored results take no
        checkpoints.
        """
        raise AssertionError(f"{barrier} for a stored result")

    def time_out_barrier(self, checkpoint_id: int) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Have an aligned barrier that may time out, as far as it still waits, overtake now."""

    def on_all_data_processed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once all consumers have acknowledged EndOfData; now if they have. Any thread.

        To be waited for before `finish`: a consumer whose partition has ended acknowledges nothing any more.
        Where nobody reads while the task runs, there is nothing to wait for.
        """
        callback()

    def make_room(self) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Store what can be stored elsewhere than in memory: the writer finds no segment. By the task's thread."""

    @abstractmethod
    def finish(self) -> None:
        """End the partition: everything was emitted. Idempotent."""

    @abstractmethod
    def fail(self, cause: BaseException | None) -> None:
        """Tell consumers that the producer failed or, without a cause, was cancelled. The first cause counts."""

    @abstractmethod
    def close(self) -> None:
        """Let the task go; consumers may still read what was finished. Idempotent."""

    @abstractmethod
    def release(self) -> None:
        """Withdraw it, whoever reads it: drop everything. Idempotent."""

    @abstractmethod
    def create_view(
        self, index: int, listener: Callable[[], None], segment_size: int, first_element: int = 0
    ) -> ResultSubpartitionView:
        """Attach a consumer to subpartition `index`; `listener` is called when there is something. PartitionError.

        It is given the elements from `first_element` on, as many as there were for an earlier one with segments of
        this size; only what can be read again begins elsewhere than at 0.
        """


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

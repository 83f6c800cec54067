"""PipelinedResultPartition: a result that consumers read once, while the task produces it.

Released when all its consumers and the task itself have released it. Source: Flink PipelinedResultPartition.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Final

from headrace.core.barriers import CheckpointBarrier
from headrace.core.elements import EndOfPartition, StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batches.sealed_batch import BatchWriter, SealedBatch
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.pipelined_subpartition import PipelinedSubpartition
from headrace.network.partitions.result_partition import (
    ResultPartition,
    cannot_be_read_again,
    describe_cause,
)
from headrace.network.partitions.result_subpartition import ResultSubpartitionView


class PipelinedResultPartition(ResultPartition):
    """Subpartitions and the pool that bounds them. One task writes; any thread may close or fail it."""

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        max_queued: int,
        manager: ResultPartitionManager,
        subpartition_class: type[PipelinedSubpartition] = PipelinedSubpartition,
    ) -> None:
        super().__init__(partition_id, subpartition_count, pool)
        self.subpartitions: Final = tuple(
            subpartition_class(
                str(partition_id), index, pool, max_queued, self._let_go, self._acknowledged
            )
            for index in range(subpartition_count)
        )
        self._batch_writer = BatchWriter()
        self._manager = manager
        # Guards the fields below: consumers, the task and its canceller may release it in any order.
        self._lock = threading.Lock()
        self._user_count = subpartition_count + 1
        self._is_closed = False
        self._is_failed = False
        self._unacknowledged_count = subpartition_count
        self._on_all_data_processed: list[Callable[[], None]] = []

    @property
    def queued_count(self) -> int:
        return sum(subpartition.queued_count for subpartition in self.subpartitions)

    @property
    def queued_bytes(self) -> int:
        return sum(subpartition.queued_bytes for subpartition in self.subpartitions)

    @property
    def longest_queue(self) -> int:
        return max(subpartition.queued_count for subpartition in self.subpartitions)

    def create_view(
        self, index: int, listener: Callable[[], None], segment_size: int, first_element: int = 0
    ) -> ResultSubpartitionView:
        """Attach a consumer.

        A second one is refused, unless the partition is approximate: the first has consumed the rows.
        """
        if first_element:
            raise cannot_be_read_again(self.partition_id)
        return self.subpartitions[index].create_view(listener, segment_size)

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Add the same batch to every subpartition; it is serialised at most once and occupies its segments once."""
        if any(subpartition.wants_bytes for subpartition in self.subpartitions):
            sealed.write(self._batch_writer)
        for subpartition in self.subpartitions:
            subpartition.add_data(sealed, lease)

    def load_of(self, index: int) -> tuple[int, int]:
        """Return the elements and bytes queued for a consumer. Any thread; a snapshot."""
        subpartition = self.subpartitions[index]
        return subpartition.queued_count, subpartition.queued_bytes

    def in_flight_rows(self, index: int) -> int | None:
        return self.subpartitions[index].in_flight_rows

    def limit_at_first(self, in_flight_rows: int) -> None:
        for subpartition in self.subpartitions:
            subpartition.limit_at_first(in_flight_rows)

    def prepare(self, index: int, sealed: SealedBatch) -> None:
        """Serialise on the task's thread, so that the network thread only copies bytes."""
        if self.subpartitions[index].wants_bytes:
            sealed.write(self._batch_writer)

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        self.subpartitions[index].add_data(sealed, lease)

    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        for subpartition in self.subpartitions:
            subpartition.add_event(event, blocks_upstream=blocks_upstream)

    def emit_barrier(
        self, barrier: CheckpointBarrier, unsealed: Mapping[int, SealedBatch]
    ) -> InFlightOutput:
        capture = InFlightOutput(self.subpartition_count)
        for subpartition in self.subpartitions:
            subpartition.add_barrier(barrier, capture, unsealed.get(subpartition.index))
        return capture

    def time_out_barrier(self, checkpoint_id: int) -> None:
        for subpartition in self.subpartitions:
            subpartition.time_out_barrier(checkpoint_id)

    def on_all_data_processed(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if self._unacknowledged_count:
                self._on_all_data_processed.append(callback)
                return
        callback()

    def finish(self) -> None:
        """End the partition after everything was emitted."""
        if not self.is_finished:
            self.is_finished = True
            self.emit_event(EndOfPartition())

    def fail(self, cause: BaseException | None) -> None:
        """Tell consumers that the producer failed or, without a cause, was cancelled. The first cause counts."""
        with self._lock:
            if self._is_failed or self._is_closed:
                return
            self._is_failed = True
        text = describe_cause(cause)
        self._manager.record_failure(self, text)
        for subpartition in self.subpartitions:
            subpartition.fail(text)
        self.close()

    def close(self) -> None:
        """Release the partition for its task; consumers may still read a finished one. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self.pool.destroy()
        self._let_go()

    def release(self) -> None:
        """Drop all data, even while consumers read it. Idempotent."""
        self.close()
        for subpartition in self.subpartitions:
            subpartition.discard()

    def _acknowledged(self) -> None:
        with self._lock:
            self._unacknowledged_count -= 1
            assert self._unacknowledged_count >= 0, f"{self.partition_id} was acknowledged twice"
            calls: list[Callable[[], None]] = []
            if self._unacknowledged_count == 0:
                calls, self._on_all_data_processed = self._on_all_data_processed, calls
        for call in calls:
            call()

    def _let_go(self) -> None:
        with self._lock:
            self._user_count -= 1
            assert self._user_count >= 0, f"partition {self.partition_id} was released twice"
            is_released = self._user_count == 0
        if is_released:
            self._manager.forget(self)

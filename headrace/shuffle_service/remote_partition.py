"""RemoteResultPartition: a result that is pushed to a shuffle service while its task produces it.

Nothing of it stays on the TaskManager: memory holds a batch until it was sent. The connection is opened by the task's
thread with the first batch, since deploying a task must not wait for a network.
Source: Flink Remote Shuffle's RemoteShuffleResultPartition.
"""

import threading
from collections.abc import Callable, Mapping

from headrace.core.checkpoints import CheckpointBarrier
from headrace.core.elements import CancelTaskException, StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batches import SealedBatch
from headrace.network.errors import PartitionNotFoundError
from headrace.network.local_pool import LocalBufferPool, SegmentLease
from headrace.network.output_capture import OutputCapture
from headrace.network.push_wire import ALL_SUBPARTITIONS
from headrace.network.subpartition import SubpartitionView
from headrace.shuffle_service.push_sender import PushSender


class RemoteResultPartition:
    """See ResultPartition. `connect` opens the push and may block."""

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        connect: Callable[[], PushSender],
        on_over: "Callable[[RemoteResultPartition], None]",
    ) -> None:
        self.partition_id = partition_id
        self.subpartition_count = subpartition_count
        self.pool = pool
        self.is_finished = False
        self._connect = connect
        self._on_over = on_over
        # Guards the fields below: the task pushes, its canceller and the environment end it.
        self._lock = threading.Lock()
        self._sender: PushSender | None = None
        self._pusher: int | None = None
        self._is_over = False

    @property
    def queued_count(self) -> int:
        """See ResultPartition: nothing waits here."""
        return 0

    @property
    def queued_bytes(self) -> int:
        """See ResultPartition: nothing waits here."""
        return 0

    @property
    def longest_queue(self) -> int:
        """See ResultPartition: nothing waits here."""
        return 0

    def in_flight_rows(self, index: int) -> int | None:
        """See ResultPartition; what is stored is not on its way."""
        return None

    def limit_at_first(self, in_flight_rows: int) -> None:
        """See ResultPartition; what is stored is not on its way."""

    def prepare(self, index: int, sealed: SealedBatch) -> None:
        """See ResultPartition; batches are serialised as they are pushed."""

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """See ResultPartition. NetworkError."""
        try:
            self._push().send(index, sealed)
        finally:
            lease.release()

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """See ResultPartition: pushed and stored once. NetworkError."""
        try:
            self._push().send(ALL_SUBPARTITIONS, sealed)
        finally:
            for _ in range(self.subpartition_count):
                lease.release()

    def emit_event(
        self, event: StreamEvent, *, is_priority: bool = False, blocks_upstream: bool = False
    ) -> None:
        """See ResultPartition. What nobody reads yet neither overtakes nor blocks. NetworkError."""
        self._push().send_event(event)

    def emit_barrier(
        self, barrier: CheckpointBarrier, unsealed: Mapping[int, SealedBatch]
    ) -> OutputCapture:
        """See ResultPartition. Jobs with stored results take no checkpoints."""
        raise AssertionError(f"{barrier} for a stored result")

    def time_out_barrier(self, checkpoint_id: int) -> None:
        """See ResultPartition. No barrier waits here."""

    def on_all_data_processed(self, callback: Callable[[], None]) -> None:
        """See ResultPartition: its task need not wait for consumers."""
        callback()

    def make_room(self) -> None:
        """See ResultPartition. Batches leave as they come."""

    def finish(self) -> None:
        """See ResultPartition: returns when the service has stored all of it. NetworkError."""
        if not self.is_finished:
            self._push().commit()
            self.is_finished = True

    def fail(self, cause: BaseException | None) -> None:
        """See ResultPartition: the service forgets what was pushed, and tells consumers."""
        self._end()

    def close(self) -> None:
        """See ResultPartition. What was finished is the service's."""
        self._end()

    def release(self) -> None:
        """See ResultPartition: nothing of it is here; the master has the service delete it."""
        self._end()

    def create_view(
        self, index: int, listener: Callable[[], None], segment_size: int, first_element: int = 0
    ) -> SubpartitionView:
        """See ResultPartition: nobody reads it here."""
        raise PartitionNotFoundError(str(self.partition_id), "the producer's")

    def _push(self) -> PushSender:
        """The connection; CancelTaskException once the partition is over."""
        if self._sender is None and not self._is_over:
            sender = self._connect()
            with self._lock:
                self._sender, self._pusher = sender, threading.get_ident()
                is_over = self._is_over
            if is_over:
                sender.close()
        if self._is_over:
            raise CancelTaskException("the task's output was closed")
        assert self._sender is not None
        return self._sender

    def _end(self) -> None:
        with self._lock:
            is_first, self._is_over = not self._is_over, True
            sender = self._sender
        if sender is not None and threading.get_ident() == self._pusher:
            sender.close()
        elif sender is not None and not self.is_finished:
            # Under the task, which may wait for credit, and lets go of the socket when it ends.
            sender.abort()
        if is_first:
            self.pool.destroy()
            self._on_over(self)

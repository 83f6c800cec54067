"""PipelinedSubpartition: the queue between one producer and one consumer, and the consumer's view of it.

A sealed batch is finished by definition, so that the backlog is exact and a flush only seals. Once a
consumer is gone, added elements are dropped. Source: Flink PipelinedSubpartition, PipelinedSubpartitionView.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from headrace.core.barriers import CheckpointBarrier
from headrace.core.elements import EndOfOutputChannelState, StreamEvent
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import NetworkError, PartitionError, ProducerFailedError, copy_of
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.partitions.result_subpartition import (
    LOCAL_SEGMENT_BYTES,
    DataElement,
    Element,
    QueuedEvent,
    ResultSubpartitionView,
    Stalled,
)


class PipelinedSubpartitionView:
    """Gives one consumer the elements queued in a pipelined subpartition; each is handed out once.

    Source: Flink PipelinedSubpartitionView.
    """

    def __init__(self, subpartition: "PipelinedSubpartition") -> None:
        self._subpartition = subpartition
        self.poll: Final = subpartition.poll
        self.resume: Final = subpartition.resume
        self.acknowledge_all_data: Final = subpartition.acknowledge_all_data
        self.notify_in_flight_rows: Final = subpartition.notify_in_flight_rows

    @property
    def queued_count(self) -> int:
        return self._subpartition.queued_count

    @property
    def queued_bytes(self) -> int:
        return self._subpartition.queued_bytes

    @property
    def has_priority_event(self) -> bool:
        return self._subpartition.has_priority_event

    @property
    def backlog(self) -> int:
        return self._subpartition.backlog

    def release(self) -> None:
        """Release the subpartition; it drops its batches and all that are added later."""
        self._subpartition.release()


class PipelinedSubpartition:
    """One subpartition; the producer's task adds elements, a task or the network thread reads them through one view."""

    def __init__(
        self,
        partition_text: str,
        index: int,
        pool: LocalBufferPool,
        max_queued: int,
        on_released: Callable[[], None],
        on_acknowledged: Callable[[], None],
    ) -> None:
        self.index: Final = index
        self._partition_text = partition_text
        self._pool = pool
        self._max_queued = max_queued
        self._on_released = on_released
        self._on_acknowledged = on_acknowledged
        # Guards the queue: the producer's task adds, another thread takes, cancellation may come from a third.
        self._lock = threading.Lock()
        self._queue: deque[Element] = deque()
        self._view: ResultSubpartitionView | None = None
        # Listener of the consumer that has the view: called when data comes to an empty queue.
        self._listener: Callable[[], None] = _nobody
        self._segment_size = LOCAL_SEGMENT_BYTES
        self._data_count = 0
        self._backlog = 0
        self._priority_count = 0  # of the elements at the head of the queue
        self._is_blocked = False
        # Restored rows and their end were added, and the consumer has not resumed after them: no barrier overtakes
        # those. Otherwise rows of another sender that follow them could be stored, and restored, together with them.
        self._is_recovering = False
        self._held: list[QueuedEvent] = []  # events with priority, until then
        # The queued barrier that may still overtake, and its InFlightOutput: at most one.
        self._timeoutable: tuple[CheckpointBarrier, InFlightOutput] | None = None
        self._in_flight_rows: int | None = None
        self._data_bytes = self._data_rows = 0
        # Backlog that a consumer without credit was told of. It is told again once much more is queued.
        self._stalled_backlog: int | None = None
        self._is_full = False
        self._is_released = False
        self._failure: NetworkError | None = None

    @property
    def wants_bytes(self) -> bool:
        """Return whether the consumer is in another process, so that the producer's thread serialises before adding."""
        return self._segment_size != LOCAL_SEGMENT_BYTES

    @property
    def queued_count(self) -> int:
        """Number of queued elements."""
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        """Bytes of the queued batches."""
        return self._data_bytes

    @property
    def backlog(self) -> int:
        """Queued segments of the consumer's size that could be handed out; 0 while blocked."""
        return 0 if self._is_blocked else self._backlog

    @property
    def is_blocked(self) -> bool:
        """Return whether an event that blocks upstream was handed out and its consumer has not resumed yet."""
        return self._is_blocked

    @property
    def in_flight_rows(self) -> int | None:
        """Most rows that the consumer wants in flight, or None until it sets a limit. Any thread."""
        return self._in_flight_rows

    @property
    def has_priority_event(self) -> bool:
        """Return whether an event with priority is at the head of the queue."""
        return self._priority_count > 0

    def add_data(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Append a batch, or drop it if the consumer is gone."""
        with self._lock:
            is_dropped = self._is_released or self._failure is not None
            calls: list[Callable[[], None]] = []
            if not is_dropped:
                calls = self._listener_if_empty()
                self._append_data(sealed, lease)
                calls += self._listener_if_much_more() + self._fullness_changes()
        if is_dropped:
            lease.release()
        for call in calls:
            call()

    def add_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Append an event; dropped where the consumer is gone."""
        with self._lock:
            if self._is_released or self._failure is not None:
                return
            calls = self._listener_if_empty()
            self._queue.append(QueuedEvent(event, blocks_upstream=blocks_upstream))
            self._is_recovering |= isinstance(event, EndOfOutputChannelState)
        for call in calls:
            call()

    def add_barrier(
        self, barrier: CheckpointBarrier, capture: InFlightOutput, unsealed: SealedBatch | None
    ) -> None:
        """Add a barrier according to its options, and answer `capture`.

        `unsealed` rows are added only behind the barrier. An older barrier that has not overtaken yet stays queued, but
        its capture is abandoned: its checkpoint is over.
        """
        options = barrier.options
        overtaken: Sequence[SealedBatch] | None = ()
        calls: list[Callable[[], None]] = []
        with self._lock:
            older, self._timeoutable = self._timeoutable, None
            if self._is_released or self._failure is not None:
                pass
            elif options.is_unaligned:
                overtaken = self._data_before(len(self._queue))
                overtaken += [unsealed] if unsealed is not None else []
                calls = self._insert_with_priority(QueuedEvent(barrier, is_priority=True))
            else:
                calls = self._listener_if_empty()
                blocks = options.is_exactly_once
                self._queue.append(QueuedEvent(barrier, blocks_upstream=blocks))
                if options.is_timeoutable:
                    self._timeoutable, overtaken = (barrier, capture), None
        if older is not None:
            older[1].abandon()
        if overtaken is not None:
            capture.answer(self.index, overtaken)
        for call in calls:
            call()

    def time_out_barrier(self, checkpoint_id: int) -> None:
        """Let the barrier of this checkpoint overtake all queued batches before it; no effect if it is gone."""
        with self._lock:
            if self._timeoutable is None or self._timeoutable[0].checkpoint_id != checkpoint_id:
                return
            (barrier, capture), self._timeoutable = self._timeoutable, None
            position = next(
                place
                for place, element in enumerate(self._queue)
                if isinstance(element, QueuedEvent) and element.event is barrier
            )
            overtaken = self._data_before(position)
            del self._queue[position]
            calls = self._insert_with_priority(QueuedEvent(barrier.timed_out(), is_priority=True))
        capture.answer(self.index, overtaken)
        for call in calls:
            call()

    def resume(self) -> None:
        with self._lock:
            assert self._is_blocked, f"{self._partition_text} was resumed without being blocked"
            self._is_blocked = self._is_recovering = False
            held, self._held = self._held, []
            for barrier in held:
                self._insert_with_priority(barrier)
            calls = [self._listener] if self._view and self._queue else []
        for call in calls:
            call()

    def acknowledge_all_data(self) -> None:
        self._on_acknowledged()

    def limit_at_first(self, in_flight_rows: int) -> None:
        """Set the rows in flight that apply until the consumer announces its own limit."""
        if self._in_flight_rows is None:
            self.notify_in_flight_rows(in_flight_rows)

    def notify_in_flight_rows(self, in_flight_rows: int) -> None:
        with self._lock:
            self._in_flight_rows = in_flight_rows
            calls = self._fullness_changes()
        for call in calls:
            call()

    def create_view(
        self, listener: Callable[[], None], segment_size: int
    ) -> ResultSubpartitionView:
        """Attach the consumer, whose segments have `segment_size` bytes; `listener` is called when data arrives.

        PartitionError if a consumer was attached before: it has consumed the elements.
        """
        with self._lock:
            if self._view is not None:
                raise PartitionError(
                    self._partition_text,
                    f"subpartition {self.index} of {self._partition_text} already had a consumer",
                )
            view = PipelinedSubpartitionView(self)
            calls = self._attach(view, listener, segment_size)
        for call in calls:
            call()
        return view

    def discard(self) -> None:
        """Withdraw the partition: tell an attached consumer, and refuse others."""
        with self._lock:
            has_consumer = self._view is not None
        if has_consumer:
            self.fail("the partition was released")
        else:
            self.release()

    def fail(self, cause_text: str) -> None:
        """End without finishing: drop the queue and tell the consumer the cause."""
        with self._lock:
            if self._is_released or self._failure is not None:
                return
            self._failure = ProducerFailedError(self._partition_text, cause_text)
            timeoutable, self._timeoutable = self._timeoutable, None
            leases = self._drop_queue()
            calls = self._fullness_changes()
            if self._view is not None:
                calls.append(self._listener)
        if timeoutable is not None:
            timeoutable[1].abandon()
        self._pool.release(leases)
        for call in calls:
            call()

    def release(self) -> None:
        """Drop the queue because no consumer reads it any more. Idempotent."""
        with self._lock:
            if self._is_released:
                return
            self._is_released = True
            timeoutable, self._timeoutable = self._timeoutable, None
            leases = self._drop_queue()
            calls = self._fullness_changes()
        if timeoutable is not None:
            # Nobody will read the batches that it would have overtaken.
            timeoutable[1].answer(self.index, ())
        self._pool.release(leases)
        for call in calls:
            call()
        self._on_released()

    def poll(self, credit: int) -> Element | Stalled | None:
        calls: list[Callable[[], None]] = []
        capture: InFlightOutput | None = None
        with self._lock:
            if self._failure is not None:
                raise copy_of(self._failure)
            if not self._queue:
                return None
            if self._is_blocked and not self._priority_count:
                return None
            head = self._queue[0]
            if isinstance(head, DataElement):
                if head.cost > credit:
                    self._stalled_backlog = self._backlog
                    return Stalled(head.cost, self._backlog)
                self._stalled_backlog = None
                self._backlog -= head.cost
                self._data_count -= 1
                self._data_bytes -= head.sealed.size_bytes
                self._data_rows -= head.sealed.row_count
                calls = self._fullness_changes()
            else:
                self._priority_count -= head.is_priority
                self._is_blocked |= head.blocks_upstream
                if self._timeoutable is not None and head.event is self._timeoutable[0]:
                    capture, self._timeoutable = self._timeoutable[1], None
            self._queue.popleft()
        if capture is not None:
            capture.answer(self.index, ())
        for call in calls:
            call()
        return head

    def _attach(
        self, view: ResultSubpartitionView, listener: Callable[[], None], segment_size: int
    ) -> list[Callable[[], None]]:
        """Make `view` the consumer's; return the callbacks to call once the lock is free. Lock held."""
        is_other_size = segment_size != self._segment_size
        self._segment_size = segment_size
        self._view, self._listener = view, listener
        if is_other_size:
            self._cut_again()
        calls = self._fullness_changes()
        if self._queue or self._failure is not None:
            calls.append(listener)
        return calls

    def _insert_with_priority(self, element: QueuedEvent) -> list[Callable[[], None]]:
        """Queue an event behind those with priority, before all others; return the callbacks to call. Lock held."""
        if self._is_recovering:
            self._held.append(element)
            return []
        # Notify even if data is queued: its reader may be blocked, or without credit.
        calls = [self._listener] if self._view and not self._priority_count else []
        self._queue.insert(self._priority_count, element)
        self._priority_count += 1
        return calls

    def _data_before(self, position: int) -> list[SealedBatch]:
        """Return the batches among the first `position` elements, without restored ones. Lock held."""
        ahead = islice(self._queue, self._restored_count(), position)
        return [element.sealed for element in ahead if isinstance(element, DataElement)]

    def _restored_count(self) -> int:
        """Number of restored elements at the head, including the event behind them. Lock held."""
        if not self._is_recovering:
            return 0
        ends = (
            place
            for place, element in enumerate(self._queue, 1)
            if isinstance(element, QueuedEvent)
            and isinstance(element.event, EndOfOutputChannelState)
        )
        return next(ends, 0)

    def _listener_if_empty(self) -> list[Callable[[], None]]:
        return [self._listener] if self._view is not None and not self._queue else []

    def _listener_if_much_more(self) -> list[Callable[[], None]]:
        stalled = self._stalled_backlog
        if stalled is None or self._view is None or self._backlog <= 2 * stalled + 1:
            return []
        self._stalled_backlog = self._backlog
        return [self._listener]

    def _fullness_changes(self) -> list[Callable[[], None]]:
        """Return the calls that tell the pool of a change of fullness; to be made once the lock is free."""
        limit = self._in_flight_rows
        is_full = self._data_count >= self._max_queued or (
            limit is not None and self._data_rows >= limit
        )
        if is_full == self._is_full:
            return []
        self._is_full = is_full
        return [self._pool.channel_filled if is_full else self._pool.channel_drained]

    def _append_data(self, sealed: SealedBatch, lease: SegmentLease | None) -> None:
        pieces = sealed.cut(self._segment_size) if self.wants_bytes else [sealed]
        for piece in pieces:
            cost = self._cost_of(piece)
            self._queue.append(DataElement(piece, lease if piece is pieces[-1] else None, cost))
            self._backlog += cost
            self._data_count += 1
            self._data_bytes += piece.size_bytes
            self._data_rows += piece.row_count

    def _cost_of(self, sealed: SealedBatch) -> int:
        return max(1, -(-sealed.size_bytes // self._segment_size))

    def _cut_again(self) -> None:
        """Cut batches that were sealed before the consumer was known to its segment size."""
        waiting = list(self._queue)
        priority_count, held = self._priority_count, self._held
        self._drop_queue()
        self._priority_count, self._held = priority_count, held
        for element in waiting:
            if isinstance(element, DataElement):
                self._append_data(element.sealed, element.lease)
            else:
                self._queue.append(element)

    def _drop_queue(self) -> list[SegmentLease]:
        leases = [
            item.lease
            for item in self._queue
            if isinstance(item, DataElement) and item.lease is not None
        ]
        self._queue.clear()
        self._held = []
        self._data_count = self._data_bytes = self._data_rows = 0
        self._backlog = self._priority_count = 0
        return leases


def _nobody() -> None:
    """Do nothing: no consumer is attached."""

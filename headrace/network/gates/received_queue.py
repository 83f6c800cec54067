"""ReceivedQueue: batches and events that came on a remote channel, until the task takes them.

It is all that both threads touch: the transport's adds, the task's takes. It also keeps what a checkpoint catches.
Source: Flink RemoteInputChannel's queue of received buffers.
"""

from collections import deque
from typing import Final

import msgspec
import pyarrow as pa

from headrace.core.barriers import CheckpointBarrier
from headrace.core.elements import StreamEvent
from headrace.network.flow.credit import Charge
from headrace.network.gates.gate import BarrierAnnouncement
from headrace.network.gates.in_flight_input import CapturedBatch, InFlightInput
from headrace.network.memory.segments import Segment
from headrace.network.wire.frames import Data


class QueuedBatch(msgspec.Struct, frozen=True, gc=False):
    """A frame with what it costs."""

    frame: Data
    charge: Charge
    schema: pa.Schema | None
    segment: Segment | None
    """Place of the body in network memory."""
    is_verified: bool
    """True if the checksum was verified."""


class _QueuedEvent(msgspec.Struct, frozen=True, gc=False):
    sequence: int
    event: StreamEvent


class ReceivedQueue:
    """The queue of one channel of the TaskManager `peer`."""

    def __init__(self, peer: str) -> None:
        self._peer: Final = peer
        self._queue: Final[deque[QueuedBatch | _QueuedEvent]] = deque()
        self._priority_events: Final[deque[StreamEvent | BarrierAnnouncement]] = deque()
        self._capture: Final = InFlightInput()
        # Each is added to by one thread: the transport's what came and what it dropped, the task's what it took.
        self._received_bytes = self._dropped_bytes = self._taken_bytes = 0

    def __len__(self) -> int:
        return len(self._priority_events) + len(self._queue)

    @property
    def size_bytes(self) -> int:
        """Bytes of the batches that wait."""
        # What came is looked at last: whatever is gone by now is among it.
        gone = self._taken_bytes + self._dropped_bytes
        return self._received_bytes - gone

    @property
    def has_priority_event(self) -> bool:
        """Return whether something waits that overtakes."""
        return bool(self._priority_events)

    def add_batch(self, batch: QueuedBatch) -> None:
        """Append a batch, which belongs to a checkpoint whose barrier is waited for. The transport's thread."""
        self._received_bytes += len(batch.frame.body)
        with self._capture.lock:
            self._queue.append(batch)
            if self._capture.is_collecting:
                self._capture.add(self._captured(batch))

    def add_event(self, event: StreamEvent, sequence: int, *, has_priority: bool) -> None:
        """Append an event, or put it in front; one that may overtake later is announced. The transport's thread."""
        with self._capture.lock:
            if isinstance(event, CheckpointBarrier):
                self._capture.barrier_arrived(event.checkpoint_id, sequence)
                if event.options.is_timeoutable and self._queue and not has_priority:
                    self._priority_events.append(BarrierAnnouncement(event, sequence))
            if has_priority:
                self._priority_events.append(event)
            else:
                self._queue.append(_QueuedEvent(sequence, event))

    def take(self) -> QueuedBatch | StreamEvent | BarrierAnnouncement | None:
        """Return what is next, those with priority first. The task's thread."""
        try:
            if self._priority_events:
                return self._priority_events.popleft()
            item = self._queue.popleft()
        except IndexError:
            # Also where a canceller has just emptied it.
            return None
        if isinstance(item, _QueuedEvent):
            return item.event
        self._taken_bytes += len(item.frame.body)
        return item

    def prioritise(self, sequence: int) -> None:
        """Have the event with this sequence overtake; no effect where it was taken already."""
        with self._capture.lock:
            for place, item in enumerate(self._queue):
                if isinstance(item, _QueuedEvent) and item.sequence == sequence:
                    del self._queue[place]
                    self._priority_events.append(item.event)
                    break

    def start_capture(self, checkpoint_id: int) -> None:
        capture = self._capture
        with capture.lock:
            end = capture.start(checkpoint_id)
            for item in self._queue:
                if isinstance(item, QueuedBatch) and (end is None or item.frame.sequence < end):
                    capture.add(self._captured(item))

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        with self._capture.lock:
            return self._capture.stop(checkpoint_id)

    def clear(self) -> list[Charge]:
        """Drop the batches and events that wait in line; return what the batches cost. The transport's thread."""
        charges: list[Charge] = []
        with self._capture.lock:
            # One by one: the task may still be taking some, whose cost it returns itself.
            while self._queue:
                try:
                    item = self._queue.popleft()
                except IndexError:
                    break
                if isinstance(item, QueuedBatch):
                    self._dropped_bytes += len(item.frame.body)
                    charges.append(item.charge)
        return charges

    def _captured(self, batch: QueuedBatch) -> CapturedBatch:
        frame = batch.frame
        return CapturedBatch.of_message(
            frame.body,
            batch.schema,
            frame.row_count,
            frame.markers,
            self._peer,
            batch.is_verified,
        )

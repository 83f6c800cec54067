"""SingleInputGate: the channels of one edge of one subtask, read in turn, and their recovery after a restart.

ReadyChannels queues the channels that have elements to read. UpstreamRecovery tracks which channels have
delivered all that their senders had to send again. Source: Flink SingleInputGate, UpstreamRecoveryTracker.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from headrace.core.elements import CancelTaskException, EndOfOutputChannelState, EndOfPartition
from headrace.core.ids import ResultPartitionId
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.flow.buffer_debloater import BATCHES_IN_FLIGHT
from headrace.network.gates.buffer_manager import BufferManager
from headrace.network.gates.gate import (
    BatchElement,
    DeliveredElement,
    EndOfInputChannelState,
    EventElement,
    GateElement,
    InputChannel,
)
from headrace.network.gates.in_flight_input import CapturedBatch
from headrace.network.gates.partition_requests import AnswerVerdict, CheckProducer, ProducerVerdict
from headrace.network.gates.recovered_channel import RecoveredInputChannel

LOCAL_CAPACITY_BYTES: Final = 2 << 20
"""Assumed capacity in bytes of a local channel, which credit does not bound."""


class ReadyChannels:
    """Queues the channels of a gate that have elements to read, and calls back when one becomes available.

    Each channel is queued at most once, those with priority events in front. A union of gates queues its gates in the
    same way. `next` is called on the task's thread, the rest on any.
    """

    def __init__(self, channel_count: int) -> None:
        # Channels notify from the transport's and from producers' threads.
        self._lock: Final = threading.Lock()
        self._ready: deque[int] = deque()
        self._is_queued: Final = [False] * channel_count
        self._priority_channels: set[int] = set()
        self._callbacks: list[Callable[[], None]] = []
        self._priority_callbacks: list[Callable[[], None]] = []
        # A gate without channels is finished at once.
        self._is_over = channel_count == 0

    @property
    def is_available(self) -> bool:
        """Return whether a channel is queued, or the gate has ended."""
        return bool(self._ready) or self._is_over

    @property
    def has_priority(self) -> bool:
        """Return whether a channel with priority events is queued."""
        return bool(self._priority_channels)

    def add(self, index: int, *, has_priority: bool) -> None:
        """Queue channel `index`, which may have elements; queueing it without elements only costs a check."""
        callbacks: list[Callable[[], None]] = []
        with self._lock:
            if has_priority and index not in self._priority_channels:
                self._put_in_front(index)
                callbacks, self._priority_callbacks = self._priority_callbacks, []
            elif self._is_queued[index]:
                return
            else:
                self._ready.append(index)
            self._is_queued[index] = True
            callbacks += self._take_callbacks()
        for callback in callbacks:
            callback()

    def next(self) -> int | None:
        """Take the next channel out of the queue; None if the queue is empty."""
        with self._lock:
            if not self._ready:
                return None
            index = self._ready.popleft()
            self._is_queued[index] = False
            self._priority_channels.discard(index)
            return index

    def end(self) -> None:
        """Call all waiting callbacks, now and from now on, because the gate is finished or closed."""
        with self._lock:
            self._is_over = True
            callbacks = self._take_callbacks()
        for callback in callbacks:
            callback()

    def on_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as a channel is queued or the gate has ended; immediately if so now."""
        with self._lock:
            if not self.is_available:
                if callback not in self._callbacks:
                    self._callbacks.append(callback)
                return
        callback()

    def on_priority(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as a channel has priority events; immediately if one has now."""
        with self._lock:
            if not self._priority_channels:
                if callback not in self._priority_callbacks:
                    self._priority_callbacks.append(callback)
                return
        callback()

    def _put_in_front(self, index: int) -> None:
        """Queue a channel behind earlier ones with priority, and before all others."""
        if self._is_queued[index]:
            self._ready.remove(index)
        self._ready.insert(len(self._priority_channels), index)
        self._priority_channels.add(index)

    def _take_callbacks(self) -> list[Callable[[], None]]:
        callbacks, self._callbacks = self._callbacks, []
        return callbacks


class SingleInputGate:
    """Input gate with the channels of one edge.

    `read_as`, `request_partitions` and `poll` are called on the task's thread, the rest on any.
    """

    def __init__(self, receiver: BufferManager | None) -> None:
        self._batch_type: BatchType | None = None
        self._check_producer: CheckProducer | None = None
        self._receiver = receiver
        self._channels: list[InputChannel] = []
        self._no_rows: RecordBatch | None = None
        self._recovered_count = 0
        self._on_recovered: Callable[[int], None] | None = None
        self._capture_id: int | None = None
        # Batches of recovered channels that were drained since the capture began.
        self._captured_of_recovered: list[tuple[int, CapturedBatch]] = []
        # Guards `_is_closed`: the task and a cancelling thread may both close the gate.
        self._lock = threading.Lock()
        self._turns = ReadyChannels(0)
        self._open_count = 0
        self._is_closed = False
        self.records_in = 0
        self.bytes_in_local = 0
        self.bytes_in_remote = 0
        self.buffers_in_local = 0
        self.buffers_in_remote = 0

    def serve(self, channels: Sequence[InputChannel]) -> None:
        """Set the channels in the order of their indices, before any other call."""
        self._channels = list(channels)
        self._turns = ReadyChannels(len(channels))
        self._open_count = len(channels)
        recover_together([self])

    def restore(self, index: int, batches: Sequence[SealedBatch]) -> None:
        """Deliver `batches`, the in-flight rows of a checkpoint, as rows of channel `index`, before new ones.

        Call before partitions are requested. Task's thread.
        """
        if not batches:
            return
        channel = self._channels[index]
        if not isinstance(channel, RecoveredInputChannel):
            channel = self._channels[index] = RecoveredInputChannel(channel)
            self._recovered_count += 1
        channel.restore(batches)
        self.notify(index)

    def on_recovered(self, callback: Callable[[int], None]) -> None:
        """Call `callback` with each channel whose sender has sent all of its restored rows.

        Set before partitions are requested; without a callback the gate recovers by itself.
        """
        self._on_recovered = callback

    def check_producers_with(self, check: CheckProducer) -> None:
        """Set the function asked before a partition that was not found is requested again. Call before any request."""
        self._check_producer = check

    def check_producer(self, partition_id: ResultPartitionId, answer: AnswerVerdict) -> None:
        """Ask, for a channel, how to react to a partition that was not found. Any thread."""
        if self._check_producer is None:
            answer(ProducerVerdict.ASK_AGAIN)
        else:
            self._check_producer(partition_id, answer)

    def read_as(self, batch_type: BatchType) -> None:
        """Set the type of the rows, which only the reading task knows. Call before any request."""
        self._batch_type = batch_type
        self._no_rows = RecordBatch.of_rows(batch_type, [])

    @property
    def number_of_channels(self) -> int:
        return len(self._channels)

    @property
    def is_finished(self) -> bool:
        return self._open_count == 0

    @property
    def is_closed(self) -> bool:
        """Return whether the gate is closed."""
        return self._is_closed

    @property
    def is_available(self) -> bool:
        return self._turns.is_available or self._is_closed

    @property
    def has_priority_event(self) -> bool:
        return self._turns.has_priority

    @property
    def channels(self) -> Sequence[InputChannel]:
        """Current channels by index."""
        return self._channels

    @property
    def queue_length(self) -> int:
        """Number of elements queued in all channels."""
        return sum(channel.queued_count for channel in self._channels)

    @property
    def queued_bytes(self) -> int:
        """Bytes of the batches queued in all channels."""
        return sum(channel.queued_bytes for channel in self._channels)

    @property
    def capacity_bytes(self) -> int:
        """Most bytes that may be in flight to the remote channels; an assumed capacity if all channels are local."""
        if self._receiver is not None:
            return self._receiver.segment_count * self._receiver.segment_size
        return len(self._channels) * LOCAL_CAPACITY_BYTES

    @property
    def bytes_in(self) -> int:
        """Bytes taken from all channels."""
        return self.bytes_in_local + self.bytes_in_remote

    @property
    def buffers_in(self) -> int:
        """Batches taken from all channels."""
        return self.buffers_in_local + self.buffers_in_remote

    @property
    def receiver(self) -> BufferManager | None:
        """Segments and credits of the remote channels; None if every channel is local."""
        return self._receiver

    @property
    def segment_count(self) -> int:
        """Number of segments set aside for remote channels."""
        return 0 if self._receiver is None else self._receiver.segment_count

    @property
    def used_segment_count(self) -> int:
        """Number of these segments that hold batches."""
        return 0 if self._receiver is None or self._is_closed else self._receiver.used_count

    def request_partitions(self) -> None:
        """Start reading: first the restored rows, then all channels once those are drained. `poll` raises errors."""
        assert self._batch_type is not None, "read_as() comes first"
        if not self._recovered_count:
            self._request_channels()
        for index, channel in enumerate(self._channels):
            if isinstance(channel, RecoveredInputChannel):
                channel.request()
                self.notify(index)

    def _request_channels(self) -> None:
        for channel in self._channels:
            channel.request()

    def poll(self) -> GateElement | None:
        while True:
            if self._is_closed:
                raise CancelTaskException("the task's input was closed")
            index = self._turns.next()
            if index is None:
                if self._receiver is not None:
                    self._receiver.flush()
                return None
            channel = self._channels[index]
            received = channel.poll()
            if received is None:
                continue
            if isinstance(received, EndOfInputChannelState):
                self._channel_recovered(index)
                continue
            if channel.queued_count:
                self.notify(index)
            if isinstance(received, EndOfOutputChannelState):
                assert self._on_recovered is not None
                self._on_recovered(index)
                continue
            return self._to_element(index, channel.is_local, received)

    def on_available(self, callback: Callable[[], None]) -> None:
        self._turns.on_available(callback)

    def limit_in_flight(self, in_flight_rows: int) -> None:
        """Limit the rows queued at the producers, and those in the buffers here, to about `in_flight_rows` each.

        Divided evenly among open channels; one batch on each is always allowed. Task's thread.
        """
        share = max(1, in_flight_rows // max(1, self._open_count))
        for channel in self._channels:
            channel.request_in_flight_rows(share)
        if self._receiver is not None:
            self._receiver.limit_in_flight(self._segments_of(share, self._receiver))

    def _segments_of(self, row_count: int, receiver: BufferManager) -> int:
        """Return the segments needed for `row_count` rows of average size; at least one per batch."""
        size_bytes = row_count * self.bytes_in // max(1, self.records_in)
        return max(min(BATCHES_IN_FLIGHT, row_count), -(-size_bytes // receiver.segment_size))

    def on_priority_event(self, callback: Callable[[], None]) -> None:
        self._turns.on_priority(callback)

    def resume(self, channel_index: int) -> None:
        self._channels[channel_index].resume()

    def prioritise(self, channel_index: int, sequence: int) -> None:
        self._channels[channel_index].prioritise(sequence)

    def start_capture(self, checkpoint_id: int) -> None:
        """Start to capture in-flight batches for an unaligned checkpoint on every channel. Task's thread.

        Call at its first barrier, before the next `poll`.
        """
        self._captured_of_recovered = []
        self._capture_id = checkpoint_id
        for channel in self._channels:
            channel.start_capture(checkpoint_id)

    def stop_capture(self, checkpoint_id: int) -> list[tuple[int, CapturedBatch]]:
        """Return the captured batches with their channel indices, in the order in which they must be read again.

        Call at the last barrier, or to drop the batches of an aborted checkpoint. Task's thread.
        """
        if checkpoint_id != self._capture_id:
            return []
        captured, self._captured_of_recovered = self._captured_of_recovered, []
        self._capture_id = None
        for index, channel in enumerate(self._channels):
            captured += [(index, batch) for batch in channel.stop_capture(checkpoint_id)]
        return captured

    def acknowledge_all_data(self, channel_index: int) -> None:
        self._channels[channel_index].acknowledge_all_data()

    def notify(self, index: int) -> None:
        """Queue channel `index`, which may have elements. Any thread; a needless call only costs a check."""
        self._turns.add(index, has_priority=self._channels[index].has_priority_event)

    def close(self) -> None:
        """Stop reading and return all segments. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        for channel in self._channels:
            channel.close()
        if self._receiver is not None:
            self._receiver.close()
        self._turns.end()

    def _to_element(self, index: int, is_local: bool, received: DeliveredElement) -> GateElement:
        if not isinstance(received, SealedBatch):
            if isinstance(received, EndOfPartition):
                self._open_count -= 1
                if not self._open_count:
                    self._turns.end()
            return EventElement(index, received)
        self.records_in += received.row_count
        if is_local:
            self.bytes_in_local += received.size_bytes
            self.buffers_in_local += 1
        else:
            self.bytes_in_remote += received.size_bytes
            self.buffers_in_remote += 1
        assert self._batch_type is not None and self._no_rows is not None
        if received.arrow is None:
            return BatchElement(index, self._no_rows, received.markers)
        batch = RecordBatch.from_arrow(self._batch_type, received.arrow)
        return BatchElement(index, batch, received.markers)

    def _channel_recovered(self, index: int) -> None:
        """Replace a drained recovered channel by its successor."""
        recovered = self._channels[index]
        assert isinstance(recovered, RecoveredInputChannel)
        successor = self._channels[index] = recovered.successor
        if self._capture_id is not None:
            captured = recovered.stop_capture(self._capture_id)
            self._captured_of_recovered += [(index, batch) for batch in captured]
            successor.start_capture(self._capture_id)
        self._recovered_count -= 1
        if not self._recovered_count:
            self._request_channels()


class UpstreamRecovery:
    """Tracks which channels of a task have delivered all restored rows of their senders. Pure.

        sender     restored rows, EndOfOutputChannelState │ blocked │ new rows
        gates      … until every channel of all gates has delivered the event: then all of them are resumed

    Rows that one sender had sent before a checkpoint may be followed by rows of another one, which took over after a
    rescaling: so nothing new is read of any channel before all that was restored.

    Flink has a tracker for each gate. Here one tracker serves all gates of a task that exchange records without storing
    them: otherwise the next barrier may arrive on one gate while another gate still has restored rows to
    read. Those would be stored together with new rows of their gate, and change places in the
    restart after that. No deadlock arises: senders hand over restored rows before they read, whatever becomes
    of them. Source: Flink UpstreamRecoveryTracker.
    """

    def __init__(self, channel_counts: Sequence[int]) -> None:
        self._channels = [
            (gate, channel) for gate, count in enumerate(channel_counts) for channel in range(count)
        ]
        self._recovered: set[tuple[int, int]] = set()

    def recovered(self, gate: int, channel: int) -> Sequence[tuple[int, int]]:
        """Record, once per channel, its EndOfOutputChannelState; return the gates and channels to resume now."""
        place = (gate, channel)
        assert place not in self._recovered, f"channel {channel} of gate {gate} recovered twice"
        self._recovered.add(place)
        return self._channels if len(self._recovered) == len(self._channels) else ()


def recover_together(gates: Sequence["SingleInputGate"]) -> None:
    """Read no new rows on any of `gates` before the restored rows of all of them. Task's thread."""
    recovery = UpstreamRecovery([gate.number_of_channels for gate in gates])

    def recovered(gate: int, channel: int) -> None:
        for number, index in recovery.recovered(gate, channel):
            gates[number].resume(index)

    for number, gate in enumerate(gates):
        gate.on_recovered(partial(recovered, number))

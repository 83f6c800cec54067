"""InputGate: everything one subtask reads along one edge, one element at a time, channels in turn.

Source: Flink SingleInputGate.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from headrace.core.elements import CancelTaskException, EndOfPartition, PlacedMarker, StreamEvent
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.network.channels import InputChannel, ReceivedBatch
from headrace.network.receiver import GateReceiver


class BatchElement(msgspec.Struct, frozen=True, gc=False):
    """Rows of one channel with the markers between them; `batch` may have no rows, then there are only markers."""

    channel_index: int
    batch: RecordBatch
    markers: tuple[PlacedMarker, ...]


class EventElement(msgspec.Struct, frozen=True, gc=False):
    """An event of one channel."""

    channel_index: int
    event: StreamEvent


GateElement = BatchElement | EventElement


class InputGate:
    """Channels of one edge.

    `read_as`, `request_partitions` and `poll` are for the task's thread, the rest for any.
    """

    def __init__(self, receiver: GateReceiver | None = None) -> None:
        self._batch_type: BatchType | None = None
        self._receiver = receiver
        self._channels: Sequence[InputChannel] = ()
        self._no_rows: RecordBatch | None = None
        # Guards the fields below: channels notify from the transport's and from producers' threads.
        self._lock = threading.Lock()
        self._ready: deque[int] = deque()
        self._is_queued: list[bool] = []
        self._callbacks: list[Callable[[], None]] = []
        self._open_count = 0
        self._is_closed = False
        self.records_in = 0
        self.bytes_in_local = 0
        self.bytes_in_remote = 0
        self.buffers_in_local = 0
        self.buffers_in_remote = 0

    def serve(self, channels: Sequence[InputChannel]) -> None:
        """Name the channels, in the order of their indices, before anything else."""
        self._channels = channels
        self._is_queued = [False] * len(channels)
        self._open_count = len(channels)

    def read_as(self, batch_type: BatchType) -> None:
        """Say what the rows are, before anything is requested: only the task that reads them can know."""
        self._batch_type = batch_type
        self._no_rows = RecordBatch.of_rows(batch_type, [])

    @property
    def number_of_channels(self) -> int:
        """Channels, open or ended."""
        return len(self._channels)

    @property
    def is_finished(self) -> bool:
        """Whether every channel has delivered its EndOfPartition."""
        return self._open_count == 0

    @property
    def is_available(self) -> bool:
        """Whether `poll` may have something, or the gate is finished or closed."""
        return bool(self._ready) or self._open_count == 0 or self._is_closed

    @property
    def queue_length(self) -> int:
        """Elements that wait in all channels."""
        return sum(channel.queued_count for channel in self._channels)

    @property
    def bytes_in(self) -> int:
        """Bytes taken from all channels."""
        return self.bytes_in_local + self.bytes_in_remote

    @property
    def buffers_in(self) -> int:
        """Batches taken from all channels."""
        return self.buffers_in_local + self.buffers_in_remote

    @property
    def receiver(self) -> GateReceiver | None:
        """Segments and credits of the remote channels; None where every channel is local."""
        return self._receiver

    @property
    def segment_count(self) -> int:
        """Segments that were set aside for remote channels."""
        return 0 if self._receiver is None else self._receiver.segment_count

    @property
    def used_segment_count(self) -> int:
        """Segments among them that hold batches."""
        return 0 if self._receiver is None or self._is_closed else self._receiver.used_count

    def request_partitions(self) -> None:
        """Begin to read all channels. Errors come out of `poll`."""
        assert self._batch_type is not None, "read_as() comes first"
        for channel in self._channels:
            channel.request()

    def poll(self) -> GateElement | None:
        """Return the next element of the channel whose turn it is, or None if there is nothing now.

        Raises the error of a channel when its turn comes, and CancelTaskException after close.
        """
        while True:
            if self._is_closed:
                raise CancelTaskException("the task's input was closed")
            index = self._next_ready()
            if index is None:
                if self._receiver is not None:
                    self._receiver.flush()
                return None
            channel = self._channels[index]
            received = channel.poll()
            if received is None:
                continue
            if channel.queued_count:
                self.notify(index)
            return self._to_element(index, channel.is_local, received)

    def on_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from any thread, as soon as the gate is available; now if it is."""
        with self._lock:
            if not self.is_available:
                if callback not in self._callbacks:
                    self._callbacks.append(callback)
                return
        callback()

    def notify(self, index: int) -> None:
        """Channel `index` may have something. Any thread; one time too many costs a look."""
        with self._lock:
            if self._is_queued[index]:
                return
            self._is_queued[index] = True
            self._ready.append(index)
            callbacks = self._take_callbacks()
        for callback in callbacks:
            callback()

    def close(self) -> None:
        """Stop reading and give everything back. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            callbacks = self._take_callbacks()
        for channel in self._channels:
            channel.close()
        if self._receiver is not None:
            self._receiver.close()
        for callback in callbacks:
            callback()

    def _next_ready(self) -> int | None:
        with self._lock:
            if not self._ready:
                return None
            index = self._ready.popleft()
            self._is_queued[index] = False
            return index

    def _to_element(
        self, index: int, is_local: bool, received: ReceivedBatch | StreamEvent
    ) -> GateElement:
        if not isinstance(received, ReceivedBatch):
            if isinstance(received, EndOfPartition):
                self._channel_ended()
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

    def _channel_ended(self) -> None:
        with self._lock:
            self._open_count -= 1
            callbacks = self._take_callbacks() if self._open_count == 0 else []
        for callback in callbacks:
            callback()

    def _take_callbacks(self) -> list[Callable[[], None]]:
        callbacks, self._callbacks = self._callbacks, []
        return callbacks

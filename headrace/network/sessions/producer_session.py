"""ProducerSession: the sending half of a connection, with one reader for each channel that the peer consumes here.

Readers that have data and credit take turns of QUANTUM_BYTES each (deficit round robin), so that a channel
with small batches gets the same share as one with large ones. The last frame of a turn may exceed it: that debt is
deducted from the next turns, which the reader skips while the debt is larger. So a reader whose largest frame has
`L` bytes waits for at most ceil(L / quantum) turns of each other reader. Control frames go first.
Source: Flink PartitionRequestQueue; Shreedhar and Varghese 1995.
"""

from collections import deque
from functools import partial
from typing import Final

from headrace.core.elements import EndOfPartition
from headrace.network.errors import (
    NetworkError,
    PartitionNotFoundError,
    ProtocolError,
    RecordTooLargeError,
)
from headrace.network.flow.credit import SenderAccount
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.result_subpartition import DataElement, QueuedEvent, Stalled
from headrace.network.sessions.partition_request_listener import PartitionRequestListener
from headrace.network.sessions.sequence_numbering_view_reader import SequenceNumberingViewReader
from headrace.network.sessions.transport import Link, Transport
from headrace.network.wire.frames import (
    TEXT_BYTES_MAX,
    AckAllUserRecordsProcessed,
    AddCredit,
    Cancel,
    ChannelMessage,
    Data,
    Error,
    ErrorCode,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
)
from headrace.network.wire.framing import PREFIX, Body, encode

QUANTUM_BYTES: Final = 256 * 1024
FRAME_BYTES: Final = PREFIX.size + Data.LAYOUT.size
"""Bytes of a frame without its body, which count as well: tiny batches and events use up a turn too."""


class ProducerSession:
    """Serves the channels of one peer. Everything runs on the transport's thread, except the notifications of views."""

    def __init__(
        self,
        partitions: ResultPartitionManager,
        transport: Transport,
        link: Link,
        request_timeout_ms: float,
        quantum_bytes: int = QUANTUM_BYTES,
        has_checksums: bool = False,
    ) -> None:
        self._has_checksums = has_checksums
        self._quantum_bytes = quantum_bytes
        self._partitions = partitions
        self._transport = transport
        self._link = link
        self._request_timeout_ms = request_timeout_ms
        self._readers: dict[int, SequenceNumberingViewReader] = {}
        self._ready: deque[SequenceNumberingViewReader] = deque()
        # Appended to by any thread.
        self._notified: deque[SequenceNumberingViewReader] = deque()
        self._control: list[Body] = []
        self._last_channel = -1

    @property
    def reader_count(self) -> int:
        """Number of channels that are served or wait for their partition."""
        return len(self._readers)

    @property
    def has_output_left(self) -> bool:
        return bool(self._ready)

    def account_of(self, channel: int) -> SenderAccount | None:
        """Return the credit account of a channel that is served here, for observers; None if there is none."""
        reader = self._readers.get(channel)
        return None if reader is None else reader.account

    def partition_requested(self, request: PartitionRequest) -> None:
        """Attach a reader for the requested subpartition; wait for a while if the partition is not registered yet."""
        if request.channel <= self._last_channel:
            raise ProtocolError(self._link.peer, f"channel {request.channel} was requested twice")
        self._last_channel = request.channel
        if request.segment_size < 1 or request.initial_credit < 1:
            raise ProtocolError(self._link.peer, f"the request is invalid: {request}")
        reader = SequenceNumberingViewReader(
            request, self._link.peer, has_checksums=self._has_checksums
        )
        self._readers[request.channel] = reader
        if not self._attach(reader):
            self._await_partition(reader)

    def channel_message_received(self, frame: ChannelMessage) -> None:
        """Process a consumer's message for one of its channels; ignored if the channel has ended meanwhile."""
        reader = self._readers.get(frame.channel)
        if reader is None:
            return
        match frame:
            case AddCredit():
                reader.add_credit(frame.credit_count)
                self._enqueue(reader)
            case ResumeConsumption():
                reader.resume()
                self._enqueue(reader)
            case AckAllUserRecordsProcessed():
                reader.acknowledge_all_data()
            case NewBufferSize():
                reader.notify_in_flight_rows(frame.in_flight_rows)
            case Cancel():
                del self._readers[frame.channel]
                reader.release()

    def take_output(self, budget_bytes: int) -> list[Body]:
        """Return buffers to write, with about `budget_bytes` of data; empty if nothing can be sent now."""
        output, self._control = self._control, []
        while self._notified:
            reader = self._notified.popleft()
            self._send_priority_events(reader, output)
            self._enqueue(reader)
        leases: dict[LocalBufferPool, list[SegmentLease]] = {}
        while self._ready and budget_bytes > 0:
            reader = self._ready.popleft()
            reader.is_queued = False
            budget_bytes -= self._serve(reader, output, leases)
        for pool, released in leases.items():
            # The bytes are passed on now; the transport bounds its own queue.
            pool.release(released)
        output += self._control
        self._control = []
        return output

    def close(self) -> None:
        """Release all readers because the connection has ended."""
        readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            reader.release()

    def _attach(self, reader: SequenceNumberingViewReader) -> bool:
        """Connect a reader with its subpartition; return False if it does not exist yet."""
        request = reader.request

        def data_available() -> None:
            self._notified.append(reader)
            self._link.wake()

        try:
            view = self._partitions.create_view(
                request.partition_id,
                request.subpartition_index,
                data_available,
                request.segment_size,
                request.first_sequence,
            )
        except PartitionNotFoundError:
            return False
        except NetworkError as error:
            self._fail_channel(reader, ErrorCode.PRODUCER_FAILED, error)
            return True
        reader.attach(view)
        self._enqueue(reader)
        return True

    def _await_partition(self, reader: SequenceNumberingViewReader) -> None:
        reader.listener = PartitionRequestListener(
            reader.request.partition_id,
            self._partitions,
            self._transport,
            self._request_timeout_ms,
            partial(self._attach_late, reader),
            partial(self._refuse, reader),
        )

    def _attach_late(self, reader: SequenceNumberingViewReader) -> None:
        if self._readers.get(reader.request.channel) is reader and reader.view is None:
            reader.stop_waiting()
            if self._attach(reader):
                self._link.wake()
            else:
                self._refuse(reader)

    def _refuse(self, reader: SequenceNumberingViewReader) -> None:
        error = PartitionNotFoundError(str(reader.request.partition_id), "the producer's")
        self._fail_channel(reader, ErrorCode.PARTITION_NOT_FOUND, error)
        self._link.wake()

    def _enqueue(self, reader: SequenceNumberingViewReader) -> None:
        if not reader.is_queued and reader.view is not None:
            reader.is_queued = True
            self._ready.append(reader)

    def _serve(
        self,
        reader: SequenceNumberingViewReader,
        output: list[Body],
        leases: dict[LocalBufferPool, list[SegmentLease]],
    ) -> int:
        """Send the frames of one turn; return their number of bytes."""
        if reader.view is None:
            return 0
        sent = 0
        reader.deficit += self._quantum_bytes
        while reader.deficit > 0:
            try:
                element = reader.poll()
            except RecordTooLargeError as error:
                self._fail_channel(reader, ErrorCode.RECORD_TOO_LARGE, error)
                return sent
            except NetworkError as error:
                self._fail_channel(reader, ErrorCode.PRODUCER_FAILED, error)
                return sent
            if isinstance(element, DataElement):
                reader.write_data(element, output)
                size = FRAME_BYTES + element.sealed.size_bytes
                if element.lease is not None:
                    leases.setdefault(element.lease.pool, []).append(element.lease)
            elif isinstance(element, QueuedEvent):
                reader.write_event(element, output)
                size = FRAME_BYTES
            else:
                if isinstance(element, Stalled):
                    reader.write_backlog(element, self._control)
                reader.deficit = 0
                return sent
            reader.deficit -= size
            sent += size
            if isinstance(element, QueuedEvent) and isinstance(element.event, EndOfPartition):
                self._readers.pop(reader.request.channel, None)
                reader.release()
                return sent
        self._enqueue(reader)
        return sent

    def _send_priority_events(
        self, reader: SequenceNumberingViewReader, output: list[Body]
    ) -> None:
        """Send events with priority, which wait neither for a turn nor for credit."""
        while reader.view is not None and reader.view.has_priority_event:
            try:
                element = reader.poll()
            except NetworkError:
                return  # The reader's turn raises the same error.
            assert isinstance(element, QueuedEvent)
            reader.write_event(element, output)

    def _fail_channel(
        self, reader: SequenceNumberingViewReader, code: int, error: NetworkError
    ) -> None:
        self._readers.pop(reader.request.channel, None)
        reader.release()
        text = str(error).encode()[:TEXT_BYTES_MAX]
        self._control += encode(Error(reader.request.channel, code, text))

"""ProducerSession: the sending half of a connection, one reader per channel that the peer consumes here.

Readers that have data and credit take turns; a turn is worth QUANTUM_BYTES (deficit round robin), so that a channel
with small batches gets the same share as one with large ones. The last frame of a turn may go beyond it: that debt is
paid by the next turns, which the reader skips if it is larger than they are worth. So a reader whose largest frame has
`L` bytes waits for at most ceil(L / quantum) turns of each other. Control frames go first.
Source: Flink PartitionRequestQueue, CreditBasedSequenceNumberingViewReader; Shreedhar and Varghese 1995.
"""

from collections import deque
from functools import partial
from typing import Final

from headrace.core.elements import EndOfData, EndOfPartition
from headrace.core.process.failpoints import Failpoint, reach
from headrace.network.batches.sealed_batch import SchemaAnnouncer, encode_event
from headrace.network.errors import (
    NetworkError,
    PartitionNotFoundError,
    ProtocolError,
    RecordTooLargeError,
)
from headrace.network.flow.credit import SenderAccount
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.result_subpartition import (
    DataElement,
    QueuedEvent,
    Stalled,
    SubpartitionView,
    refuse_if_too_large,
)
from headrace.network.sessions.partition_request_listener import PartitionRequestListener
from headrace.network.sessions.transport import Link, Transport
from headrace.network.wire.frames import (
    TEXT_BYTES_MAX,
    AckAllUserRecordsProcessed,
    AddCredit,
    Backlog,
    Cancel,
    ChannelMessage,
    Data,
    Error,
    ErrorCode,
    Event,
    EventTrait,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    Schema,
)
from headrace.network.wire.framing import PREFIX, Body, encode

QUANTUM_BYTES: Final = 256 * 1024
FRAME_BYTES: Final = PREFIX.size + Data.LAYOUT.size
"""What a frame takes beside its body: a channel of tiny batches, or of events, pays for its turns too."""


class _Reader:
    """One channel of the peer."""

    __slots__ = (
        "account",
        "announcer",
        "awaits_acknowledgement",
        "deficit",
        "in_flight_rows",
        "is_blocked",
        "is_queued",
        "parked",
        "request",
        "sequence",
        "view",
    )

    def __init__(self, request: PartitionRequest) -> None:
        self.request: Final = request
        self.account: Final = SenderAccount(request.initial_credit)
        self.announcer: Final = SchemaAnnouncer()
        self.view: SubpartitionView | None = None
        self.sequence = request.first_sequence
        self.deficit = 0
        self.is_queued = False
        # As the consumer knows it: such an event was sent, and no resume has come.
        self.is_blocked = False
        self.awaits_acknowledgement = False
        # What the consumer wished for last, also before there was a view to tell.
        self.in_flight_rows: int | None = None
        self.parked: PartitionRequestListener | None = None


class ProducerSession:
    """Readers of one peer. Everything runs on the transport's thread, except the notifications of views."""

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
        self._readers: dict[int, _Reader] = {}
        self._ready: deque[_Reader] = deque()
        self._notified: deque[_Reader] = deque()  # appended to by any thread
        self._control: list[Body] = []
        self._last_channel = -1
        self.ignored_frame_count = 0

    @property
    def reader_count(self) -> int:
        """Channels that are served, or wait for their partition."""
        return len(self._readers)

    @property
    def has_output_left(self) -> bool:
        return bool(self._ready)

    def partition_requested(self, request: PartitionRequest) -> None:
        """Attach a reader; one that comes before its partition is parked for a while."""
        if request.channel <= self._last_channel:
            raise ProtocolError(self._link.peer, f"channel {request.channel} was requested twice")
        self._last_channel = request.channel
        if request.segment_size < 1 or request.initial_credit < 1:
            raise ProtocolError(self._link.peer, f"an impossible request: {request}")
        reader = _Reader(request)
        self._readers[request.channel] = reader
        if not self._attach(reader):
            self._park(reader)

    def channel_message_received(self, frame: ChannelMessage) -> None:
        """Take what the consumer says of one of its channels; of one that has ended meanwhile it means nothing."""
        reader = self._readers.get(frame.channel)
        if reader is None:
            self.ignored_frame_count += 1
            return
        match frame:
            case Cancel():
                del self._readers[frame.channel]
                self._dismiss(reader)
            case AddCredit():
                self._credit_added(reader, frame)
            case ResumeConsumption():
                self._resumed(reader)
            case AckAllUserRecordsProcessed():
                self._acknowledged(reader)
            case NewBufferSize():
                self._require(reader, frame.in_flight_rows > 0, "asks for no rows in flight")
                reader.in_flight_rows = frame.in_flight_rows
                if reader.view is not None:
                    reader.view.notify_in_flight_rows(frame.in_flight_rows)

    def _credit_added(self, reader: _Reader, frame: AddCredit) -> None:
        self._require(reader, frame.credit_count > 0, "grants no credit")
        credit, most = reader.account.credit + frame.credit_count, reader.request.credit_max
        self._require(reader, credit <= most, f"grants {credit} credits and can hold {most}")
        reader.account.grant(frame.credit_count)
        self._enqueue(reader)

    def _resumed(self, reader: _Reader) -> None:
        self._require(reader, reader.is_blocked, "is resumed without being blocked")
        assert reader.view is not None
        reader.is_blocked = False
        reader.view.resume()
        self._enqueue(reader)

    def _acknowledged(self, reader: _Reader) -> None:
        is_due = reader.awaits_acknowledgement
        self._require(reader, is_due, "acknowledges an end of data that it was not sent")
        assert reader.view is not None
        reader.awaits_acknowledgement = False
        reader.view.acknowledge_all_data()

    def _require(self, reader: _Reader, condition: bool, otherwise: str) -> None:
        if not condition:
            channel = reader.request.channel
            raise ProtocolError(self._link.peer, f"channel {channel} {otherwise}")

    def account_of(self, channel: int) -> SenderAccount | None:
        """Return the account of a channel that is served here, for observers."""
        reader = self._readers.get(channel)
        return None if reader is None else reader.account

    def take_output(self, budget_bytes: int) -> list[Body]:
        """Return buffers to write, about `budget_bytes` of data; empty when nothing can be sent now."""
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
            # The bytes are on their way now; the transport bounds how many of them wait in it.
            pool.release(released)
        output += self._control
        self._control = []
        return output

    def close(self) -> None:
        """The connection has ended: its consumers are gone."""
        readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            self._dismiss(reader)

    def _attach(self, reader: _Reader) -> bool:
        request = reader.request

        def data_available() -> None:
            self._notified.append(reader)
            self._link.wake()

        try:
            reader.view = self._partitions.create_view(
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
        if reader.in_flight_rows is not None:
            reader.view.notify_in_flight_rows(reader.in_flight_rows)
        self._enqueue(reader)
        return True

    def _park(self, reader: _Reader) -> None:
        reader.parked = PartitionRequestListener(
            reader.request.partition_id,
            self._partitions,
            self._transport,
            self._request_timeout_ms,
            partial(self._attach_parked, reader),
            partial(self._refuse_parked, reader),
        )

    def _attach_parked(self, reader: _Reader) -> None:
        if self._readers.get(reader.request.channel) is reader and reader.view is None:
            self._unpark(reader)
            if self._attach(reader):
                self._link.wake()
            else:
                self._refuse_parked(reader)

    def _refuse_parked(self, reader: _Reader) -> None:
        self._unpark(reader)
        error = PartitionNotFoundError(str(reader.request.partition_id), "the producer's")
        self._fail_channel(reader, ErrorCode.PARTITION_NOT_FOUND, error)
        self._link.wake()

    def _unpark(self, reader: _Reader) -> None:
        parked, reader.parked = reader.parked, None
        if parked is not None:
            parked.drop()

    def _enqueue(self, reader: _Reader) -> None:
        if not reader.is_queued and reader.view is not None:
            reader.is_queued = True
            self._ready.append(reader)

    def _serve(
        self, reader: _Reader, output: list[Body], leases: dict[LocalBufferPool, list[SegmentLease]]
    ) -> int:
        """Send what one turn is worth; return how many bytes that was."""
        view = reader.view
        if view is None:
            return 0
        sent = 0
        reader.deficit += self._quantum_bytes
        while reader.deficit > 0:
            try:
                element = view.poll(reader.account.credit)
                if isinstance(element, Stalled):
                    self._stall(reader, element)
                    element = None
            except RecordTooLargeError as error:
                self._fail_channel(reader, ErrorCode.RECORD_TOO_LARGE, error)
                return sent
            except NetworkError as error:
                self._fail_channel(reader, ErrorCode.PRODUCER_FAILED, error)
                return sent
            if element is None:
                reader.deficit = 0
                return sent
            if isinstance(element, DataElement):
                size = self._send_data(reader, element, output)
                reader.deficit -= size
                sent += size
                if element.lease is not None:
                    leases.setdefault(element.lease.pool, []).append(element.lease)
                continue
            self._send_event(reader, element, output)
            reader.deficit -= FRAME_BYTES
            sent += FRAME_BYTES
            if isinstance(element.event, EndOfPartition):
                self._readers.pop(reader.request.channel, None)
                self._dismiss(reader)
                return sent
        self._enqueue(reader)
        return sent

    def _send_priority_events(self, reader: _Reader, output: list[Body]) -> None:
        """Send what is not to wait for the turns of others, nor for credit of its own channel."""
        while reader.view is not None and reader.view.has_priority_event:
            try:
                element = reader.view.poll(reader.account.credit)
            except NetworkError:
                return  # Its turn will find the same.
            assert isinstance(element, QueuedEvent)
            self._send_event(reader, element, output)

    def _send_data(self, reader: _Reader, element: DataElement, output: list[Body]) -> int:
        assert reader.view is not None
        channel, sealed = reader.request.channel, element.sealed
        fingerprint = 0
        if sealed.arrow is not None:
            schema_message = reader.announcer.changed(sealed.arrow.schema)
            fingerprint = reader.announcer.fingerprint
            if schema_message is not None:
                schema = Schema(channel, fingerprint, schema_message)
                output += encode(schema, with_checksum=self._has_checksums)
        if reader.sequence == 1:
            reach(Failpoint.FIRST_FRAME_SENT)
        backlog = reader.view.backlog
        reader.account.spend(element.cost, backlog)
        output += encode(
            Data(
                channel,
                reader.sequence,
                element.cost,
                backlog,
                sealed.row_count,
                fingerprint,
                sealed.markers,
                sealed.body(),
            ),
            with_checksum=self._has_checksums,
        )
        reader.sequence += 1
        return FRAME_BYTES + sealed.size_bytes

    def _send_event(self, reader: _Reader, element: QueuedEvent, output: list[Body]) -> None:
        assert reader.view is not None
        traits = element.is_priority * EventTrait.PRIORITY
        traits |= element.blocks_upstream * EventTrait.BLOCKS_UPSTREAM
        kind, value, body = encode_event(element.event)
        channel, backlog = reader.request.channel, reader.view.backlog
        event = Event(channel, reader.sequence, backlog, kind, traits, value, body)
        output += encode(event, with_checksum=self._has_checksums)
        reader.sequence += 1
        reader.is_blocked |= element.blocks_upstream
        reader.awaits_acknowledgement |= isinstance(element.event, EndOfData)

    def _stall(self, reader: _Reader, stalled: Stalled) -> None:
        request = reader.request
        refuse_if_too_large(stalled, request.credit_max, request.segment_size)
        if reader.account.must_announce(stalled.cost, stalled.backlog):
            self._control += encode(Backlog(request.channel, stalled.backlog))

    def _fail_channel(self, reader: _Reader, code: int, error: NetworkError) -> None:
        self._readers.pop(reader.request.channel, None)
        self._dismiss(reader)
        text = str(error).encode()[:TEXT_BYTES_MAX]
        self._control += encode(Error(reader.request.channel, code, text))

    def _dismiss(self, reader: _Reader) -> None:
        self._unpark(reader)
        view, reader.view = reader.view, None
        if view is not None:
            view.release()

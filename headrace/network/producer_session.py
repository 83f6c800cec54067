"""ProducerSession: the sending half of a connection, one reader per channel that the peer consumes here.

Readers that have data and credit take turns; a turn is worth QUANTUM_BYTES (deficit round robin), so that a channel
with small batches gets the same share as one with large ones. Control frames go first.
Source: Flink PartitionRequestQueue, CreditBasedSequenceNumberingViewReader.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.core.elements import EndOfPartition
from headrace.network.batches import SchemaAnnouncer, encode_event
from headrace.network.buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.credit import SenderAccount
from headrace.network.errors import (
    NetworkError,
    PartitionNotFoundError,
    ProtocolError,
    RecordTooLargeError,
)
from headrace.network.partition_manager import ResultPartitionManager
from headrace.network.subpartition import (
    DataElement,
    Stalled,
    SubpartitionView,
    refuse_if_too_large,
)
from headrace.network.transport import Cancellable, Link, Transport
from headrace.network.wire import (
    TEXT_BYTES_MAX,
    AddCredit,
    Backlog,
    Body,
    Cancel,
    Data,
    Error,
    ErrorCode,
    Event,
    PartitionRequest,
    Schema,
    encode,
)

QUANTUM_BYTES: Final = 256 * 1024


class _Reader:
    """One channel of the peer."""

    __slots__ = (
        "account",
        "announcer",
        "deficit",
        "is_queued",
        "request",
        "sequence",
        "timer",
        "view",
        "watcher",
    )

    def __init__(self, request: PartitionRequest) -> None:
        self.request: Final = request
        self.account: Final = SenderAccount(request.initial_credit)
        self.announcer: Final = SchemaAnnouncer()
        self.view: SubpartitionView | None = None
        self.sequence = 0
        self.deficit = 0
        self.is_queued = False
        self.timer: Cancellable | None = None
        self.watcher: Callable[[], None] | None = None


class ProducerSession:
    """Readers of one peer. Everything runs on the transport's thread, except the notifications of views."""

    def __init__(
        self,
        partitions: ResultPartitionManager,
        transport: Transport,
        link: Link,
        request_timeout_ms: float,
    ) -> None:
        self._partitions = partitions
        self._transport = transport
        self._link = link
        self._request_timeout_ms = request_timeout_ms
        self._readers: dict[int, _Reader] = {}
        self._ready: deque[_Reader] = deque()
        self._notified: deque[_Reader] = deque()  # appended to by any thread
        self._control: list[Body] = []
        self.ignored_credit_count = 0

    def partition_requested(self, request: PartitionRequest) -> None:
        """Attach a reader; one that comes before its partition is parked for a while."""
        if request.channel in self._readers:
            raise ProtocolError(self._link.peer, f"channel {request.channel} was requested twice")
        if request.segment_size < 1 or request.initial_credit < 1:
            raise ProtocolError(self._link.peer, f"an impossible request: {request}")
        reader = _Reader(request)
        self._readers[request.channel] = reader
        if not self._attach(reader):
            self._park(reader)

    def credit_added(self, frame: AddCredit) -> None:
        """Take credit; for a channel that has ended meanwhile it means nothing."""
        reader = self._readers.get(frame.channel)
        if reader is None:
            self.ignored_credit_count += 1
            return
        if frame.credit_count < 1:
            raise ProtocolError(
                self._link.peer, f"a grant of no credit for channel {frame.channel}"
            )
        reader.account.grant(frame.credit_count)
        self._enqueue(reader)

    def channel_cancelled(self, frame: Cancel) -> None:
        """The consumer closed the channel."""
        reader = self._readers.pop(frame.channel, None)
        if reader is not None:
            self._dismiss(reader)

    def account_of(self, channel: int) -> SenderAccount | None:
        """Return the account of a channel that is served here, for observers."""
        reader = self._readers.get(channel)
        return None if reader is None else reader.account

    def take_output(self, budget_bytes: int) -> list[Body]:
        """Return buffers to write, about `budget_bytes` of data; empty when nothing can be sent now."""
        output, self._control = self._control, []
        while self._notified:
            self._enqueue(self._notified.popleft())
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
        self._ready.clear()

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
            )
        except PartitionNotFoundError:
            return False
        except NetworkError as error:
            self._fail_channel(reader, ErrorCode.PRODUCER_FAILED, error)
            return True
        self._enqueue(reader)
        return True

    def _park(self, reader: _Reader) -> None:
        def registered() -> None:
            self._transport.post(unparked)

        def unparked() -> None:
            if self._readers.get(reader.request.channel) is reader and reader.view is None:
                self._unpark(reader)
                if self._attach(reader):
                    self._link.wake()
                else:
                    not_found()

        def not_found() -> None:
            self._unpark(reader)
            error = PartitionNotFoundError(str(reader.request.partition_id), "the producer's")
            self._fail_channel(reader, ErrorCode.PARTITION_NOT_FOUND, error)
            self._link.wake()

        reader.watcher = registered
        reader.timer = self._transport.call_later(self._request_timeout_ms, not_found)
        self._partitions.watch(reader.request.partition_id, registered)

    def _unpark(self, reader: _Reader) -> None:
        if reader.timer is not None:
            reader.timer.cancel()
            reader.timer = None
        if reader.watcher is not None:
            self._partitions.unwatch(reader.request.partition_id, reader.watcher)
            reader.watcher = None

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
        reader.deficit += QUANTUM_BYTES
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
            kind, value = encode_event(element.event)
            output += encode(
                Event(reader.request.channel, reader.sequence, view.backlog, kind, value)
            )
            reader.sequence += 1
            if isinstance(element.event, EndOfPartition):
                self._readers.pop(reader.request.channel, None)
                self._dismiss(reader)
                return sent
        self._enqueue(reader)
        return sent

    def _send_data(self, reader: _Reader, element: DataElement, output: list[Body]) -> int:
        assert reader.view is not None
        channel, sealed = reader.request.channel, element.sealed
        fingerprint = 0
        if sealed.arrow is not None:
            schema_message = reader.announcer.changed(sealed.arrow.schema)
            fingerprint = reader.announcer.fingerprint
            if schema_message is not None:
                output += encode(Schema(channel, fingerprint, schema_message))
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
            )
        )
        reader.sequence += 1
        return max(1, sealed.size_bytes)

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

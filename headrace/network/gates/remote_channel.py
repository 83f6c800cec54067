"""RemoteInputChannel: reads a subpartition of another TaskManager with credit, into a queue for the task.

Source: Flink RemoteInputChannel.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import pyarrow as pa

from headrace.core.barriers import CheckpointBarrier
from headrace.core.clock import Cancellable
from headrace.core.elements import EndOfPartition, StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.core.shuffle_descriptors import InputChannelDescriptor
from headrace.network.batches.sealed_batch import (
    SchemaMemory,
    SealedBatch,
    decode_event,
    read_batch,
)
from headrace.network.errors import (
    CorruptBatchError,
    CreditOverspentError,
    NetworkError,
    PartitionConnectionError,
    PartitionNotFoundError,
    ProducerFailedError,
    ProtocolError,
    SequenceGapError,
    copy_of,
)
from headrace.network.flow.credit import Charge, CreditExceeded
from headrace.network.gates.buffer_manager import BufferManager
from headrace.network.gates.gate import BarrierAnnouncement, ChannelElement
from headrace.network.gates.in_flight_input import CapturedBatch, InFlightInput
from headrace.network.gates.partition_requests import (
    CheckProducer,
    PartitionRequestBackoff,
    ProducerVerdict,
    ReconnectPolicy,
)
from headrace.network.memory.segments import Segment
from headrace.network.sessions.consumer_session import ConsumerSession
from headrace.network.sessions.peer_session import PeerSession
from headrace.network.wire.frame_decoder import DIRECT_BYTES
from headrace.network.wire.frames import Backlog, Data, ErrorCode, Event, EventTrait, Schema
from headrace.network.wire.framing import attach_body

_NO_CREDIT_WAIT_MS: Final = 20.0
_NOT_REQUESTED: Final = -1
ConsumerCall = Callable[[ConsumerSession, int], None]


class QueuedBatch(msgspec.Struct, frozen=True, gc=False):
    """A received Data frame with its charge."""

    frame: Data
    charge: Charge
    schema: pa.Schema | None
    segment: Segment | None
    """Segment of network memory that holds the body; None if there is none."""
    is_verified: bool
    """True if the checksum was verified."""


class _QueuedEvent(msgspec.Struct, frozen=True, gc=False):
    sequence: int
    event: StreamEvent


class ReceivedQueue:
    """Batches and events received on one channel from the TaskManager `peer`, until the task takes them.

    Shared by both threads: the transport's thread adds, the task's thread takes. Also captures batches for checkpoints.
    """

    def __init__(self, peer: str) -> None:
        self._peer: Final = peer
        self._queue: Final[deque[QueuedBatch | _QueuedEvent]] = deque()
        self._priority_events: Final[deque[StreamEvent | BarrierAnnouncement]] = deque()
        self._capture: Final = InFlightInput()
        # Each counter has one writer: received and dropped bytes the transport's thread, taken bytes the task's thread.
        self._received_bytes = self._dropped_bytes = self._taken_bytes = 0

    def __len__(self) -> int:
        return len(self._priority_events) + len(self._queue)

    @property
    def size_bytes(self) -> int:
        """Bytes of the queued batches."""
        # Received bytes are read last, so that they include all bytes taken or dropped by now.
        gone = self._taken_bytes + self._dropped_bytes
        return self._received_bytes - gone

    @property
    def has_priority_event(self) -> bool:
        """Return whether an event with priority is queued."""
        return bool(self._priority_events)

    def add_batch(self, batch: QueuedBatch) -> None:
        """Append a batch, and capture it if a checkpoint waits for its barrier. Transport's thread."""
        self._received_bytes += len(batch.frame.body)
        with self._capture.lock:
            self._queue.append(batch)
            if self._capture.is_collecting:
                self._capture.add(self._captured(batch))

    def add_event(self, event: StreamEvent, sequence: int, *, has_priority: bool) -> None:
        """Append an event, or put it in front if it has priority; announce it if it may overtake later.

        Transport's thread.
        """
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
        """Return the next element, those with priority first. Task's thread."""
        try:
            if self._priority_events:
                return self._priority_events.popleft()
            item = self._queue.popleft()
        except IndexError:
            # Also if a cancelling thread has just emptied it.
            return None
        if isinstance(item, _QueuedEvent):
            return item.event
        self._taken_bytes += len(item.frame.body)
        return item

    def prioritise(self, sequence: int) -> None:
        """Put the event with this sequence number in front; no effect if it was already taken."""
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
        """Drop all queued batches and events; return the charges of the batches. Transport's thread."""
        charges: list[Charge] = []
        with self._capture.lock:
            # One by one: the task may still take some, whose charge it returns itself.
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


class RemoteInputChannel:
    """Reads a subpartition of another TaskManager. Bytes become a batch on the task's thread.

    The queue is shared by both threads; accounts and schema belong to the transport's thread.
    """

    is_local = False

    def __init__(
        self,
        descriptor: InputChannelDescriptor,
        index: int,
        receiver: BufferManager,
        retry: PartitionRequestBackoff,
        notify: Callable[[], None],
        check_producer: CheckProducer,
    ) -> None:
        self._check_producer = check_producer
        self._partition_id: Final[ResultPartitionId] = descriptor.shuffle.partition_id
        self._subpartition_index = descriptor.subpartition_index
        self._location = descriptor.shuffle.location
        self._peer = str(self._location.resource_id)
        self._index = index
        self._receiver = receiver
        self._retry = retry
        self._notify = notify
        self._queue: Final = ReceivedQueue(self._peer)
        self._schema = SchemaMemory(self._peer)
        self._error: NetworkError | None = None
        self._session: PeerSession | None = None
        # Rows in flight that the task asked for last; sent again on each connection.
        self._in_flight_rows: int | None = None
        self._reconnect = ReconnectPolicy(retry, is_external=descriptor.shuffle.is_external)
        # Segments of bodies whose frames have not been delivered yet, in order.
        self._placed: deque[Segment | None] = deque()
        self._channel = _NOT_REQUESTED
        self._next_sequence = 0
        self._is_notice_due = False
        self._timer: Cancellable | None = None
        self._is_closed = False

    @property
    def queued_count(self) -> int:
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        return self._queue.size_bytes

    @property
    def has_priority_event(self) -> bool:
        return self._queue.has_priority_event

    def request(self) -> None:
        self._receiver.transport.post(self._connect)

    def poll(self) -> ChannelElement | None:
        if self._error is not None:
            raise copy_of(self._error)
        item = self._queue.take()
        if not isinstance(item, QueuedBatch):
            return item
        frame, charge, schema = item.frame, item.charge, item.schema
        segment, is_verified = item.segment, item.is_verified
        if segment is not None:
            attach_body(frame, self._receiver.region.hand_over(segment, frame.body))
            # If it was copied, the segment must be free before its credit is returned.
            del item, segment
        self._receiver.batch_taken(self._index, charge)
        arrow = None
        if schema is not None:
            try:
                arrow = read_batch(
                    frame.body, schema, frame.row_count, self._peer, is_verified=is_verified
                )
            except CorruptBatchError as error:
                # Elements behind it must not be taken for the next ones.
                self._error = copy_of(error)
                self._receiver.transport.post(lambda: self._end(tell_producer=True))
                raise
        return SealedBatch(arrow, frame.markers, len(frame.body))

    def resume(self) -> None:
        self._tell_producer(lambda consumer, channel: consumer.resume(channel))

    def prioritise(self, sequence: int) -> None:
        """Deliver an announced barrier first; no effect if it was already delivered."""
        self._queue.prioritise(sequence)
        self._notify()

    def start_capture(self, checkpoint_id: int) -> None:
        self._queue.start_capture(checkpoint_id)

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        return self._queue.stop_capture(checkpoint_id)

    def acknowledge_all_data(self) -> None:
        self._tell_producer(lambda consumer, channel: consumer.acknowledge_all_data(channel))

    def request_in_flight_rows(self, in_flight_rows: int) -> None:
        def request() -> None:
            self._in_flight_rows = in_flight_rows
            if self._session is not None:
                self._session.consumer.request_in_flight_rows(self._channel, in_flight_rows)

        self._receiver.transport.post(request)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._receiver.transport.post(self._leave)

    def grant(self, credit_count: int) -> None:
        if self._session is not None:
            self._session.consumer.add_credit(self._channel, credit_count)

    def place_data(self, frame: Data, body_length: int) -> Segment | None:
        if body_length > frame.credit_count * self._receiver.segment_size:
            raise ProtocolError(
                self._peer,
                f"a batch of {body_length} bytes does not fit the {frame.credit_count} segment(s) that it pays for",
            )
        granted = self._receiver.credits.accounts[self._index].granted
        if frame.credit_count > granted:
            raise CreditOverspentError(self._peer, self._name(), granted, frame.credit_count)
        is_large = body_length >= DIRECT_BYTES
        segment = self._receiver.region.acquire(body_length) if is_large else None
        self._placed.append(segment)
        return segment

    def schema_received(self, frame: Schema) -> None:
        self._schema.announced(frame.fingerprint, frame.body)

    def data_received(self, frame: Data) -> None:
        self._check_sequence(frame.sequence)
        if frame.credit_count < 1:
            raise ProtocolError(self._peer, f"data on channel {self._name()} names no credit")
        schema = self._schema.schema_of(frame.fingerprint) if frame.row_count else None
        try:
            charge = self._receiver.credits.data_received(
                self._index, frame.credit_count, frame.backlog
            )
        except CreditExceeded as error:
            raise CreditOverspentError(
                self._peer, self._name(), error.granted, error.spent
            ) from error
        segment = self._placed.popleft() if len(frame.body) else None
        is_verified = self._session is not None and self._session.consumer.has_checksums
        self._queue.add_batch(QueuedBatch(frame, charge, schema, segment, is_verified))
        self._announce_arrival()
        self._receiver.heard_of(self._index)

    def event_received(self, frame: Event) -> None:
        self._check_sequence(frame.sequence)
        event = decode_event(frame.kind, frame.value, frame.body, self._peer)
        if frame.traits & ~EventTrait.ALL:
            raise ProtocolError(self._peer, f"an event has unknown traits {frame.traits}")
        if isinstance(event, EndOfPartition):
            self._end(tell_producer=False)
        has_priority = bool(frame.traits & EventTrait.PRIORITY)
        self._queue.add_event(event, frame.sequence, has_priority=has_priority)
        self._announce_arrival()

    def backlog_received(self, frame: Backlog) -> None:
        self._receiver.credits.backlog_announced(self._index, frame.backlog)
        self._receiver.heard_of(self._index)

    def error_received(self, code: int, text: str) -> None:
        self._end(tell_producer=False)
        partition_text = str(self._partition_id)
        if code == ErrorCode.PARTITION_NOT_FOUND:
            self._channel = _NOT_REQUESTED
            self._check_producer(self._partition_id, self._producer_checked)
        elif code == ErrorCode.PRODUCER_FAILED:
            self._fail(ProducerFailedError(partition_text, text))
        else:
            self._fail(
                NetworkError(f"reading {partition_text} from task manager {self._peer}: {text}")
            )

    def _producer_checked(self, verdict: ProducerVerdict) -> None:
        """Repeat the request or fail, unless the consumer is being cancelled and this channel with it. Any thread."""
        if verdict is not ProducerVerdict.CANCEL:
            self._receiver.transport.post(lambda: self._ask_again_or_fail(verdict))

    def _ask_again_or_fail(self, verdict: ProducerVerdict) -> None:
        if self._is_closed:
            return
        delay_ms = None if verdict is ProducerVerdict.FAIL else self._retry.next_delay_ms()
        if delay_ms is None:
            self._fail(PartitionNotFoundError(str(self._partition_id), self._peer))
        else:
            self._timer = self._receiver.transport.call_later(delay_ms, self._connect)

    def lost(self, error: NetworkError) -> None:
        self._end(tell_producer=False)
        self._reconnect_or_fail(copy_of(error))

    def _reconnect_or_fail(self, error: NetworkError) -> None:
        answer = self._reconnect.lost(error, self._next_sequence)
        if isinstance(answer, NetworkError):
            self._fail(answer)
        elif not self._is_closed:
            self._channel = _NOT_REQUESTED
            self._timer = self._receiver.transport.call_later(answer, self._connect)

    def _connect(self) -> None:
        self._timer = None
        if not self._is_closed:
            self._receiver.transport.connect(self._location, self._connected, self._not_connected)

    def _connected(self, session: PeerSession) -> None:
        if self._is_closed:
            return
        self._receiver.settle()
        if not self._receiver.credits.can_open(self._index):
            # The task has not yet taken the elements from before the connection was lost.
            self._timer = self._receiver.transport.call_later(_NO_CREDIT_WAIT_MS, self._connect)
            return
        self._session = session
        self._channel = session.consumer.open_channel(
            self,
            partition_id=self._partition_id,
            subpartition_index=self._subpartition_index,
            initial_credit=self._receiver.credits.open_channel(self._index),
            credit_max=self._receiver.credits.credit_max,
            segment_size=self._receiver.segment_size,
            first_sequence=self._next_sequence,
        )
        if self._in_flight_rows is not None:
            session.consumer.request_in_flight_rows(self._channel, self._in_flight_rows)

    def _not_connected(self, reason: str) -> None:
        error = PartitionConnectionError(str(self._partition_id), self._peer, reason)
        if self._reconnect.has_begun:
            self._reconnect_or_fail(error)
        else:
            self._fail(error)

    def _tell_producer(self, call: ConsumerCall) -> None:
        """Run a call on the session of this channel if it is open, on the transport's thread."""

        def tell() -> None:
            if self._session is not None:
                call(self._session.consumer, self._channel)

        self._receiver.transport.post(tell)

    def _check_sequence(self, sequence: int) -> None:
        if sequence != self._next_sequence:
            raise SequenceGapError(self._peer, self._name(), self._next_sequence, sequence)
        self._next_sequence += 1

    def _announce_arrival(self) -> None:
        # Notify even if the queue was not empty: the task may have emptied it since, and would not check again.
        if not self._is_notice_due:
            # After all received frames are processed. A task that is woken at once competes with this thread for the
            # interpreter lock, and is woken again for every batch.
            self._is_notice_due = True
            self._receiver.transport.call_later(0, self._give_notice)

    def _give_notice(self) -> None:
        self._is_notice_due = False
        self._notify()

    def _fail(self, error: NetworkError) -> None:
        if self._error is None:
            self._error = error
            self._notify()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end(tell_producer=True)
        for charge in self._queue.clear():
            self._receiver.credits.batch_taken(self._index, charge)
        self._receiver.announce()

    def _end(self, *, tell_producer: bool) -> None:
        self._placed.clear()
        session, self._session = self._session, None
        if session is not None:
            session.consumer.close_channel(self._channel, tell_producer=tell_producer)
            self._receiver.credits.close_channel(self._index)
            self._receiver.announce()

    def _name(self) -> str:
        return f"{self._channel} ({self._partition_id}, subpartition {self._subpartition_index})"

r"""SequenceNumberingViewReader: one channel of a consumer, read from its subpartition and numbered for the wire.

    WAITING for the partition --attach--> READING --EndOfPartition, Cancel or an error: release--> RELEASED
      \--time-out: release--> RELEASED

It makes frames of the elements that the subpartition's view returns, spends the credit that the consumer granted, and
carries out the consumer's requests for the channel. Its session gives it turns. Transport's thread.
Source: Flink CreditBasedSequenceNumberingViewReader.
"""

from typing import Final

from headrace.core.elements import EndOfData
from headrace.core.process.failpoints import Failpoint, reach
from headrace.network.batches.sealed_batch import SchemaAnnouncer, encode_event
from headrace.network.errors import ProtocolError
from headrace.network.flow.credit import SenderAccount
from headrace.network.partitions.result_subpartition import (
    DataElement,
    Element,
    QueuedEvent,
    ResultSubpartitionView,
    Stalled,
    refuse_if_too_large,
)
from headrace.network.sessions.partition_request_listener import PartitionRequestListener
from headrace.network.wire.frames import (
    Backlog,
    Data,
    Event,
    EventTrait,
    PartitionRequest,
    Schema,
)
from headrace.network.wire.framing import Body, encode


class SequenceNumberingViewReader:
    """Serves the channel that `request` opened on the connection with `peer`."""

    __slots__ = (
        "_announcer",
        "_awaits_acknowledgement",
        "_has_checksums",
        "_in_flight_rows",
        "_is_blocked",
        "_peer",
        "_sequence",
        "account",
        "deficit",
        "is_queued",
        "listener",
        "request",
        "view",
    )

    def __init__(self, request: PartitionRequest, peer: str, *, has_checksums: bool) -> None:
        self.request: Final = request
        self.account: Final = SenderAccount(request.initial_credit)
        self.view: ResultSubpartitionView | None = None
        self.listener: PartitionRequestListener | None = None
        """Waits for the partition while it is not registered yet; None otherwise."""
        self.is_queued = False
        """True if the reader waits for a turn."""
        self.deficit = 0
        """Bytes that the reader may still send in its current turn; negative for a debt."""
        self._peer = peer
        self._has_checksums = has_checksums
        self._announcer: Final = SchemaAnnouncer()
        self._sequence = request.first_sequence
        # From the consumer's view: an event that blocks was sent, and no resume has arrived.
        self._is_blocked = False
        self._awaits_acknowledgement = False
        # Rows in flight that the consumer asked for last, perhaps before the view existed.
        self._in_flight_rows: int | None = None

    def attach(self, view: ResultSubpartitionView) -> None:
        """Start reading from a view, because the partition is registered now."""
        self.view = view
        if self._in_flight_rows is not None:
            view.notify_in_flight_rows(self._in_flight_rows)

    def add_credit(self, credit_count: int) -> None:
        """Add credit that the consumer granted.

        ProtocolError if a consumer may not send this, as in the following methods.
        """
        self._require(credit_count > 0, "grants no credit")
        credit, most = self.account.credit + credit_count, self.request.credit_max
        self._require(credit <= most, f"grants {credit} credits and can hold {most}")
        self.account.grant(credit_count)

    def resume(self) -> None:
        """Continue after an event that blocked the channel, as the consumer requests."""
        self._require(self._is_blocked, "is resumed without being blocked")
        assert self.view is not None
        self._is_blocked = False
        self.view.resume()

    def acknowledge_all_data(self) -> None:
        """Record that the consumer has processed all rows before EndOfData."""
        is_due = self._awaits_acknowledgement
        self._require(is_due, "acknowledges an end of data that it was not sent")
        assert self.view is not None
        self._awaits_acknowledgement = False
        self.view.acknowledge_all_data()

    def notify_in_flight_rows(self, in_flight_rows: int) -> None:
        """Set the rows that the consumer wants in flight between the two tasks."""
        self._require(in_flight_rows > 0, "asks for no rows in flight")
        self._in_flight_rows = in_flight_rows
        if self.view is not None:
            self.view.notify_in_flight_rows(in_flight_rows)

    def poll(self) -> Element | Stalled | None:
        """Return the next element of the view, or Stalled if it lacks credit. Raises the producer's failure.

        RecordTooLargeError if the batch costs more than the consumer's maximum credit.
        """
        assert self.view is not None
        element = self.view.poll(self.account.credit)
        if isinstance(element, Stalled):
            refuse_if_too_large(element, self.request.credit_max, self.request.segment_size)
        return element

    def write_data(self, element: DataElement, output: list[Body]) -> None:
        """Append the frames of a batch to `output`: the schema if it has changed, then the data."""
        assert self.view is not None
        channel, sealed = self.request.channel, element.sealed
        fingerprint = 0
        if sealed.arrow is not None:
            schema_message = self._announcer.changed(sealed.arrow.schema)
            fingerprint = self._announcer.fingerprint
            if schema_message is not None:
                schema = Schema(channel, fingerprint, schema_message)
                output += encode(schema, with_checksum=self._has_checksums)
        if self._sequence == 1:
            reach(Failpoint.FIRST_FRAME_SENT)
        backlog = self.view.backlog
        self.account.spend(element.cost, backlog)
        output += encode(
            Data(
                channel,
                self._sequence,
                element.cost,
                backlog,
                sealed.row_count,
                fingerprint,
                sealed.markers,
                sealed.body(),
            ),
            with_checksum=self._has_checksums,
        )
        self._sequence += 1

    def write_event(self, element: QueuedEvent, output: list[Body]) -> None:
        """Append the frame of an event to `output`."""
        assert self.view is not None
        traits = element.is_priority * EventTrait.PRIORITY
        traits |= element.blocks_upstream * EventTrait.BLOCKS_UPSTREAM
        kind, value, body = encode_event(element.event)
        channel, backlog = self.request.channel, self.view.backlog
        event = Event(channel, self._sequence, backlog, kind, traits, value, body)
        output += encode(event, with_checksum=self._has_checksums)
        self._sequence += 1
        self._is_blocked |= element.blocks_upstream
        self._awaits_acknowledgement |= isinstance(element.event, EndOfData)

    def write_backlog(self, stalled: Stalled, output: list[Body]) -> None:
        """Append a Backlog frame for batches that wait for credit to `output`, unless the consumer knows of them."""
        if self.account.must_announce(stalled.cost, stalled.backlog):
            output += encode(Backlog(self.request.channel, stalled.backlog))

    def stop_waiting(self) -> None:
        """Stop waiting for the partition. Idempotent."""
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.drop()

    def release(self) -> None:
        """Release the subpartition, or stop waiting for it. Idempotent."""
        self.stop_waiting()
        view, self.view = self.view, None
        if view is not None:
            view.release()

    def _require(self, condition: bool, otherwise: str) -> None:
        if not condition:
            raise ProtocolError(self._peer, f"channel {self.request.channel} {otherwise}")

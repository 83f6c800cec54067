"""ConsumerSession: the receiving half of a connection, with the remote channels that read from the peer.

Frames for a channel that was closed meanwhile are dropped: the peer has been told, and frames that it sent before are
useless. A frame that a channel cannot accept (a gap in its sequence, data without credit) ends that channel: it gets
the error, the producer is told to cancel it, and the others go on. A frame for a channel that was never
requested ends the connection. Source: Flink CreditBasedPartitionRequestClientHandler.
"""

from typing import Any, Final, Protocol

from headrace.network.errors import NetworkError, ProtocolError
from headrace.network.memory.segments import Segment
from headrace.network.sessions.transport import Link
from headrace.network.wire.frames import (
    TEXT_BYTES_MAX,
    AckAllUserRecordsProcessed,
    AddCredit,
    Backlog,
    Cancel,
    ChannelMessage,
    Data,
    Error,
    Event,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    Schema,
)
from headrace.network.wire.framing import PREFIX, Body, Frame, encode

UNCLAIMED_BODY_BYTES_MAX: Final = 64 << 20
"""Largest body in bytes accepted for anything but an open channel, whose own bound is its credit."""
REFUSED_BYTES_MAX: Final = 32 << 20
"""Bytes that may still come for a channel that refused data: far more than can be in flight until the peer is told."""


class ChannelReceiver(Protocol):
    """Receives the frames of one open channel, on the transport's thread. A ProtocolError ends the channel."""

    def place_data(self, frame: Data, body_length: int) -> Segment | None:
        """Return the segment for the body of a frame, or None to use ordinary memory. ProtocolError without credit."""
        ...

    def schema_received(self, frame: Schema) -> None:
        """Process a schema."""
        ...

    def data_received(self, frame: Data) -> None:
        """Process a batch."""
        ...

    def event_received(self, frame: Event) -> None:
        """Process an event."""
        ...

    def backlog_received(self, frame: Backlog) -> None:
        """Record the announced backlog."""
        ...

    def error_received(self, code: int, text: str) -> None:
        """Handle an error of the producer's side, which has closed the channel."""
        ...

    def lost(self, error: NetworkError) -> None:
        """Handle that the channel was closed, because its connection ended or a frame could not be accepted."""
        ...


class ConsumerSession:
    """Channels by number, and control frames that are still to be sent. Transport's thread."""

    def __init__(self, link: Link, *, has_checksums: bool = False) -> None:
        self._link = link
        self.has_checksums: Final = has_checksums
        self._channels: dict[int, ChannelReceiver] = {}
        self._next_channel = 0
        # Bytes that may still come for channels that refused a frame.
        self._refused: dict[int, int] = {}
        self._control: list[Body] = []
        self.dropped_frame_count = 0

    @property
    def channel_count(self) -> int:
        """Number of open channels."""
        return len(self._channels)

    def open_channel(self, receiver: ChannelReceiver, **request: Any) -> int:
        """Assign a number to a new channel and request its partition (fields of PartitionRequest)."""
        channel = self._next_channel
        self._next_channel += 1
        self._channels[channel] = receiver
        self._send(PartitionRequest(channel=channel, **request))
        return channel

    def close_channel(self, channel: int, *, tell_producer: bool) -> None:
        """Forget a channel and optionally cancel it at the producer; no effect if it is closed."""
        if self._channels.pop(channel, None) is not None and tell_producer:
            self._send(Cancel(channel))

    def add_credit(self, channel: int, credit_count: int) -> None:
        """Grant credit; no effect if the channel is closed, as for the following methods."""
        self._send_for(AddCredit(channel, credit_count))

    def resume(self, channel: int) -> None:
        """Tell the producer to continue after an event that blocked the channel."""
        self._send_for(ResumeConsumption(channel))

    def acknowledge_all_data(self, channel: int) -> None:
        """Tell the producer that all rows before EndOfData were processed."""
        self._send_for(AckAllUserRecordsProcessed(channel))

    def request_in_flight_rows(self, channel: int, in_flight_rows: int) -> None:
        """Announce how many rows the channel should hold between the two tasks."""
        self._send_for(NewBufferSize(channel, in_flight_rows))

    def check_body(self, cls: type[Frame], frame: Frame, body_length: int) -> Segment | None:
        if isinstance(frame, Data):
            receiver = self._channels.get(frame.channel)
            if receiver is None:
                self._refuse_unless_closed(frame)
            else:
                try:
                    return receiver.place_data(frame, body_length)
                except ProtocolError as error:
                    self._refuse(frame.channel, receiver, error)
        is_small = isinstance(frame, Error | Event)
        if body_length > (TEXT_BYTES_MAX if is_small else UNCLAIMED_BODY_BYTES_MAX):
            raise ProtocolError(
                self._link.peer,
                f"a frame of type {cls.__name__} has a body of {body_length} bytes, which is too large",
            )
        return None

    def frame_received(self, frame: Data | Event | Schema | Backlog | Error) -> None:
        """Pass a frame to its channel."""
        receiver = self._channels.get(frame.channel)
        if receiver is None:
            self._drop(frame)
            return
        try:
            match frame:
                case Data():
                    receiver.data_received(frame)
                case Event():
                    receiver.event_received(frame)
                case Schema():
                    receiver.schema_received(frame)
                case Backlog():
                    receiver.backlog_received(frame)
                case Error():
                    del self._channels[frame.channel]
                    text = bytes(frame.body).decode(errors="replace")
                    receiver.error_received(frame.code, text)
        except ProtocolError as error:
            self._refuse(frame.channel, receiver, error)

    def take_output(self) -> list[Body]:
        """Return the control frames to send."""
        output, self._control = self._control, []
        return output

    def close(self, error: NetworkError) -> None:
        """Tell all channels that the connection has ended."""
        receivers, self._channels = list(self._channels.values()), {}
        for receiver in receivers:
            receiver.lost(error)

    def _refuse(self, channel: int, receiver: ChannelReceiver, error: ProtocolError) -> None:
        """Close one channel because of an invalid frame; frames that its peer sends until it knows are dropped."""
        self.close_channel(channel, tell_producer=True)
        self._refused[channel] = REFUSED_BYTES_MAX
        receiver.lost(error)

    def _drop(self, frame: Data | Event | Schema | Backlog | Error) -> None:
        self._refuse_unless_closed(frame)
        self.dropped_frame_count += 1
        left = self._refused.get(frame.channel)
        if left is not None:
            left -= PREFIX.size + (0 if isinstance(frame, Backlog) else len(frame.body))
            self._refused[frame.channel] = left
            if left < 0:
                what = f"it still sends data for channel {frame.channel} after it was told to stop"
                raise ProtocolError(self._link.peer, what)

    def _refuse_unless_closed(self, frame: Data | Event | Schema | Backlog | Error) -> None:
        if frame.channel >= self._next_channel:
            what = f"a frame of type {type(frame).__name__} names channel {frame.channel}, which was never requested"
            raise ProtocolError(self._link.peer, what)

    def _send_for(self, message: ChannelMessage) -> None:
        if message.channel in self._channels:
            self._send(message)

    def _send(self, message: Frame) -> None:
        self._control += encode(message)
        self._link.wake()

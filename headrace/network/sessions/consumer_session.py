"""ConsumerSession: the receiving half of a connection, the remote channels here that read from the peer.

Frames for a channel that was closed meanwhile are dropped: the peer has been told, and what it had sent before is of
no use to anybody. What a channel cannot accept, a gap in its sequence or data without credit, ends that channel: it has
its error, the producer is told to cancel it, and the others go on. What cannot be assigned to a channel that was
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
"""The largest body that is taken for something else than an open channel, whose own bound is its credit."""
REFUSED_BYTES_MAX: Final = 32 << 20
"""Bytes that may still come for a channel that refused data: far more than is on its way until the peer is told."""


class ChannelReceiver(Protocol):
    """Receives the frames of one open channel, on the transport's thread. A ProtocolError ends the channel."""

    def place_data(self, frame: Data, body_length: int) -> Segment | None:
        """Refuse data that was not granted; return the segment for its body, None for memory of its own."""
        ...

    def schema_received(self, frame: Schema) -> None:
        """Take a schema."""
        ...

    def data_received(self, frame: Data) -> None:
        """Take a batch."""
        ...

    def event_received(self, frame: Event) -> None:
        """Take an event."""
        ...

    def backlog_received(self, frame: Backlog) -> None:
        """Take note of a backlog."""
        ...

    def error_received(self, code: int, text: str) -> None:
        """The producer's side of the channel ended with an error; the channel is closed."""
        ...

    def lost(self, error: NetworkError) -> None:
        """The channel is closed: its connection has ended, or what came on it could not be accepted."""
        ...


class ConsumerSession:
    """Channels by number, and the control frames that wait for the wire. On the transport's thread."""

    def __init__(self, link: Link, *, has_checksums: bool = False) -> None:
        self._link = link
        self.has_checksums: Final = has_checksums
        self._channels: dict[int, ChannelReceiver] = {}
        self._next_channel = 0
        # What may still come for channels of which something was refused, in bytes.
        self._refused: dict[int, int] = {}
        self._control: list[Body] = []
        self.dropped_frame_count = 0

    @property
    def channel_count(self) -> int:
        """Open channels."""
        return len(self._channels)

    def open_channel(self, receiver: ChannelReceiver, **request: Any) -> int:
        """Number a new channel and request its partition (fields of PartitionRequest)."""
        channel = self._next_channel
        self._next_channel += 1
        self._channels[channel] = receiver
        self._send(PartitionRequest(channel=channel, **request))
        return channel

    def close_channel(self, channel: int, *, tell_producer: bool) -> None:
        """Forget a channel; no effect if it is closed."""
        if self._channels.pop(channel, None) is not None and tell_producer:
            self._send(Cancel(channel))

    def add_credit(self, channel: int, credit_count: int) -> None:
        """Grant credit. Like all that follows without effect where the channel is closed."""
        self._send_for(AddCredit(channel, credit_count))

    def resume(self, channel: int) -> None:
        """Have the producer go on after an event that blocked the channel."""
        self._send_for(ResumeConsumption(channel))

    def acknowledge_all_data(self, channel: int) -> None:
        """Tell the producer that all rows before EndOfData were processed."""
        self._send_for(AckAllUserRecordsProcessed(channel))

    def request_in_flight_rows(self, channel: int, in_flight_rows: int) -> None:
        """Say how many rows the channel should hold between the two tasks."""
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
                self._link.peer, f"a {cls.__name__} frame with a body of {body_length} bytes"
            )
        return None

    def frame_received(self, frame: Data | Event | Schema | Backlog | Error) -> None:
        """Give a frame to its channel."""
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
        """Return the control frames that wait."""
        output, self._control = self._control, []
        return output

    def close(self, error: NetworkError) -> None:
        """The connection has ended."""
        receivers, self._channels = list(self._channels.values()), {}
        for receiver in receivers:
            receiver.lost(error)

    def _refuse(self, channel: int, receiver: ChannelReceiver, error: ProtocolError) -> None:
        """End one channel because of what came on it; what its peer sent before it knows is dropped."""
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
                what = (
                    f"it goes on with channel {frame.channel}, of which it was told to send no more"
                )
                raise ProtocolError(self._link.peer, what)

    def _refuse_unless_closed(self, frame: Data | Event | Schema | Backlog | Error) -> None:
        if frame.channel >= self._next_channel:
            what = f"a {type(frame).__name__} frame for channel {frame.channel}, never requested"
            raise ProtocolError(self._link.peer, what)

    def _send_for(self, message: ChannelMessage) -> None:
        if message.channel in self._channels:
            self._send(message)

    def _send(self, message: Frame) -> None:
        self._control += encode(message)
        self._link.wake()

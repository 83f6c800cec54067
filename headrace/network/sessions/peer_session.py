"""PeerSession: both halves of one connection between two TaskManagers, fed with frames.

A connection is used in both directions, whoever dialled. The session does not use sockets itself: it runs over
TCP, Unix sockets and the simulation.
"""

from typing import Final, Protocol

from headrace.core.security.hmac_handshake import Role
from headrace.network.errors import ConnectionLostError, NetworkError, ProtocolError
from headrace.network.memory.segments import Segment
from headrace.network.sessions.consumer_session import ConsumerSession
from headrace.network.sessions.producer_session import ProducerSession
from headrace.network.sessions.transport import Link
from headrace.network.wire.frames import (
    NO_CHANNEL,
    TEXT_BYTES_MAX,
    AckAllUserRecordsProcessed,
    AddCredit,
    Backlog,
    Cancel,
    Close,
    Data,
    Error,
    ErrorCode,
    Event,
    KeepAlive,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    Schema,
)
from headrace.network.wire.framing import Body, Frame, encode


class Session(Protocol):
    """Session on an established connection. All calls are made on the transport's thread."""

    is_kept_alive: bool
    """True if both sides send keepalives, and close the connection without them."""

    @property
    def is_spent(self) -> bool:
        """Return whether the connection is no longer needed, so that this side must close it."""
        ...

    @property
    def has_output_left(self) -> bool:
        """Return whether the last `take_output` stopped at its budget although more output can be sent.

        Later output wakes the link.
        """
        ...

    def check_body(self, cls: type[Frame], frame: Frame, body_length: int) -> Segment | None: ...

    def frame_received(self, frame: Frame) -> None:
        """Process a frame; a NetworkError ends the connection."""
        ...

    def take_output(self, budget_bytes: int) -> list[Body]:
        """Return buffers to write; empty if nothing can be sent now."""
        ...

    def lost(self, error: NetworkError) -> None:
        """Handle the end of the connection. Called once, also if this side closed it."""
        ...


class PeerSession:
    """Serves both roles of a TaskManager, producer and consumer, on one connection to a peer."""

    is_kept_alive = True

    def __init__(self, link: Link, producer: ProducerSession, consumer: ConsumerSession) -> None:
        self._link = link
        self.producer = producer
        self.consumer = consumer
        self.check_body: Final = consumer.check_body
        self._is_retired = False
        self._has_peer_retired = False
        self._words: list[Body] = []

    @property
    def is_spent(self) -> bool:
        if not self._is_retired:
            return False
        is_idle = not self.consumer.channel_count and not self.producer.reader_count
        return self._has_peer_retired and is_idle

    @property
    def has_output_left(self) -> bool:
        return self.producer.has_output_left

    def retire(self, role: Role) -> None:
        """Open no more channels on this connection, because a better one with the peer exists.

        The dialler announces this with a Close frame. The other side knew the better connection before, so that no
        request can be in flight on either side when this connection closes with its last channel.
        """
        self._is_retired = True
        if role is Role.DIALLER:
            self._words += encode(Close())
            self._link.wake()

    def frame_received(self, frame: Frame) -> None:
        match frame:
            case Error() if frame.channel == NO_CHANNEL:
                text = bytes(frame.body).decode(errors="replace")
                raise ConnectionLostError(self._link.peer, f"it ended the connection: {text}")
            case Data() | Event() | Schema() | Backlog() | Error():
                self.consumer.frame_received(frame)
            case AddCredit() | Cancel() | ResumeConsumption():
                self.producer.channel_message_received(frame)
            case AckAllUserRecordsProcessed() | NewBufferSize():
                self.producer.channel_message_received(frame)
            case PartitionRequest():
                self.producer.partition_requested(frame)
            case KeepAlive():
                pass  # The frame only shows that the peer is alive.
            case Close() if self._is_retired:
                self._has_peer_retired = True
            case Close():
                raise ConnectionLostError(self._link.peer, "it was shut down")
            case _:
                raise ProtocolError(
                    self._link.peer,
                    f"a frame of type {type(frame).__name__} is not allowed between task managers",
                )

    def take_output(self, budget_bytes: int) -> list[Body]:
        output = self.consumer.take_output()
        # After the requests that were made before.
        output += self._words
        self._words = []
        output += self.producer.take_output(budget_bytes)
        return output

    def lost(self, error: NetworkError) -> None:
        self.producer.close()
        self.consumer.close(error)


def last_words(error: NetworkError) -> list[Body]:
    """Return the Error frame to send before closing a connection whose bytes cannot be accepted."""
    text = str(error).encode()[:TEXT_BYTES_MAX]
    return encode(Error(NO_CHANNEL, ErrorCode.PROTOCOL, text))

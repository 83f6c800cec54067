"""WireTap: stands between the two TaskManagers of a trace; frames wait in it until somebody lets the next one arrive.

FrameSplitter makes frames of a stream of bytes, each with the bytes it was. Endpoints read with FrameDecoder, which
keeps no bytes and copies no bodies; an observer (the trace, the fault proxy) wants both, and does not mind a copy.
"""

from collections import deque
from typing import Final

import msgspec

import headrace.network.wire.frames  # noqa: F401  # pyright: ignore[reportUnusedImport]
from headrace.core.security.hmac_handshake import Role
from headrace.network.errors import ProtocolError
from headrace.network.sessions.peer_session import PeerSession, Session
from headrace.network.trace.simulated_transport import (
    LetArrive,
    SimulatedNetwork,
    SimulatedTransport,
)
from headrace.network.trace.steps import CONSUMER, PRODUCER, SentFrame
from headrace.network.transport.connection_manager import PeerConnection
from headrace.network.wire.frames import AddCredit, Data, Hello, PartitionRequest, Proof
from headrace.network.wire.framing import (
    MAGIC,
    PREFIX,
    Frame,
    decode_header,
    decode_prefix,
)

# For its frames to be known: an observer stands on connections of every kind, whatever its process does itself.

BODY_BYTES_MAX: Final = 1 << 30
"""Above this it is no frame of ours: a prefix that was taken from the wrong place."""

_TLS_RECORD: Final = b"\x16\x03"
_MAGIC_BYTES: Final = MAGIC.to_bytes(4, "big")


class EncryptedStreamError(ProtocolError):
    """The two sides speak TLS: there are frames, but nobody between the two can see them."""

    def __init__(self, peer: str) -> None:
        super().__init__(
            peer,
            "this is a TLS connection, and its frames cannot be read from outside; use a Unix socket, or set "
            "'security.ssl.internal.enabled' to false where every process is on one host",
        )


class SplitFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame, its bytes, and where in its direction's stream they began."""

    frame: Frame
    raw: bytes
    offset: int

    @property
    def is_opening(self) -> bool:
        """Return whether it belongs to the proof of the secret, which covers its bytes."""
        return isinstance(self.frame, Hello | Proof)


class FrameSplitter:
    """One direction of one connection. `peer` names the sender, for messages."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._held = bytearray()
        self._offset = 0

    @property
    def rest(self) -> bytes:
        """Bytes of a frame that is not complete yet."""
        return bytes(self._held)

    def cut(self, data: bytes) -> list[SplitFrame]:
        """Take bytes, return the frames they complete. ProtocolError, EncryptedStreamError; of no use afterwards."""
        if self._offset == 0:
            self._refuse_foreign((self._held + data)[:4])
        self._held += data
        frames: list[SplitFrame] = []
        while (found := self._next()) is not None:
            frames.append(found)
        return frames

    def _refuse_foreign(self, start: bytes | bytearray) -> None:
        if start.startswith(_TLS_RECORD):
            raise EncryptedStreamError(self._peer)
        if not _MAGIC_BYTES.startswith(start) and not _TLS_RECORD.startswith(start):
            raise ProtocolError(self._peer, "the stream does not begin with a frame")

    def _next(self) -> SplitFrame | None:
        held = self._held
        if len(held) < PREFIX.size:
            return None
        cls, header_length, body_length = decode_prefix(held, 0, self._peer)
        if body_length > BODY_BYTES_MAX:
            raise ProtocolError(
                self._peer, f"a {cls.__name__} frame with a body of {body_length} bytes"
            )
        body_start = PREFIX.size + header_length
        length = body_start + body_length
        if len(held) < length:
            return None
        raw = bytes(held[:length])
        del held[:length]
        offset, self._offset = self._offset, self._offset + length
        frame = decode_header(cls, raw, PREFIX.size, header_length, raw[body_start:], self._peer)
        return SplitFrame(frame, raw, offset)


# The consumer dials.
_NAMES: Final = {Role.DIALLER: CONSUMER, Role.ACCEPTOR: PRODUCER}


class WireTap:
    """Holds the frames of the only connection of a trace. Implements Relay."""

    def __init__(self) -> None:
        self._cutters = {role: FrameSplitter(name) for role, name in _NAMES.items()}
        self._on_wire: dict[Role, deque[tuple[Frame, bytes]]] = {role: deque() for role in _NAMES}
        self._deliver: LetArrive | None = None
        self._sent: list[SentFrame] = []

    def create_relay(self, dialler: str, acceptor: str, deliver: LetArrive) -> "WireTap":
        """Return the relay of the only connection."""
        assert self._deliver is None, f"{dialler} dials {acceptor} a second time"
        self._deliver = deliver
        return self

    def carry(self, role: Role, data: bytes) -> None:
        for cut in self._cutters[role].cut(data):
            self._on_wire[role].append((cut.frame, cut.raw))
            source = _NAMES[role]
            target = CONSUMER if source == PRODUCER else PRODUCER
            self._sent.append(SentFrame.of(source, target, cut.frame))

    def take_sent(self) -> tuple[SentFrame, ...]:
        """Return the frames that left since the last call."""
        sent, self._sent = tuple(self._sent), []
        return sent

    def waiting_from(self, role: Role) -> int:
        """Frames on their way from this side."""
        return len(self._on_wire[role])

    def arrive(self, role: Role) -> Frame:
        """Let the oldest frame of this side arrive; return it."""
        assert self._deliver is not None
        frame, raw = self._on_wire[role].popleft()
        self._deliver(role, raw)
        return frame

    def data_in_flight(self, channel: int) -> int:
        """Segments of the channel's data that have left and not arrived."""
        return sum(
            frame.credit_count
            for frame, _ in self._on_wire[Role.ACCEPTOR]
            if isinstance(frame, Data) and frame.channel == channel
        )

    def credit_in_flight(self, channel: int) -> int:
        """Credit of the channel that has left and not arrived."""
        credit_count = 0
        for frame, _ in self._on_wire[Role.DIALLER]:
            if isinstance(frame, AddCredit) and frame.channel == channel:
                credit_count += frame.credit_count
            elif isinstance(frame, PartitionRequest) and frame.channel == channel:
                credit_count += frame.initial_credit
        return credit_count


class TappedTransport(SimulatedTransport):
    """A simulated transport that remembers the session with its peer."""

    def __init__(self, network: SimulatedNetwork) -> None:
        super().__init__(network)
        self.session: PeerSession | None = None

    def established(self, connection: PeerConnection, name: str, session: Session) -> None:
        """A connection can be used."""
        if isinstance(session, PeerSession):
            self.session = session
        super().established(connection, name, session)

"""WireTap: holds the frames between the two TaskManagers of a trace until somebody lets the next one arrive."""

from collections import deque
from typing import Final

from headrace.core.security.hmac_handshake import Role
from headrace.network.sessions.peer_session import PeerSession, Session
from headrace.network.trace.simulated_transport import (
    LetArrive,
    SimulatedNetwork,
    SimulatedTransport,
)
from headrace.network.trace.steps import CONSUMER, PRODUCER, SentFrame
from headrace.network.transport.connection_manager import PeerConnection
from headrace.network.wire.frame_splitter import FrameSplitter
from headrace.network.wire.frames import AddCredit, Data, PartitionRequest
from headrace.network.wire.framing import (
    Frame,
)

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
        assert self._deliver is None, f"{dialler} dialled {acceptor} a second time"
        self._deliver = deliver
        return self

    def carry(self, role: Role, data: bytes) -> None:
        for cut in self._cutters[role].cut(data):
            self._on_wire[role].append((cut.frame, cut.raw))
            source = _NAMES[role]
            target = CONSUMER if source == PRODUCER else PRODUCER
            self._sent.append(SentFrame.of(source, target, cut.frame))

    def take_sent(self) -> tuple[SentFrame, ...]:
        """Return the frames sent since the last call."""
        sent, self._sent = tuple(self._sent), []
        return sent

    def waiting_from(self, role: Role) -> int:
        """Number of frames in flight from this side."""
        return len(self._on_wire[role])

    def arrive(self, role: Role) -> Frame:
        """Deliver the oldest frame in flight from this side and return it."""
        assert self._deliver is not None
        frame, raw = self._on_wire[role].popleft()
        self._deliver(role, raw)
        return frame

    def data_in_flight(self, channel: int) -> int:
        """Segments of the channel's data in flight."""
        return sum(
            frame.credit_count
            for frame, _ in self._on_wire[Role.ACCEPTOR]
            if isinstance(frame, Data) and frame.channel == channel
        )

    def credit_in_flight(self, channel: int) -> int:
        """Credit of the channel in flight."""
        credit_count = 0
        for frame, _ in self._on_wire[Role.DIALLER]:
            if isinstance(frame, AddCredit) and frame.channel == channel:
                credit_count += frame.credit_count
            elif isinstance(frame, PartitionRequest) and frame.channel == channel:
                credit_count += frame.initial_credit
        return credit_count


class TappedTransport(SimulatedTransport):
    """Simulated transport that keeps the session with its peer."""

    def __init__(self, network: SimulatedNetwork) -> None:
        super().__init__(network)
        self.session: PeerSession | None = None

    def established(self, connection: PeerConnection, name: str, session: Session) -> None:
        """Keep the session of a connection that is established."""
        if isinstance(session, PeerSession):
            self.session = session
        super().established(connection, name, session)

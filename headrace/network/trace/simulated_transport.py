"""SimulatedTransport: connects TaskManagers of one process and one thread, with simulated delays.

Endpoints, frames and sessions are the same as over sockets. Order is kept per direction of a
connection. Give every CreditBasedShuffleEnvironment of the simulation one transport, from `create_transport()` of the
same SimulatedNetwork, and NeverWait as its wait strategy.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from headrace.core.clock import Cancellable
from headrace.core.ids import ResourceId
from headrace.core.security.hmac_handshake import Role
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.errors import ConnectionLostError, NetworkError
from headrace.network.sessions.connection_protocol import ConnectionProtocol
from headrace.network.sessions.peer_session import Session
from headrace.network.sessions.transport import TransportHost
from headrace.network.transport.connection_manager import (
    OnError,
    OnReady,
    PeerConnection,
    PeerConnections,
)
from headrace.network.wire.framing import Body

Schedule = Callable[[float, Callable[[], None]], Cancellable]
"""Runs a callback after the given ms of virtual time."""
LinkDelay = Callable[[str, str], float]
"""Returns the delay in ms of bytes from one TaskManager to another."""


class Relay(Protocol):
    """Relay between the two sides of one connection: observes, delays or changes the bytes that pass."""

    def carry(self, role: Role, data: bytes) -> None:
        """Handle `data` sent by the side of this role, empty at its end, by delivering the bytes that should arrive."""
        ...


LetArrive = Callable[[Role, bytes], None]
"""Delivers bytes from the side of this role to the other side; empty bytes end the stream."""
CreateRelay = Callable[[str, str, LetArrive], Relay]
"""Makes the relay of a new connection from the names of dialler and acceptor and the delivery function."""

_WRITE_BUDGET_BYTES: Final = 1 << 20


def _no_delay(source: str, target: str) -> float:
    return 0.0


class SimulatedNetwork:
    """Set of TaskManagers that can reach each other."""

    def __init__(
        self,
        schedule: Schedule,
        delay_ms: LinkDelay = _no_delay,
        create_relay: CreateRelay | None = None,
    ) -> None:
        self.schedule: Final = schedule
        self.delay_ms: Final = delay_ms
        self.create_relay: Final = create_relay
        self.transports: Final[dict[str, SimulatedTransport]] = {}

    def create_transport(self) -> "SimulatedTransport":
        """Return the transport of one more TaskManager."""
        return SimulatedTransport(self)

    def kill(self, name: str) -> None:
        """Remove a TaskManager: its bytes no longer arrive, and its peers notice."""
        transport = self.transports.pop(name, None)
        if transport is not None:
            transport.vanish()


class SimulatedTransport:
    """Moves frames between simulated TaskManagers. Everything runs on the simulation's thread."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._host: TransportHost | None = None
        self._connections: list[_SimulatedConnection] = []
        self.peers: Final = PeerConnections()

    @property
    def host(self) -> TransportHost:
        """Environment that the transport serves."""
        assert self._host is not None
        return self._host

    def start(self, host: TransportHost) -> TaskManagerLocation:
        self._host = host
        self._network.transports[host.name] = self
        return TaskManagerLocation(ResourceId(host.name), host.name, 0, None, "simulation")

    def post(self, callback: Callable[[], None]) -> None:
        self._network.schedule(0, callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        return self._network.schedule(delay_ms, callback)

    def connect(self, location: TaskManagerLocation, on_ready: OnReady, on_error: OnError) -> None:
        name = str(location.resource_id)
        if self.peers.use(name, on_ready, on_error):
            peer = self._network.transports.get(name)
            if peer is None:
                self.peers.dial_failed(name, "no task manager has this name")
                return
            near = _SimulatedConnection(self._network, self, name, Role.DIALLER)
            far = _SimulatedConnection(self._network, peer, self.host.name, Role.ACCEPTOR)
            near.other, far.other = far, near
            near.relay = far.relay = self._create_relay(near, far)
            self._connections.append(near)
            peer._connections.append(far)
            near.wake()

    def _create_relay(
        self, near: "_SimulatedConnection", far: "_SimulatedConnection"
    ) -> Relay | None:
        create = self._network.create_relay
        if create is None:
            return None

        def deliver(role: Role, data: bytes) -> None:
            (far if role is Role.DIALLER else near).arrive_later(data)

        return create(self.host.name, near.peer, deliver)

    def close(self) -> None:
        self._network.transports.pop(self.host.name, None)
        for connection in list(self._connections):
            connection.close()

    def vanish(self) -> None:
        for connection in list(self._connections):
            connection.cut()

    def established(self, connection: PeerConnection, name: str, session: Session) -> None:
        """Record that a connection is established."""
        self.peers.established(self.host.name, connection, name, session)

    def ended(self, connection: "_SimulatedConnection", error: NetworkError) -> None:
        """Remove a connection that has ended."""
        self._connections.remove(connection)
        dialled = connection.peer if connection.role is Role.DIALLER else None
        self.peers.ended(connection, dialled, str(error))


class _SimulatedConnection:
    """One side of a connection; a Link."""

    def __init__(
        self, network: SimulatedNetwork, transport: SimulatedTransport, peer: str, role: Role
    ) -> None:
        self._network = network
        self._transport = transport
        self._peer = peer
        self.role: Final = role
        self._is_wake_pending = False
        self._is_ended = False
        # Bytes in flight to this side. Each arrival takes the oldest: delays may differ, the order may not.
        self._inbox: deque[Callable[[], None]] = deque()
        self.other: _SimulatedConnection | None = None
        self.relay: Relay | None = None
        self._endpoint = ConnectionProtocol(
            transport.host,
            self,
            role,
            self._established,
            peer if role is Role.DIALLER else None,
            lambda name: transport.peers.claimed(self, name),
        )

    @property
    def peer(self) -> str:
        return self._peer

    def wake(self) -> None:
        if not self._is_wake_pending:
            self._is_wake_pending = True
            self._network.schedule(0, self._flush)

    def close(self) -> None:
        """Close the connection on purpose."""
        if not self._is_ended:
            self._say(self._endpoint.farewell())
            self._end(ConnectionLostError(self._peer, "closed by this side"))

    def cut(self) -> None:
        """End both sides: this one now, the other when it can have noticed."""
        if not self._is_ended:
            other, self.other, self.relay = self.other, None, None
            self._end(ConnectionLostError(self._peer, "this side vanished"))
            if other is not None:
                other._later(
                    lambda: other._end(ConnectionLostError(other.peer, "the peer vanished"))
                )

    def receive(self, data: bytes) -> None:
        """Process bytes of the other side."""
        if self._is_ended:
            return
        if not data:
            self._end(ConnectionLostError(self._peer, "the connection was closed unexpectedly"))
            return
        view = memoryview(data)
        try:
            while view and not self._is_ended:
                room = self._endpoint.buffer()
                count = min(len(room), len(view))
                room[:count] = view[:count]
                self._endpoint.received(count)
                view = view[count:]
        except NetworkError as error:
            self._say(self._endpoint.last_output())
            self._end(error)
            return
        self._flush()

    def _flush(self) -> None:
        self._is_wake_pending = False
        while not self._is_ended:
            output = self._endpoint.take_output(_WRITE_BUDGET_BYTES)
            if not output:
                if self._endpoint.is_spent:
                    self.close()
                return
            self._say(output)

    def arrive_later(self, data: bytes) -> None:
        """Receive bytes of the other side after the delay of this direction."""
        self._later(lambda: self.receive(data))

    def _say(self, output: list[Body]) -> None:
        data = b"".join(bytes(part) for part in output)
        if data:
            self._send(data)

    def _send(self, data: bytes) -> None:
        if self.relay is not None:
            self.relay.carry(self.role, data)
        elif self.other is not None:
            self.other.arrive_later(data)

    def _later(self, callback: Callable[[], None]) -> None:
        """Run a callback of the peer after the delay of this direction."""
        self._inbox.append(callback)
        delay_ms = self._network.delay_ms(self._peer, self._transport.host.name)
        self._network.schedule(delay_ms, self._arrive)

    def _arrive(self) -> None:
        self._inbox.popleft()()

    def _established(self, name: str, session: Session) -> None:
        self._transport.established(self, name, session)
        self._check_alive()

    def _check_alive(self) -> None:
        if self._is_ended:
            return
        try:
            delay_ms = self._endpoint.check_alive()
        except ConnectionLostError as error:
            self._end(error)
            return
        if delay_ms is not None:
            self._network.schedule(delay_ms, self._check_alive)
            self._flush()

    def _end(self, error: NetworkError) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._endpoint.lost(error)
            self._transport.ended(self, error)
            self._send(b"")

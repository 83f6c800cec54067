"""ConnectionManager: at most one connection per TaskManager, dialled or accepted, and shared by all its channels.

The side that needs a connection first dials; the other side then uses it too. If both dial at once, both sides keep the
connection that the lower TaskManager id dialled (PeerConnections). A side that knows of a coming connection waits for
it, with all its channels. Only a side that could not know of it has used the other connection by then: that one opens
no more channels, and ends with its last channel.
Source: Flink PartitionRequestClientFactory, with one connection for both directions instead of two.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from headrace.core.security.hmac_handshake import Role
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import spawn
from headrace.network.errors import NetworkError
from headrace.network.sessions.peer_session import PeerSession, Session
from headrace.network.transport.connection import SocketConnection
from headrace.network.transport.http_tunnel import HttpTunnel

_LOG: Final = logging.getLogger(__name__)
OnReady = Callable[[PeerSession], None]
OnError = Callable[[str], None]
Factory = Callable[[str, str, Callable[[], None]], SocketConnection]
"""Makes a dialler's connection from the address for messages, the name of the peer, and a callback once it is made."""


class PeerConnection(Protocol):
    """Connection as far as PeerConnections must know it."""

    @property
    def role(self) -> Role:
        """Role of this side in the connection."""
        ...


class PeerConnections:
    """Connections by the name of the peer, and the callbacks that wait for them. Transport's thread."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[PeerConnection, PeerSession]] = {}
        # Established, but only used if the better one, which is being made, fails.
        self._kept_back: dict[str, tuple[PeerConnection, PeerSession]] = {}
        self._incoming: Final[dict[PeerConnection, str]] = {}
        self._waiting: dict[str, list[tuple[OnReady, OnError]]] = {}

    def use(self, name: str, on_ready: OnReady, on_error: OnError) -> bool:
        """Call one of the two callbacks, now or later; return whether the caller must dial."""
        found = self._used.get(name)
        if found is not None:
            on_ready(found[1])
            return False
        waiting = self._waiting.setdefault(name, [])
        waiting.append((on_ready, on_error))
        return len(waiting) == 1

    def claimed(self, connection: PeerConnection, name: str) -> None:
        """Record that a peer which dialled this side has sent its name, not authenticated yet."""
        self._incoming[connection] = name

    def established(
        self, own_name: str, connection: PeerConnection, name: str, session: Session
    ) -> None:
        """Use an established connection of either direction."""
        self._incoming.pop(connection, None)
        if not isinstance(session, PeerSession):
            return
        better = Role.DIALLER if own_name < name else Role.ACCEPTOR
        used = self._used.get(name)
        if used is not None:
            if used[0].role is connection.role:
                # The peer noticed first that the older connection is dead.
                return
            if connection.role is not better:
                session.retire(connection.role)
                return
            used[1].retire(used[0].role)
        elif connection.role is not better and self._is_better_on_its_way(better, name):
            self._kept_back[name] = connection, session
            return
        self._use(name, connection, session)

    def dial_failed(self, name: str, reason: str) -> None:
        """Record that this side cannot reach a peer."""
        self._fall_back(name, reason)

    def ended(self, connection: PeerConnection, dialled_name: str | None, reason: str) -> None:
        """Record that a connection ended, or was never established."""
        for name, (known, _) in list(self._used.items()):
            if known is connection:
                del self._used[name]
                return
        for name, (known, _) in list(self._kept_back.items()):
            if known is connection:
                del self._kept_back[name]
        claimed = self._incoming.pop(connection, None)
        if claimed is not None and claimed in self._kept_back:
            self._fall_back(claimed, reason)
        elif dialled_name is not None and dialled_name not in self._used:
            self._fall_back(dialled_name, reason)

    def _is_better_on_its_way(self, better: Role, name: str) -> bool:
        if better is Role.DIALLER:
            return name in self._waiting
        return name in self._incoming.values()

    def _use(self, name: str, connection: PeerConnection, session: PeerSession) -> None:
        self._used[name] = connection, session
        spare = self._kept_back.pop(name, None)
        if spare is not None:
            spare[1].retire(spare[0].role)
        for on_ready, _ in self._waiting.pop(name, []):
            on_ready(session)

    def _fall_back(self, name: str, reason: str) -> None:
        spare = self._kept_back.pop(name, None)
        if spare is not None:
            self._use(name, *spare)
            return
        for _, on_error in self._waiting.pop(name, []):
            on_error(reason)


class ConnectionManager:
    """Connections by the name of the peer. Network thread."""

    def __init__(
        self,
        own_host_id: str,
        factory: Factory,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        retry_count: int = 0,
        tunnel: HttpTunnel | None = None,
    ) -> None:
        self._own_host_id: Final = own_host_id
        self._factory = factory
        self._timeout_s = timeout_s
        self._tls = tls
        self._retry_count = retry_count
        self._tunnel = tunnel
        self._peers: Final = PeerConnections()
        self._dials: set[asyncio.Task[Any]] = set()

    def connect(self, location: TaskManagerLocation, on_ready: OnReady, on_error: OnError) -> None:
        """Call one of the two callbacks, now or later, and dial if necessary."""
        name = str(location.resource_id)
        if self._peers.use(name, on_ready, on_error):
            loop = asyncio.get_running_loop()
            spawn(self._dial(name, location), loop, f"dial {name}", self._dials)

    def claimed(self, connection: SocketConnection, name: str) -> None:
        """Record that a peer which dialled this side has sent its name, not authenticated yet."""
        self._peers.claimed(connection, name)

    def established(
        self, own_name: str, connection: SocketConnection, name: str, session: Session
    ) -> None:
        """Use an established connection of either direction."""
        self._peers.established(own_name, connection, name, session)

    def ended(self, connection: SocketConnection, error: NetworkError) -> None:
        """Record that a connection ended, or was never established."""
        self._peers.ended(connection, connection.expected_name, str(error))

    def cancel_dials(self) -> None:
        """Stop all dials."""
        for dial in list(self._dials):
            dial.cancel()

    async def _dial(self, name: str, location: TaskManagerLocation) -> None:
        reason = ""
        for _ in range(1 + self._retry_count):
            try:
                async with asyncio.timeout(self._timeout_s) as limit:
                    await self._open(name, location, lambda: _lift(limit))
                return
            except OSError as error:
                reason = str(error)
            except Exception as error:
                # Otherwise the channels that wait for the connection would wait for ever.
                _LOG.exception("cannot dial task manager %s because of an unexpected error", name)
                reason = f"{type(error).__name__}: {error}"
        text = reason or "there was no answer in time"
        self._peers.dial_failed(name, f"{location.host}:{location.data_port}: {text}")

    async def _open(
        self, name: str, location: TaskManagerLocation, on_made: Callable[[], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        path = None if self._tunnel is not None else location.unix_socket_path
        if path is not None and location.host_id == self._own_host_id and Path(path).is_socket():
            try:
                with self._attempt(path, name, on_made) as connection:
                    await loop.create_unix_connection(lambda: connection, path)
                return
            except OSError:
                # The same kernel, but another file system: TCP still reaches it.
                pass
        address = f"{location.host}:{location.data_port}"
        tls_timeout_s = None if self._tls is None else self._timeout_s
        with self._attempt(address, name, on_made) as connection:
            if self._tunnel is not None:
                await loop.create_connection(
                    lambda: connection,
                    sock=await self._tunnel.open(location.host, location.data_port),
                    ssl=self._tls,
                    server_hostname=None if self._tls is None else location.host,
                    ssl_handshake_timeout=tls_timeout_s,
                )
                return
            await loop.create_connection(
                lambda: connection,
                location.host,
                location.data_port,
                ssl=self._tls,
                ssl_handshake_timeout=tls_timeout_s,
            )

    @contextmanager
    def _attempt(
        self, address: str, name: str, on_made: Callable[[], None]
    ) -> Generator[SocketConnection]:
        """Yield a connection to be made within the context; abandon it if the context fails."""
        connection = self._factory(address, name, on_made)
        try:
            yield connection
        except BaseException:
            # It may be made already: uvloop closes its handle without notice.
            connection.abandon()
            raise


def _lift(limit: asyncio.Timeout) -> None:
    """Remove the dial's time-out from a connection that is made: the handshake has one of its own."""
    # If the limit or the dial is over, there is nothing to remove.
    with suppress(RuntimeError):
        limit.reschedule(None)

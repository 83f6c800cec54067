"""SocketTransport and its NetworkThread: the exchange between processes, with its server and connections.

Processes on one host use a Unix socket, others TCP, with TLS if the cluster uses it. Closing waits until written
data has left.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from headrace.core.clock import Cancellable
from headrace.core.config import ConfigOption, Settings
from headrace.core.ids import ResourceId
from headrace.core.security.hmac_handshake import Role, Strangers
from headrace.core.security.tls import (
    RefusalLog,
    TlsIdentity,
    client_context,
    refuse_plaintext,
    server_context,
)
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import EventLoopThread
from headrace.network.errors import NetworkError
from headrace.network.sessions.peer_session import Session
from headrace.network.sessions.transport import TransportHost
from headrace.network.transport.connection import SocketConnection
from headrace.network.transport.connection_manager import ConnectionManager, OnError, OnReady
from headrace.network.transport.http_tunnel import HttpTunnel
from headrace.network.transport.server import DATA_PORT, DataServer, host_id

T = TypeVar("T")
CONNECT_TIMEOUT: Final = ConfigOption(
    "taskmanager.network.netty.client.connectTimeoutSec", int, 120,
    "Seconds to wait for a connection to another TaskManager.", least=1,
)  # fmt: skip
CONNECT_RETRIES: Final = ConfigOption(
    "taskmanager.network.retries", int, 0,
    "Number of retries if a connection to another TaskManager cannot be made; a lost connection is not retried.",
)  # fmt: skip
HANDSHAKE_TIMEOUT: Final = ConfigOption(
    "headrace.network.handshake-timeout", timedelta, timedelta(seconds=10),
    "Time in which a peer must prove that it belongs to the cluster before it is disconnected.",
    least=timedelta(milliseconds=10),
)  # fmt: skip
_CLOSE_TIMEOUT_S: Final = 5.0
_TOO_MANY: Final = "too many unauthenticated connections are open"
_LOG: Final = logging.getLogger(__name__)


class NetworkThread:
    """Event loop of a process's data plane: runs callbacks, timers and connections.

    `post` wakes the loop only if nothing was queued. `on_fatal_error` is called on the thread if a callback or timer
    fails, since nothing else would report it.
    """

    def __init__(
        self, name: str, on_fatal_error: Callable[[BaseException], None] | None = None
    ) -> None:
        self._thread: Final = EventLoopThread(name)
        self._thread.on_fatal_error = on_fatal_error
        self._loop: Final = self._thread.loop
        self._posted: deque[Callable[[], None]] = deque()
        self._is_wake_pending = False
        # After the loop has stopped its state has no owner: threads that still post take turns.
        self._afterlife = threading.RLock()

    def post(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the thread, in the order of posting. Any thread."""
        self._posted.append(callback)
        if self._is_wake_pending:
            return
        self._is_wake_pending = True
        try:
            self._loop.call_soon_threadsafe(self._drain)
        except RuntimeError:
            self._drain_after_stop()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` after `delay_ms`. Network thread only."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the loop and wait for it. Not to be called on the network thread."""
        return self._thread.run(coroutine, timeout_s)

    def stop(self) -> None:
        """Run all posted callbacks, end the loop and join the thread. Idempotent."""
        self._thread.stop(None)
        self._drain_after_stop()

    def _drain(self) -> None:
        """Run the queued callbacks; callbacks posted meanwhile run in the next turn of the loop."""
        try:
            for _ in range(len(self._posted)):
                self._posted.popleft()()
        finally:
            # Also after an error of a callback: the loop reports it, and the other callbacks still run.
            self._is_wake_pending = False
            # After that line, so that a callback appended after this check wakes the loop again.
            if self._posted and not self._loop.is_closed():
                self._is_wake_pending = True
                self._loop.call_soon(self._drain)

    def _drain_after_stop(self) -> None:
        with self._afterlife:
            while self._posted:
                self._drain()


class SocketTransport:
    """Moves frames between TaskManagers over TCP and Unix sockets."""

    def __init__(
        self,
        settings: Settings,
        bind_host: str,
        advertised_host: str,
        socket_directory: Path | None,
        tls: TlsIdentity | None = None,
        on_fatal_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Set up the transport; for `on_fatal_error` see ShuffleEnvironmentContext."""
        if tls is None:
            refuse_plaintext(settings, bind_host)
        self._on_fatal_error = on_fatal_error
        self._settings = settings
        self._bind_host = bind_host
        self._advertised_host = advertised_host
        self._socket_directory = socket_directory
        self._handshake_timeout_s = settings.get_option(HANDSHAKE_TIMEOUT).total_seconds()
        self._server_tls = None if tls is None else server_context(tls)
        self._connections: set[SocketConnection] = set()
        self._strangers: Strangers[SocketConnection] = Strangers()
        self._all_closed: asyncio.Event | None = None
        self._is_closed = False
        self._host: TransportHost | None = None
        self._thread: NetworkThread | None = None
        self._refusals = RefusalLog(_LOG, "a connection for rows")
        self._server = DataServer(
            lambda: self._new_connection(Role.ACCEPTOR, "a client", None, self._accepted),
            self._refusals,
        )
        self._host_id = host_id()
        self._table = ConnectionManager(
            self._host_id,
            self._dialled,
            float(settings.get_option(CONNECT_TIMEOUT)),
            None if tls is None else client_context(tls),
            settings.get_option(CONNECT_RETRIES),
            HttpTunnel.from_settings(settings),
        )

    def start(self, host: TransportHost) -> TaskManagerLocation:
        self._host = host
        self._thread = NetworkThread(f"network {host.name}", self._failed)
        unix_path = None
        if self._socket_directory is not None:
            unix_path = self._socket_directory / f"{host.random.getrandbits(64):016x}.sock"
        ports = self._settings.get_option(DATA_PORT)
        try:
            listening = self._server.listen(
                self._bind_host, ports, unix_path, self._server_tls, self._handshake_timeout_s
            )
            bound = self._thread.run(listening, 30)
        except BaseException:
            self.close()
            raise
        path = self._server.unix_path
        return TaskManagerLocation(
            ResourceId(host.name),
            self._advertised_host,
            bound,
            None if path is None else str(path),
            self._host_id,
        )

    def post(self, callback: Callable[[], None]) -> None:
        assert self._thread is not None, "the shuffle environment was not started"
        self._thread.post(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        assert self._thread is not None
        return self._thread.call_later(delay_ms, callback)

    def connect(self, location: TaskManagerLocation, on_ready: OnReady, on_error: OnError) -> None:
        if self._is_closed:
            on_error("the network of this task manager is being closed")
            return
        self._table.connect(location, on_ready, on_error)

    def close(self) -> None:
        if self._thread is None or self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.run(self._close(), _CLOSE_TIMEOUT_S * 2)
        finally:
            self._thread.stop()

    async def _close(self) -> None:
        self._table.cancel_dials()
        await self._server.close()
        if not self._connections:
            return
        self._all_closed = asyncio.Event()
        failures: list[Exception] = []
        for connection in list(self._connections):
            try:
                connection.close()
            except Exception as error:
                # The other connections have output to send too.
                failures.append(error)
                connection.abort()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._all_closed.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
        if failures:
            raise failures[0]

    def _failed(self, error: BaseException) -> None:
        # While it is being closed, no one waits for lost callbacks.
        if self._on_fatal_error is not None and not self._is_closed:
            self._on_fatal_error(error)

    def _dialled(self, address: str, name: str, on_made: Callable[[], None]) -> SocketConnection:
        def opened(connection: SocketConnection) -> None:
            self._connections.add(connection)
            on_made()

        return self._new_connection(Role.DIALLER, address, name, opened)

    def _new_connection(
        self,
        role: Role,
        peer: str,
        expected_name: str | None,
        on_opened: Callable[[SocketConnection], None],
    ) -> SocketConnection:
        assert self._host is not None
        return SocketConnection(
            self._host,
            role,
            self.post,
            self._handshake_timeout_s,
            on_opened,
            self._table.claimed,
            self._established,
            self._ended,
            self._closed,
            peer,
            expected_name,
        )

    def _accepted(self, connection: SocketConnection) -> None:
        self._connections.add(connection)
        oldest = self._strangers.opened(connection)
        if oldest is not None:
            oldest.refuse(_TOO_MANY)
            # It no longer counts as unauthenticated when its end is reported.
            self._refusals.tell(oldest.host, _TOO_MANY)

    def _established(self, connection: SocketConnection, name: str, session: Session) -> None:
        self._strangers.no_longer(connection)
        assert self._host is not None
        self._table.established(self._host.name, connection, name, session)

    def _ended(self, connection: SocketConnection, error: NetworkError) -> None:
        if self._strangers.no_longer(connection) and connection.refusal:
            self._refusals.tell(connection.host, connection.refusal)
        self._table.ended(connection, error)

    def _closed(self, connection: SocketConnection) -> None:
        self._connections.discard(connection)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()

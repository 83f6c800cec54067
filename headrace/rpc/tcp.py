"""RpcService over TCP: one listening port, and one dialled connection per remote process, shared by all gateways.

When a connection is lost, every ask that waits on it fails at once; the next call dials again. Requests travel on the
connection of the side that asks, responses come back on the same one.
"""

import asyncio
import errno
import functools
import logging
import ssl
from collections.abc import Callable

from headrace.core.clock import Clock
from headrace.core.config import ConfigOption, Settings, parse_ports
from headrace.core.errors import DECODE_ERRORS, PortInUseError
from headrace.core.host_port import join_host_port, split_host_port
from headrace.core.randomness import SeededRandom
from headrace.core.security.hmac_handshake import Role, Strangers
from headrace.core.security.tls import (
    RefusalLog,
    TlsIdentity,
    TlsListener,
    client_context,
    refuse_plaintext,
    server_context,
)
from headrace.rpc import codec
from headrace.rpc.authentication import Authentication
from headrace.rpc.connection import RpcConnection
from headrace.rpc.errors import OversizeRequestError, RpcError, RpcHandshakeError
from headrace.rpc.options import (
    FRAME_SIZE,
    SEND_BUFFER_SIZE,
    TASK_MANAGER_RPC_PORT,
    TCP_TIMEOUT,
)
from headrace.rpc.service import Route, RpcService

_LOG = logging.getLogger(__name__)

_FAREWELL_MS = 1000
"""Time in which a stopping service's connections may send their buffered data."""


class TcpRpcService(RpcService):
    """RpcService of a process on the network. Construct it on its loop, then `await start()`.

    `secret` are the 32 bytes that the processes of one cluster share. With `tls` all connections use TLS; without it
    frames are sealed, but can be read on the wire, so they are refused beyond loopback (ConfigurationError) unless the
    settings allow it.
    """

    scheme = "headrace.tcp"

    def __init__(
        self,
        settings: Settings,
        *,
        bind_host: str,
        secret: bytes,
        clock: Clock,
        random: SeededRandom,
        port_option: ConfigOption[str] = TASK_MANAGER_RPC_PORT,
        advertised_host: str | None = None,
        tls: TlsIdentity | None = None,
    ) -> None:
        if tls is None:
            refuse_plaintext(settings, bind_host)
        super().__init__(settings, clock, random, asyncio.get_running_loop())
        self._bind_host = bind_host
        self._advertised_host = advertised_host or bind_host
        self._port_option = port_option
        self._secret = secret
        self._server_ssl = None if tls is None else server_context(tls)
        self._client_ssl = None if tls is None else client_context(tls)
        self.send_buffer_size = int(settings.get_option(SEND_BUFFER_SIZE))
        self.tcp_timeout_ms = settings.duration_ms(TCP_TIMEOUT)
        self._server: asyncio.Server | TlsListener | None = None
        self._port = 0
        self._links: dict[str, TcpLink] = {}
        self._accepted: dict[RpcConnection, None] = {}
        self._strangers: Strangers[RpcConnection] = Strangers()
        self._refusals = RefusalLog(_LOG, "a call")
        self._open: set[RpcConnection] = set()

    @property
    def address(self) -> str:
        """Return `host:port` under which others reach this process."""
        assert self._port, "start() comes first"
        return join_host_port(self._advertised_host, self._port)

    @property
    def accepted_connections(self) -> tuple[RpcConnection, ...]:
        """Return the connections that others have dialled, authenticated or not."""
        return tuple(self._accepted)

    async def start(self) -> None:
        """Listen on the first free port that the option allows; PortInUseError if there is none."""
        text = self.settings.get_option(self._port_option)
        port = 0
        for port in parse_ports(self._port_option.key, text):
            try:
                self._server = await self._listen(port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                self._port = self._server.sockets[0].getsockname()[1]
                return
        raise PortInUseError(self._bind_host, port, self._port_option.key, text)

    async def _listen(self, port: int) -> asyncio.Server | TlsListener:
        if self._server_ssl is None:
            return await self.loop.create_server(self._accept, self._bind_host, port)
        timeout_s = self.tcp_timeout_ms / 1000
        listener = TlsListener(
            self._accept, self._bind_host, port, self._server_ssl, timeout_s, self._refusals
        )
        listener.start()
        return listener

    def _accept(self) -> RpcConnection:
        return self.create_connection(
            Role.ACCEPTOR, "", self._accepted_opened, self._request_arrived
        )

    def _accepted_opened(self, connection: RpcConnection) -> None:
        self._open.add(connection)
        self._accepted[connection] = None
        # Completed in either case: by authentication, or by the end of the connection.
        connection.established.add_done_callback(lambda _: self._strangers.no_longer(connection))
        oldest = self._strangers.opened(connection)
        if oldest is not None:
            oldest.fail(
                RpcHandshakeError(
                    oldest.remote, "too many other connections wait for authentication"
                )
            )

    def _request_arrived(self, connection: RpcConnection, frame: bytes) -> None:
        try:
            request = codec.decode_request(frame)
        except DECODE_ERRORS as error:
            connection.fail(RpcError(f"{connection.remote} sent an invalid request: {error}"))
            return
        respond = functools.partial(_respond, connection)
        self._receive_request(request, respond, connection.limit_bytes)

    def _route(self, authority: str) -> Route:
        link = self._links.get(authority)
        if link is None:
            link = self._links[authority] = TcpLink(self, authority)
            link.open()
        return link

    async def dial(self, link: "TcpLink", authority: str) -> RpcConnection:
        """Open and authenticate a connection; OSError, TimeoutError or RpcHandshakeError if that fails."""
        host, port = split_host_port(authority)
        connection = self.create_connection(
            Role.DIALLER, authority, self._open.add, link.frame_arrived
        )
        async with asyncio.timeout(self.tcp_timeout_ms / 1000):
            await self.loop.create_connection(
                lambda: connection,
                host,
                port,
                ssl=self._client_ssl,
                ssl_handshake_timeout=self._tls_timeout_s(self._client_ssl),
            )
            try:
                await connection.established
            except asyncio.CancelledError:
                connection.close()
                raise
        return connection

    def response_arrived(self, response: codec.Response) -> None:
        """Handle a response that a link has read."""
        self._outstanding.complete(response)

    def refuse(self, call_id: int, error: RpcError) -> None:
        """Fail the ask of a request that a link cannot send."""
        self._outstanding.fail(call_id, error)

    def link_lost(self, link: "TcpLink", reason: str, cause: BaseException | None) -> None:
        """Handle the end of a link; the next call creates a new one."""
        if self._links.get(link.authority) is link:
            del self._links[link.authority]
        self._outstanding.fail_route(link, reason, cause)

    def _tls_timeout_s(self, context: ssl.SSLContext | None) -> float | None:
        return None if context is None else self.tcp_timeout_ms / 1000

    def create_connection(
        self,
        role: Role,
        remote: str,
        on_open: Callable[[RpcConnection], None],
        on_frame: Callable[[RpcConnection, bytes], None],
    ) -> RpcConnection:
        """Return the protocol object of one connection."""
        return RpcConnection(
            Authentication(
                role,
                self._secret,
                self._frame_size,
                self.random,
                remote,
                remote if role is Role.DIALLER else self.address,
            ),
            loop=self.loop,
            frame_size=self._frame_size,
            send_buffer_size=self.send_buffer_size,
            proof_timeout_ms=self.tcp_timeout_ms,
            # TLS has its own.
            is_sealed=(self._client_ssl if role is Role.DIALLER else self._server_ssl) is None,
            on_open=on_open,
            on_frame=on_frame,
            on_lost=self._connection_lost,
            on_refused=self._refusals.tell,
        )

    def _connection_lost(
        self, connection: RpcConnection, reason: str, error: BaseException | None
    ) -> None:
        self._open.discard(connection)
        self._accepted.pop(connection, None)
        for link in tuple(self._links.values()):
            link.connection_lost(connection, reason, error)

    async def stop(self) -> None:
        """Terminate all endpoints, send buffered data, close every connection and the port."""
        await super().stop()
        closing = [connection for connection in self._open if not connection.closed.done()]
        if closing:
            await asyncio.wait(
                [connection.closed for connection in closing], timeout=_FAREWELL_MS / 1000
            )
        for connection in closing:
            if not connection.closed.done():
                connection.fail(RpcError("the RpcService stopped"))

    def _close_routes(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._open):
            connection.close()
        for link in tuple(self._links.values()):
            link.close()
        self._outstanding.fail_all("the RpcService here is stopped")


class TcpLink:
    """Link to one other process; requests wait in it while the connection is being opened."""

    def __init__(self, service: TcpRpcService, authority: str) -> None:
        self._service = service
        self.authority = authority
        self.connection: RpcConnection | None = None
        self._waiting: list[tuple[codec.Request, bytes]] = []
        self._waiting_bytes = 0
        self._is_lost = False

    def open(self) -> None:
        """Begin to dial."""
        self._service.spawn(self._open(), f"dial {self.authority}")

    def send(self, request: codec.Request, frame: bytes) -> None:
        """Send a request, at once or when the connection is open."""
        connection = self.connection
        if connection is None:
            self._waiting.append((request, frame))
            self._waiting_bytes += len(frame)
            if self._waiting_bytes > self._service.send_buffer_size:
                self._lose(f"{self._waiting_bytes} bytes wait for a connection", None)
        elif len(frame) > connection.limit_bytes:
            self._refuse(request, len(frame), connection.limit_bytes)
        else:
            connection.send(frame)

    def close(self) -> None:
        """Close the link, as the service stops."""
        if self.connection is not None:
            self.connection.close()
        self._lose("the RpcService here is stopped", None)

    def frame_arrived(self, connection: RpcConnection, frame: bytes) -> None:
        """Handle a response of the peer."""
        try:
            response = codec.decode_response(frame)
        except DECODE_ERRORS as error:
            connection.fail(RpcError(f"{self.authority} sent an invalid response: {error}"))
        else:
            self._service.response_arrived(response)

    def connection_lost(
        self, connection: RpcConnection, reason: str, error: BaseException | None
    ) -> None:
        """Handle the end of a connection of the service."""
        if connection is self.connection:
            self._lose(reason, error)

    async def _open(self) -> None:
        try:
            connection = await self._service.dial(self, self.authority)
        except TimeoutError as error:
            self._lose(f"no connection within {self._service.tcp_timeout_ms:g} ms", error)
        except ConnectionRefusedError as error:
            self._lose(f"connection refused, nothing listens at {self.authority}", error)
        except (OSError, RpcError) as error:
            self._lose(str(error), error)
        else:
            if self._is_lost or connection.closed.done():
                connection.close()
                self._lose("the connection was closed at once", None)
                return
            self.connection = connection
            waiting, self._waiting = self._waiting, []
            for request, frame in waiting:
                self.send(request, frame)

    def _lose(self, reason: str, cause: BaseException | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        tells = [request for request, _ in self._waiting if not request.call_id]
        if tells:
            _LOG.warning(
                "%d calls without a reply to %s were lost: %s", len(tells), self.authority, reason
            )
        self._waiting.clear()
        self._service.link_lost(self, reason, cause)

    def _refuse(self, request: codec.Request, size_bytes: int, limit_bytes: int) -> None:
        method = request.method if isinstance(request, codec.Call) else "connect"
        error = OversizeRequestError(method, size_bytes, limit_bytes, FRAME_SIZE.key)
        if request.call_id:
            self._service.refuse(request.call_id, error)
        else:
            _LOG.error("a call without a reply to %s was lost: %s", self.authority, error)


def _respond(connection: RpcConnection, _: codec.Response, frame: bytes) -> None:
    connection.send(frame)

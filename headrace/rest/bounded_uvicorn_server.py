"""BoundedUvicornServer: limits the number of HTTP connections, including those in a TLS handshake.

Anybody who reaches the port can connect. Without these limits connections that send nothing, half a request or half a
handshake would use up the descriptors of the driver's process, and jobs would fail.
"""

import asyncio
import contextlib
import logging
import socket
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.core.threads import spawn

_LOG: Final = logging.getLogger(__name__)
HTTP_CONNECTIONS_MAX: Final = 256
HANDSHAKE_TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 1.0
"""Pause in seconds after the system had no descriptor for a connection."""


class BoundedUvicornServer(uvicorn.Server):
    """Server that closes new connections at once beyond HTTP_CONNECTIONS_MAX, including those in a handshake."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.servers = []
        self._accepting: Final[set[asyncio.Task[Any]]] = set()
        self._handshakes: Final[set[asyncio.Task[Any]]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        for listener in sockets or []:
            listener.setblocking(False)
            spawn(self._accept(listener), loop, "accept HTTP connections", self._accepting)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, and end all connections."""
        tasks = (*self._accepting, *self._handshakes)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                _LOG.debug("a connection could not be accepted: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            count = len(self._handshakes) + len(self.server_state.connections)
            if count >= HTTP_CONNECTIONS_MAX:
                connection.close()
            else:
                connection.setblocking(False)
                spawn(self._open(connection), loop, "open an HTTP connection", self._handshakes)

    async def _open(self, connection: socket.socket) -> None:
        """Pass a connection to its protocol, after its handshake."""
        context = self.config.ssl
        is_open = False
        try:
            with contextlib.suppress(OSError):  # which errors of TLS and timeouts are as well
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._protocol,
                    connection,
                    ssl=context,
                    ssl_handshake_timeout=None if context is None else HANDSHAKE_TIMEOUT_S,
                )
                is_open = True
        finally:
            if not is_open:
                connection.close()

    def _protocol(self) -> asyncio.Protocol:
        create: Any = self.config.http_protocol_class
        return create(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


REQUEST_HEAD_TIMEOUT_S: Final = 10.0
"""Time in seconds within which a connection must send a whole request head; up to twice as long."""


class BoundedHttpProtocol(H11Protocol):
    """One connection, after its TLS handshake if it has one; it is closed if it sends no request head in time."""

    _seen: Any = None
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take over a connection, and begin to watch it."""
        super().connection_made(transport)
        self._watch = self.loop.call_later(REQUEST_HEAD_TIMEOUT_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer data that is not HTTP; if a request's answer has begun or ended, the connection is closed with it."""
        cycle: Any = self.cycle
        if cycle is not None:
            # Its request is dropped: nobody reads the application's answer.
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _look(self) -> None:
        """Close a connection that has sent no request since the last check."""
        cycle: Any = self.cycle
        if cycle is self._seen and (cycle is None or cycle.response_complete):
            self.transport.abort()
            return
        self._seen = cycle
        self._watch = self.loop.call_later(REQUEST_HEAD_TIMEOUT_S, self._look)

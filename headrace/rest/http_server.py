"""BoundedHttpServer: bounds the number of HTTP connections, those in a TLS handshake included.

Anybody who reaches the port can connect. Without these bounds connections that send nothing, half a request or half a
handshake would use up the descriptors of the driver's process, and jobs would fail for want of them.
"""

import asyncio
import contextlib
import logging
import socket
from typing import Any, Final

import uvicorn

from headrace.core.threads import spawn

_LOG: Final = logging.getLogger(__name__)
HTTP_CONNECTIONS_MAX: Final = 256
HANDSHAKE_TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 1.0
"""Pause after the system had no descriptor for a connection."""


class BoundedHttpServer(uvicorn.Server):
    """Beyond HTTP_CONNECTIONS_MAX, those in a handshake included, a new connection is closed at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.servers = []
        self._accepting: Final[set[asyncio.Task[Any]]] = set()
        self._handshakes: Final[set[asyncio.Task[Any]]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        for listener in sockets or []:
            listener.setblocking(False)
            spawn(self._accept(listener), loop, "accept HTTP connections", self._accepting)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, and end all connections."""
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
        """Hand a connection to its protocol, after its handshake."""
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

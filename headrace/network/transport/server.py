"""DataServer: the TCP port and the Unix socket on which a TaskManager accepts connections of others."""

import asyncio
import errno
import os
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.core.config import ConfigOption, parse_ports
from headrace.core.errors import ConfigurationError, PortInUseError
from headrace.core.process.process_start import boot_id
from headrace.core.security.tls import RefusalLog, TlsListener

DATA_PORT: Final = ConfigOption(
    "taskmanager.data.port",
    str,
    "0",
    "Port of a TaskManager's data plane: a port, a range '50100-50200' or a list of both, of which each TaskManager "
    "takes the first free one; 0: any free port.",
)
UNIX_PATH_BYTES_MAX: Final = 100
"""Longest path of a Unix socket in bytes; the kernel accepts 107."""
TLS_TIMEOUT_S: Final = 10.0
_CREDENTIALS: Final = struct.Struct("iII")
"""Layout of process, user and group id, as Linux returns them."""


def host_id() -> str:
    """Return a text that is equal for processes that can reach each other's Unix sockets."""
    boot = boot_id()
    try:
        # Also if a process may not read it.
        namespace = os.stat("/proc/self/ns/net").st_ino if boot else 0
    except OSError:
        namespace = 0
    if not namespace:
        return f"{socket.gethostname()}:{os.getuid()}"
    return f"{boot}:{namespace}:{os.getuid()}"


def is_of_own_user(connection: socket.socket) -> bool:
    """Return whether the peer of a Unix socket is a process of this user; True if the kernel cannot tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or connection.family != socket.AF_UNIX:
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    _, user_id, _ = _CREDENTIALS.unpack(credentials)
    return user_id == os.getuid()


class DataServer:
    """Listens and gives every accepted connection a protocol from `factory`. Network thread."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol], refusals: RefusalLog) -> None:
        self._factory = factory
        self._refusals = refusals
        self._servers: list[asyncio.AbstractServer | TlsListener] = []
        self._unix_path: Path | None = None

    async def listen(
        self,
        bind_host: str,
        ports: str,
        unix_path: Path | None,
        tls: ssl.SSLContext | None = None,
        tls_timeout_s: float = TLS_TIMEOUT_S,
    ) -> int:
        """Bind the TCP port and the Unix socket; return the port, the first free one of `ports` (see DATA_PORT).

        With `tls` TCP uses TLS; the Unix socket stays plain. PortInUseError if no port is free; ConfigurationError for
        a port that requires privileges.
        """
        server = await self._bind_first_free(bind_host, ports, tls, tls_timeout_s)
        self._servers.append(server)
        if unix_path is not None and len(os.fsencode(unix_path)) <= UNIX_PATH_BYTES_MAX:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_unix_server(self._factory, str(unix_path)))
            os.chmod(unix_path, 0o600)
            self._unix_path = unix_path
        return server.sockets[0].getsockname()[1]

    async def _bind_first_free(
        self, bind_host: str, ports: str, tls: ssl.SSLContext | None, tls_timeout_s: float
    ) -> asyncio.Server | TlsListener:
        loop = asyncio.get_running_loop()
        port = 0
        for port in parse_ports(DATA_PORT.key, ports):
            try:
                if tls is None:
                    return await loop.create_server(self._factory, bind_host, port)
                listener = TlsListener(
                    self._factory, bind_host, port, tls, tls_timeout_s, self._refusals
                )
                listener.start()
                return listener
            except PermissionError as error:
                reason = (
                    f"this process lacks the permission to listen on port {port} of {bind_host}"
                )
                raise ConfigurationError(DATA_PORT.key, ports, reason) from error
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise PortInUseError(bind_host, port, DATA_PORT.key, ports)

    @property
    def unix_path(self) -> Path | None:
        """Path of the bound Unix socket, or None if it would be too long."""
        return self._unix_path

    async def close(self) -> None:
        """Accept no more connections; existing ones stay open."""
        for server in self._servers:
            server.close()
        if self._unix_path is not None:
            self._unix_path.unlink(missing_ok=True)

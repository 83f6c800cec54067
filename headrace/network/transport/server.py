"""DataServer: where other TaskManagers find this one: a TCP port and a Unix socket beside it."""

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
    "takes the first that is free; 0 for any.",
)
UNIX_PATH_BYTES_MAX: Final = 100
"""The kernel takes 107 bytes."""
TLS_TIMEOUT_S: Final = 10.0
_CREDENTIALS: Final = struct.Struct("iII")
"""Process, user and group, as Linux gives them."""


def host_id() -> str:
    """Return a text that is equal for processes that can reach each other's Unix sockets."""
    boot = boot_id()
    try:
        # Also where a process may not look there.
        namespace = os.stat("/proc/self/ns/net").st_ino if boot else 0
    except OSError:
        namespace = 0
    if not namespace:
        return f"{socket.gethostname()}:{os.getuid()}"
    return f"{boot}:{namespace}:{os.getuid()}"


def is_of_own_user(connection: socket.socket) -> bool:
    """Return whether a process of this user is at the other end of a Unix socket; True where the kernel cannot tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or connection.family != socket.AF_UNIX:
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    _, user_id, _ = _CREDENTIALS.unpack(credentials)
    return user_id == os.getuid()


class DataServer:
    """Listens; every accepted connection gets a protocol from `factory`. On the network thread."""

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
        """Bind both; return the TCP port, the first free one of `ports` (see DATA_PORT).

        With `tls` TCP is TLS; the Unix socket stays plain. Raises PortInUseError, and ConfigurationError for a port
        that only a privileged process may have.
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
                reason = f"this process may not listen on port {port} of {bind_host}"
                raise ConfigurationError(DATA_PORT.key, ports, reason) from error
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise PortInUseError(bind_host, port, DATA_PORT.key, ports)

    @property
    def unix_path(self) -> Path | None:
        """The bound Unix socket, or None where its path would be too long."""
        return self._unix_path

    async def close(self) -> None:
        """Accept nobody any more; the connections stay."""
        for server in self._servers:
            server.close()
        if self._unix_path is not None:
            self._unix_path.unlink(missing_ok=True)

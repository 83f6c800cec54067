"""HttpServer: a guarded HTTP application with a thread of its own and a connection file.

It binds its port before large imports, so that the address is known at once; requests that arrive before the
application is ready wait for it in the listening socket.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from headrace.core.clock import Clock
from headrace.core.config import Settings, parse_ports
from headrace.core.errors import ConfigurationError, PortInUseError
from headrace.core.host_port import join_host_port
from headrace.core.process.process_start import start_ticks
from headrace.core.randomness import secret_token
from headrace.core.security.tls import TlsIdentity, is_loopback, server_context
from headrace.core.threads import EventLoopThread
from headrace.rest.authentication import AsgiApplication, RestGuard, guard_of
from headrace.rest.client_errors import ConnectionFileError, HomeFolderError
from headrace.rest.home.connections import (
    ClusterConnection,
    connections_folder,
    remove_connection,
    write_connection,
)
from headrace.rest.home.home_folder import (
    write_private_file,
    writing_in_home,
)
from headrace.rest.options import (
    REST_AUTHENTICATION,
    RestAuthentication,
)

_LOG: Final = logging.getLogger(__name__)
_REACHABLE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Wildcard addresses of this machine, and for each an address at which local clients reach a server."""
_BACKLOG: Final = 128
_STOP_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class ListeningPlace:
    """Address and ports at which a server listens, each with its option.

    `host` is the name under which clients reach the server.
    """

    address: str
    address_option: str
    host: str
    ports: str
    port_option: str


class HttpServer:
    """A guarded application on a thread of its own.

    The constructor binds, and writes the connection file; PortInUseError, ConfigurationError. `start` serves, `close`
    ends it. Browsers and clients reach it at `address`. `create` returns the application when serving begins.
    """

    def __init__(
        self,
        place: ListeningPlace,
        create: Callable[[RestGuard], AsgiApplication],
        settings: Settings,
        clock: Clock,
        *,
        name: str,
        identity: TlsIdentity | None = None,
        is_history: bool = False,
        is_session: bool = False,
    ) -> None:
        self._create: Final = create
        self._context: Final = _tls_context(place, identity)
        self._socket: Final = bind(place)
        port: int = self._socket.getsockname()[1]
        is_tls = self._context is not None
        host = _REACHABLE.get(place.host, place.host)
        self.address: Final = f"{'https' if is_tls else 'http'}://{join_host_port(host, port)}"
        _warn_where_open(settings, self.address)
        self._certificate: Final = connections_folder() / f"{port}.pem" if is_tls else None
        try:
            self._guard: Final[RestGuard] = guard_of(
                settings,
                secret_token().hex(),
                place.address,
                port,
                names=(place.host,),
                is_tls=is_tls,
            )
            if identity is not None and self._certificate is not None:
                _write_certificate(identity, self._certificate)
            self._connection = self._connection_of(
                name, clock.now_ms(), is_history=is_history, is_session=is_session
            )
            self.connection_file: Final = write_connection(self._connection)
        except BaseException:
            if self._certificate is not None:
                with contextlib.suppress(OSError):
                    self._certificate.unlink()
            self._socket.close()
            raise
        self._thread: Final = EventLoopThread("headrace-rest")
        self._server: Any = None
        self._is_closing = False
        # Guards the connection and its file, which several threads update with the leader.
        self._showing: Final = threading.Lock()
        self._ended: Final = threading.Event()
        self._ended.set()

    def _connection_of(
        self, name: str, started_ms: int, *, is_history: bool, is_session: bool
    ) -> ClusterConnection:
        """Return the content of the connection file."""
        return ClusterConnection(
            self.address,
            self._guard.token,
            pid=os.getpid(),
            name=name,
            started=started_ms,
            ca_file="" if self._certificate is None else self._certificate.name,
            is_history=is_history,
            is_session=is_session,
            start_ticks=start_ticks(os.getpid()),
        )

    def start(self) -> None:
        """Begin to serve; returns at once."""
        self._ended.clear()
        future = asyncio.run_coroutine_threadsafe(self._serve(), self._thread.loop)
        future.add_done_callback(lambda _: self._ended.set())

    def show_leadership(self, cluster_id: str, epoch_of: Callable[[], int]) -> None:
        """Publish the epoch in which this driver leads, for clients that look for a cluster; 0: it stands by.

        Any thread.
        """
        # The epoch is read under the lock: what is written last is what was read last.
        with self._showing:
            if self._is_closing:
                return
            self._connection = structs.replace(
                self._connection, cluster_id=cluster_id, epoch=epoch_of()
            )
            try:
                write_connection(self._connection)
            except (HomeFolderError, ConnectionFileError) as error:
                _LOG.warning("commands without -m cannot see which driver leads: %s", error)

    def close(self) -> None:
        """End all connections and release the port."""
        # Read below before it serves: it may still be importing.
        with self._showing:
            self._is_closing = True
            remove_connection(self.connection_file)
        if self._certificate is not None:
            self._certificate.unlink(missing_ok=True)
        server = self._server
        if server is not None:
            server.should_exit = True
        self._ended.wait(_STOP_TIMEOUT_S)
        self._thread.stop()
        with contextlib.suppress(OSError):
            self._socket.close()

    async def _serve(self) -> None:
        try:
            # Imported late: this takes half a second, during which the cluster starts.
            import uvicorn

            from headrace.rest.bounded_uvicorn_server import (
                BoundedHttpProtocol,
                BoundedUvicornServer,
            )

            # Clients that send invalid data must not write to the program's terminal.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            config = uvicorn.Config(
                self._create(self._guard),  # pyright: ignore[reportArgumentType]
                http=BoundedHttpProtocol,
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                date_header=True,
                timeout_graceful_shutdown=1,
            )
            config.load()
            config.ssl = self._context
            self._server = BoundedUvicornServer(config)
            if not self._is_closing:
                await self._server.serve(sockets=[self._socket])
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Report that the server has failed and no longer serves."""
        _LOG.error(
            "the REST endpoint at %s has failed; jobs continue without it",
            self.address,
            exc_info=error,
        )


def _warn_where_open(settings: Settings, address: str) -> None:
    """Warn if clients need no token."""
    if settings.get_option(REST_AUTHENTICATION) is RestAuthentication.NONE:
        _LOG.warning(
            "%s is 'none': everybody who can connect to %s from this host may see and control everything",
            REST_AUTHENTICATION.key,
            address,
        )


def _write_certificate(identity: TlsIdentity, path: Path) -> None:
    """Write the certificate next to the connection file, which names it."""
    with writing_in_home():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private_file(path, identity.certificate)


def bind(place: ListeningPlace) -> socket.socket:
    """Return a listening socket at the first free port; PortInUseError if there is none."""
    port = 0
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    for port in parse_ports(place.port_option, place.ports):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((place.address, port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise ConfigurationError(
                place.address_option,
                place.address,
                f"the address cannot be bound: {error.strerror}",
            ) from error
        return listener
    raise PortInUseError(place.address, port, place.port_option, place.ports)


def _tls_context(place: ListeningPlace, identity: TlsIdentity | None) -> ssl.SSLContext | None:
    if is_loopback(place.address):
        return None
    if identity is None:
        raise ConfigurationError(
            place.address_option,
            place.address,
            "beyond this host REST requires TLS, but this cluster has no certificate: bind to 127.0.0.1, or set one "
            "with 'headrace.security.identity-file'",
        )
    context = server_context(identity)
    # Browsers have no certificate of the cluster: the token authenticates them.
    context.verify_mode = ssl.CERT_NONE
    return context

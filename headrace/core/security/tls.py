"""TLS within a cluster: its certificate, the rule for when it is needed, and the listener that accepts it.

All processes of a cluster share one certificate, which is made when the cluster starts and is distributed like the
secret. A process with its private key belongs to the cluster, so both sides of a connection present it and accept no
other; host names are not compared, because they prove nothing. Source: Flink's internal mutual authentication
(security.ssl.internal.*).

A TlsListener accepts TCP connections and limits the number of unfinished TLS handshakes: asyncio's servers pass a
connection on only after the handshake, so that silent peers could use up all descriptors of the process. A RefusalLog
reports each refused peer once for each reason, so that repeated attempts cannot fill the log.
"""

import asyncio
import datetime
import functools
import ipaddress
import logging
import re
import socket
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.security.hmac_handshake import STRANGERS_MAX, Strangers
from headrace.core.threads import spawn

SSL_ENABLED: Final = ConfigOption[bool | None](
    "security.ssl.internal.enabled",
    bool,
    None,
    "Whether TCP connections between the cluster's processes use TLS. Unset: only if other hosts can reach them.",
)
ALLOW_PLAINTEXT: Final = ConfigOption(
    "headrace.security.allow-plaintext",
    bool,
    False,
    "Accept `security.ssl.internal.enabled: false` on addresses that other hosts can reach: records and calls are "
    "sent in plaintext.",
)

_VALIDITY: Final = datetime.timedelta(days=365)
_CLOCK_SKEW: Final = datetime.timedelta(days=1)
"""Time by which clocks of hosts may be behind the clock that made the certificate."""


@dataclass(frozen=True)
class TlsIdentity:
    """Certificate and key that prove a process's membership of the cluster. Plain bytes, to be passed to processes."""

    certificate: bytes  # PEM
    private_key: bytes = field(repr=False)  # PEM, PKCS 8, not encrypted


def generate_identity(now_ms: int) -> TlsIdentity:
    """Make a self-signed certificate on the curve P-256, valid for a year. HostError without `cryptography`."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as error:
        raise HostError(
            "connections to other hosts use TLS, but the package that makes its certificate is missing: "
            "pip install 'headrace[tls]' on the driver"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headrace-cluster")])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
        # It vouches for itself alone.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(key, hashes.SHA256())
    )
    return TlsIdentity(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def server_context(identity: TlsIdentity) -> ssl.SSLContext:
    """Return the context of the accepting side of a connection."""
    return _context(ssl.PROTOCOL_TLS_SERVER, identity)


def client_context(identity: TlsIdentity) -> ssl.SSLContext:
    """Return the context of the dialling side of a connection."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def _context(protocol: int, identity: TlsIdentity) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # This comes first: while host names are checked, the verification of certificates cannot be relaxed.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=identity.certificate.decode("ascii"))
    # The ssl module reads keys from files only. The directory is 0700, the file 0600, both gone at once.
    with tempfile.TemporaryDirectory(prefix="headrace-tls-") as directory:
        path = Path(directory) / "identity.pem"
        path.touch(mode=0o600)
        path.write_bytes(identity.certificate + identity.private_key)
        context.load_cert_chain(path)
    return context


def is_loopback(host: str) -> bool:
    """Return whether only this host can reach a socket bound to `host`.

    Names other than `localhost` count as reachable.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    """Return whether a server answers a TLS handshake. The server is not trusted, and gets no request."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout_s) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except (OSError, UnicodeError):
        return False


def needs_tls(settings: Settings, host: str) -> bool:
    """Return whether a cluster that is reached at `host` uses TLS.

    ConfigurationError if TLS was switched off unsafely.
    """
    is_enabled = settings.get_option(SSL_ENABLED)
    if is_enabled is None:
        return not is_loopback(host)
    if not is_enabled:
        refuse_plaintext(settings, host)
    return is_enabled


def refuse_plaintext(settings: Settings, host: str) -> None:
    """Raise ConfigurationError if a socket bound to `host` must use TLS; every listener calls this."""
    if not is_loopback(host) and not settings.get_option(ALLOW_PLAINTEXT):
        is_enabled = settings.get_option(SSL_ENABLED)
        advice = "unset it" if is_enabled is False else "give this process a TLS identity"
        raise ConfigurationError(
            SSL_ENABLED.key,
            is_enabled,
            f"without TLS all records and calls can be read on the network of {host}; {advice}, or set "
            f"'{ALLOW_PLAINTEXT.key}' to true if that network is private",
        )


KNOWN_MAX: Final = 256
"""Number of remembered refusals; older ones may be reported again."""
_NUMBER: Final = re.compile(r"\d+")


class RefusalLog:
    """Log of the refusals of one listener. Peers are identified by host, because each connection has another port."""

    def __init__(self, logger: logging.Logger, what: str, known_max: int = KNOWN_MAX) -> None:
        """`what` is refused: a word for people, such as `call`."""
        self._logger: Final = logger
        self._what: Final = what
        self._known_max: Final = known_max
        self._known: dict[tuple[str, str], None] = {}

    def tell(self, host: str, reason: str) -> None:
        """Report that a peer at `host` was refused."""
        kind = host, _NUMBER.sub("#", reason)
        if kind in self._known:
            return
        self._known[kind] = None
        if len(self._known) > self._known_max:
            del self._known[next(iter(self._known))]
        self._logger.warning(
            "%s from %s refused: %s (repeats are not reported)",
            self._what,
            host,
            reason,
        )


_BACKLOG: Final = 100
_PAUSE_S: Final = 0.1
"""Pause after a connection could not be accepted, for example without a free descriptor."""


class TlsListener:
    """Binds at once, and accepts after `start`, on the running loop.

    A connection gets a protocol after its TLS handshake. `host` is an address or a name of this host. OSError if the
    address or port cannot be bound.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        context: ssl.SSLContext,
        handshake_timeout_s: float,
        refusals: RefusalLog,
        count_max: int = STRANGERS_MAX,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening: Final = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listening.setblocking(False)
        self._factory: Final = factory
        self._context: Final = context
        self._handshake_timeout_s: Final = handshake_timeout_s
        self._refusals: Final = refusals
        self._openings: Final = Strangers[asyncio.Task[None]](count_max)
        self._tasks: Final[set[asyncio.Task[Any]]] = set()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Return the listening sockets, like an asyncio server."""
        return (self._listening,)

    @property
    def opening_count(self) -> int:
        """Return the number of connections that have not finished the TLS handshake."""
        return len(self._openings)

    def start(self) -> None:
        """Start accepting connections."""
        accepting = spawn(self._accept(), asyncio.get_running_loop(), "accept", self._tasks)
        # Nobody waits for it: whose loop this is hears of a callback that fails, and not of a task.
        accepting.add_done_callback(lambda task: None if task.cancelled() else task.result())

    def close(self) -> None:
        """Stop accepting connections, and close those that have not finished the TLS handshake."""
        for task in tuple(self._tasks):
            task.cancel()
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listening)
            except OSError:
                # The peer has disconnected, or no descriptor is left: those of silent peers become free in time.
                await asyncio.sleep(_PAUSE_S)
                continue
            opening = spawn(self._open(connection), loop, "opening", self._tasks)
            oldest = self._openings.opened(opening)
            opening.add_done_callback(functools.partial(self._opened, connection, address[0]))
            if oldest is not None:
                oldest.cancel()

    async def _open(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            self._factory,
            connection,
            ssl=self._context,
            ssl_handshake_timeout=self._handshake_timeout_s,
        )

    def _opened(self, connection: socket.socket, host: str, opening: asyncio.Task[None]) -> None:
        is_waiting = self._openings.no_longer(opening)
        error = None if opening.cancelled() else opening.exception()
        if not opening.cancelled() and error is None:
            return
        connection.close()
        if error is not None:
            self._refusals.tell(host, f"TLS: {error or type(error).__name__}")
        elif not is_waiting:
            self._refusals.tell(host, "too many other TLS handshakes are unfinished")

"""TLS within a cluster: one certificate that all its processes share, and the rule for when it is needed.

The certificate is made when the cluster starts and travels as the secret does. Whoever holds its private key belongs
to the cluster and nobody else does, so both sides of a connection show it and accept no other; names of hosts prove
nothing and are not compared. Source: Flink's internal mutual authentication (security.ssl.internal.*).
"""

import datetime
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError, HostError

SSL_ENABLED: Final = ConfigOption[bool | None](
    "security.ssl.internal.enabled",
    bool,
    None,
    "Whether TCP connections between the cluster's processes are TLS. Unset: wherever other hosts can reach them.",
)
ALLOW_PLAINTEXT: Final = ConfigOption(
    "headrace.security.allow-plaintext",
    bool,
    False,
    "Accept `security.ssl.internal.enabled: false` beyond this host: records and calls travel in clear text.",
)

_VALIDITY: Final = datetime.timedelta(days=365)
_CLOCK_SKEW: Final = datetime.timedelta(days=1)
"""How far clocks of hosts may lag behind the one that made the certificate."""


@dataclass(frozen=True)
class TlsIdentity:
    """What proves that a process belongs to the cluster. Plain bytes, to be handed to processes."""

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
            "connections beyond this host are TLS, and the package that makes its certificate is missing: "
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
    """Return what the accepting side of a connection uses."""
    return _context(ssl.PROTOCOL_TLS_SERVER, identity)


def client_context(identity: TlsIdentity) -> ssl.SSLContext:
    """Return what the dialling side of a connection uses."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def _context(protocol: int, identity: TlsIdentity) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # First this: a client that checks names of hosts may not be told to check certificates less.
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
    """Whether only this host can reach a socket bound to `host`. Names other than `localhost` count as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def needs_tls(settings: Settings, host: str) -> bool:
    """Whether a cluster that is reached at `host` speaks TLS. ConfigurationError where that was switched off."""
    is_enabled = settings.get_option(SSL_ENABLED)
    if is_enabled is None:
        return not is_loopback(host)
    if not is_enabled:
        refuse_plaintext(settings, host)
    return is_enabled


def refuse_plaintext(settings: Settings, host: str) -> None:
    """ConfigurationError where a socket bound to `host` may not go without TLS; every listener asks."""
    if not is_loopback(host) and not settings.get_option(ALLOW_PLAINTEXT):
        is_enabled = settings.get_option(SSL_ENABLED)
        advice = "unset it" if is_enabled is False else "give this process a TLS identity"
        raise ConfigurationError(
            SSL_ENABLED.key,
            is_enabled,
            f"without TLS whoever sees the network of {host} reads all records and calls; {advice}, or set "
            f"'{ALLOW_PLAINTEXT.key}' to true if that network is private",
        )

"""The TLS identity of a server that tests start: a certificate that clients are configured to trust, and its key."""

import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace.core.clock import SystemClock


def server_identity(*names: str) -> tuple[bytes, ssl.SSLContext]:
    """Return a certificate for 127.0.0.1 and these names, in PEM, and the context of a server that uses it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stand-in")])
    now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=12))
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                    *(x509.DNSName(name) for name in names),
                ]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private_key = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The ssl module reads keys from files only.
    with tempfile.TemporaryDirectory(prefix="server-identity-") as directory:
        path = Path(directory) / "identity.pem"
        path.touch(mode=0o600)
        path.write_bytes(certificate + private_key)
        context.load_cert_chain(path)
    return certificate, context

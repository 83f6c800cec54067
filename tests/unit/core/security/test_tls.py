"""Peers that may speak TLS with each other, and clusters that must."""

import builtins
import ssl
import time
from typing import Any

import pytest

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.security.tls import (
    TlsIdentity,
    client_context,
    generate_identity,
    is_loopback,
    needs_tls,
    refuse_plaintext,
    server_context,
)

NOW_MS = time.time_ns() // 1_000_000
YEAR_MS = 365 * 24 * 3600 * 1000
ENABLED, ALLOWED = "security.ssl.internal.enabled", "headrace.security.allow-plaintext"


@pytest.fixture(scope="module")
def identity() -> TlsIdentity:
    return generate_identity(NOW_MS)


@pytest.fixture(scope="module")
def stranger() -> TlsIdentity:
    return generate_identity(NOW_MS)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Let both sides talk in memory until each has read a byte of the other; return the version they speak."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    dialling = client.wrap_bio(to_client, to_server)
    waiting = [dialling, accepting]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    accepting.write(b"s")
    dialling.write(b"c")
    assert (accepting.read(1), dialling.read(1)) == (b"c", b"s")
    return accepting.version()


def without_certificate(like: TlsIdentity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=like.certificate.decode())
    return context


def test_two_processes_of_one_cluster_speak_tls_1_3(identity: TlsIdentity) -> None:
    assert shake_hands(server_context(identity), client_context(identity)) == "TLSv1.3"


def test_a_server_refuses_another_cluster_s_certificate(
    identity: TlsIdentity, stranger: TlsIdentity
) -> None:
    trusting = client_context(stranger)
    trusting.load_verify_locations(cadata=identity.certificate.decode())
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(identity), trusting)


def test_a_server_refuses_whoever_has_no_certificate(identity: TlsIdentity) -> None:
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(server_context(identity), without_certificate(identity))


def test_a_client_refuses_another_cluster_s_certificate(
    identity: TlsIdentity, stranger: TlsIdentity
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(stranger), client_context(identity))


def test_a_client_refuses_a_certificate_that_the_cluster_s_own_has_signed(
    identity: TlsIdentity,
) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    issuer = x509.load_pem_x509_certificate(identity.certificate)
    issuer_key = serialization.load_pem_private_key(identity.private_key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    signed = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "another")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .sign(issuer_key, hashes.SHA256())
    )
    other = TlsIdentity(
        signed.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(other), client_context(identity))


@pytest.mark.parametrize("old_side", ["server", "client"])
def test_tls_1_2_is_refused(identity: TlsIdentity, old_side: str) -> None:
    contexts = {"server": server_context(identity), "client": client_context(identity)}
    contexts[old_side].minimum_version = ssl.TLSVersion.TLSv1_2
    contexts[old_side].maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"UNSUPPORTED_PROTOCOL|PROTOCOL_VERSION"):
        shake_hands(contexts["server"], contexts["client"])


def test_a_certificate_that_has_expired_is_refused() -> None:
    expired = generate_identity(NOW_MS - 2 * YEAR_MS)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(server_context(expired), client_context(expired))


def test_a_host_whose_clock_is_an_hour_behind_accepts_the_certificate() -> None:
    ahead = generate_identity(NOW_MS + 3600 * 1000)
    assert shake_hands(server_context(ahead), client_context(ahead)) == "TLSv1.3"


def test_the_private_key_is_not_printed(identity: TlsIdentity) -> None:
    assert "PRIVATE" not in repr(identity)


def test_no_file_stays_behind(
    identity: TlsIdentity, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server_context(identity)
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return import_module(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(HostError, match=r"pip install 'headrace\[tls\]'"):
        generate_identity(NOW_MS)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "::1", "localhost"])
def test_addresses_of_the_own_host_are_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "driver.example", ""])
def test_addresses_that_others_reach_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("settings", "host", "expected"),
    [
        ({}, "127.0.0.1", False),
        ({}, "10.0.0.7", True),
        ({ENABLED: "true"}, "127.0.0.1", True),
        ({ENABLED: "true"}, "10.0.0.7", True),
        ({ENABLED: "false"}, "127.0.0.1", False),
        ({ENABLED: "false", ALLOWED: "true"}, "10.0.0.7", False),
        ({ALLOWED: "true"}, "10.0.0.7", True),
    ],
)
def test_tls_is_on_where_others_can_connect_unless_the_settings_say_otherwise(
    settings: dict[str, str], host: str, expected: bool
) -> None:
    assert needs_tls(Settings(settings), host) is expected


def test_switching_tls_off_beyond_loopback_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="allow-plaintext"):
        needs_tls(Settings({ENABLED: "false"}), "10.0.0.7")


def test_a_listener_without_tls_is_refused_beyond_loopback_whatever_made_it() -> None:
    refuse_plaintext(Settings(), "127.0.0.1")
    refuse_plaintext(Settings({ALLOWED: "true"}), "0.0.0.0")
    with pytest.raises(
        ConfigurationError, match=r"is not set: .* give this process a TLS identity"
    ):
        refuse_plaintext(Settings(), "0.0.0.0")
    with pytest.raises(ConfigurationError, match=r"has the value False: .* unset it"):
        refuse_plaintext(Settings({ENABLED: "false"}), "0.0.0.0")

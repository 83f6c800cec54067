"""Credentials with which the processes of a cluster prove their identity: generated per cluster, or given in files.

A process that serves several clusters and outlives them, as a remote shuffle service does, must know their credentials;
then secret and certificate come from files that only their owner may read.
"""

import os
import stat
from pathlib import Path
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError
from headrace.core.randomness import secret_token
from headrace.core.security.tls import TlsIdentity, generate_identity

SECRET_FILE: Final = ConfigOption(
    "headrace.security.secret-file", str, "",
    "A file with 64 hexadecimal digits, readable by its owner alone: the secret of the cluster, if a process outside "
    "it, such as a shuffle service, must know it. Unset: a new secret for each cluster.",
)  # fmt: skip
IDENTITY_FILE: Final = ConfigOption(
    "headrace.security.identity-file", str, "",
    "A PEM file with certificate and private key, readable by its owner alone: the TLS identity of the cluster, if a "
    "process outside it must know it. Unset: a new one for each cluster that needs it.",
)  # fmt: skip
_SECRET_BYTES: Final = 32
_PRIVATE_BYTES_MAX: Final = 1 << 20
_ROOT: Final = 0


def cluster_secret(settings: Settings) -> bytes:
    """Return the 32 bytes that the cluster's processes share.

    ConfigurationError for a file that holds no valid secret.
    """
    name = settings.get_option(SECRET_FILE)
    if not name:
        return secret_token()
    try:
        secret = bytes.fromhex(private_text(SECRET_FILE, name))
    except ValueError as error:
        raise ConfigurationError(SECRET_FILE.key, name, "it does not hold a secret") from error
    if len(secret) != _SECRET_BYTES:
        what = f"it holds {len(secret)} bytes instead of {_SECRET_BYTES}"
        raise ConfigurationError(SECRET_FILE.key, name, what)
    return secret


def given_identity(settings: Settings) -> TlsIdentity | None:
    """Return the TLS identity from the given file, if any.

    ConfigurationError for a file that holds no valid identity.
    """
    name = settings.get_option(IDENTITY_FILE)
    if not name:
        return None
    text = private_text(IDENTITY_FILE, name)
    key_start, certificate_start = text.find("-----BEGIN PRIVATE"), text.find("-----BEGIN CERT")
    if key_start < 0 or certificate_start < 0:
        what = "it does not hold a certificate and its private key in PEM"
        raise ConfigurationError(IDENTITY_FILE.key, name, what)
    first, second = sorted((key_start, certificate_start))
    # Both end with a line's end: they are joined in the other order too.
    parts = {
        at: f"{part.rstrip()}\n".encode()
        for at, part in ((first, text[first:second]), (second, text[second:]))
    }
    return TlsIdentity(parts[certificate_start], parts[key_start])


def cluster_identity(settings: Settings, now_ms: int) -> TlsIdentity:
    """Return the given TLS identity, or make one. ConfigurationError; HostError."""
    return given_identity(settings) or generate_identity(now_ms)


def private_text(option: ConfigOption[str], name: str) -> str:
    """Return the text of the file `name`, the value of `option`.

    ConfigurationError if other users may read the file, or if another user owns it and so knows its content.
    """
    try:
        with Path(name).open("rb") as file:
            # Check the opened file, even if the name refers to another one a moment later.
            status = os.fstat(file.fileno())
            text = file.read(_PRIVATE_BYTES_MAX).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(option.key, name, f"it cannot be read: {reason}") from error
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(option.key, name, "other users may read it: run chmod 600")
    if status.st_uid not in (os.geteuid(), _ROOT):
        raise ConfigurationError(
            option.key,
            name,
            f"another user ({status.st_uid}) owns it and so knows its content: use a file of your own",
        )
    return text.strip()

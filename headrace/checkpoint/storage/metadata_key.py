"""MetadataKey: the user's key, which authenticates metadata, so that one cluster can restore another's snapshots.

Write access to the checkpoint folder is not enough to forge metadata. `seal` and `unseal` authenticate small records
with the same key: notes of sinks and records of lineages, in folders to which others may write.

    content ⏎
    hmac-sha256 <id of the key> <hex digits>

A seal covers the content and its *subject*, the thing that the record describes, which its reader knows, so that one
record cannot replace another. Somebody with write access may still delete a record, or restore an older one of the same
subject.
"""

import contextlib
import hashlib
import hmac
import os
from pathlib import Path
from typing import Final

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.options import KEY_FILE
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.randomness import secret_token
from headrace.core.security.cluster_secret import private_text

_KEY_BYTES: Final = 32
_PURPOSE: Final = b"headrace checkpoint metadata\0"
_ALGORITHM: Final = b"hmac-sha256"
_RECORD_PURPOSE: Final = b"headrace sealed record\0"


class MetadataKey:
    """Authenticates bytes. `key_id` distinguishes keys without revealing them."""

    def __init__(self, value: bytes) -> None:
        assert len(value) == _KEY_BYTES
        self._value = value
        self.key_id = hashlib.sha256(b"headrace key id\0" + value).hexdigest()[:16]

    def mac_of(self, content: bytes, purpose: bytes = _PURPOSE) -> str:
        """Return the hex digits of HMAC-SHA256."""
        return hmac.new(self._value, purpose + content, hashlib.sha256).hexdigest()

    def fits(self, content: bytes, mac: str, purpose: bytes = _PURPOSE) -> bool:
        """Return whether `mac` was made from exactly this content, for this purpose, with this key."""
        return hmac.compare_digest(self.mac_of(content, purpose).encode(), mac.encode())

    def __repr__(self) -> str:
        return f"MetadataKey({self.key_id})"


def metadata_key(settings: Settings) -> MetadataKey:
    """Return the user's key, which is made on first use. ConfigurationError if its file cannot be trusted."""
    path = key_path(settings)
    try:
        if not path.exists():
            _make(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(
            KEY_FILE.key, str(path), f"it cannot be created: {reason}"
        ) from error
    text = private_text(KEY_FILE, str(path))
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != _KEY_BYTES:
        what = f"it does not hold {2 * _KEY_BYTES} hexadecimal digits"
        raise ConfigurationError(KEY_FILE.key, str(path), what)
    return MetadataKey(value)


def key_path(settings: Settings) -> Path:
    """Return the path of the key file."""
    name = settings.get_option(KEY_FILE)
    return Path(name).expanduser() if name else Path.home() / ".headrace" / "checkpoint-key"


def _make(path: Path) -> None:
    """Write a new key; if two processes do so at the same time, both use the same one of the two keys."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secret_token().hex()[:16]}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secret_token().hex() + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
    finally:
        partial.unlink()


def seal(content: bytes, subject: str, key: MetadataKey) -> bytes:
    """Return a record: the content, which ends without a line break, and its seal."""
    mac = key.mac_of(_sealed_part(content, subject), _RECORD_PURPOSE)
    return b"%s\n%s %s %s\n" % (content, _ALGORITHM, key.key_id.encode(), mac.encode())


def unseal(record: bytes, subject: str, key: MetadataKey, place: str) -> bytes:
    """Check the seal of a record at `place`, and return its content. RecordNotTrustedError."""
    content, _, last = record.removesuffix(b"\n").rpartition(b"\n")
    algorithm, *rest = last.split(b" ")
    if not record.endswith(b"\n") or algorithm != _ALGORITHM or len(rest) != 2:
        reason = (
            "it has no seal: an earlier version or somebody else wrote it, or its end is missing"
        )
        raise RecordNotTrustedError(place, reason)
    key_id, mac = (part.decode(errors="replace") for part in rest)
    if key_id != key.key_id:
        reason = f"it was written with the key {key_id}, but {KEY_FILE.key} holds {key.key_id}"
        raise RecordNotTrustedError(place, reason)
    if not key.fits(_sealed_part(content, subject), mac, _RECORD_PURPOSE):
        raise RecordNotTrustedError(place, f"it was not written for {subject}")
    return content


def _sealed_part(content: bytes, subject: str) -> bytes:
    name = subject.encode()
    return len(name).to_bytes(8, "big") + name + content

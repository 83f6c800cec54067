"""Small records in folders that others may write to, sealed so that nobody can make one up: notes of sinks, lineages.

    content ⏎
    hmac-sha256 <id of the key> <hex digits>

The seal is made with the key that authenticates metadata, over the content and its *subject*: what the record is about,
which its reader knows without it, so that one record is not taken for another. Whoever can write there may still delete
one, or put an older one of the same subject back.
"""

from typing import Final

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.metadata_key import MetadataKey
from headrace.checkpoint.options import KEY_FILE

_ALGORITHM: Final = b"hmac-sha256"
_PURPOSE: Final = b"headrace sealed record\0"


def seal(content: bytes, subject: str, key: MetadataKey) -> bytes:
    """Return a record: the content, which ends without a line break, and its seal."""
    mac = key.mac_of(_sealed_part(content, subject), _PURPOSE)
    return b"%s\n%s %s %s\n" % (content, _ALGORITHM, key.key_id.encode(), mac.encode())


def unseal(record: bytes, subject: str, key: MetadataKey, place: str) -> bytes:
    """Return the content of a record at `place`, whose seal fits. RecordNotTrustedError."""
    content, _, last = record.removesuffix(b"\n").rpartition(b"\n")
    algorithm, *rest = last.split(b" ")
    if not record.endswith(b"\n") or algorithm != _ALGORITHM or len(rest) != 2:
        reason = (
            "it has no seal: an earlier version wrote it, somebody else did, or its end is missing"
        )
        raise RecordNotTrustedError(place, reason)
    key_id, mac = (part.decode(errors="replace") for part in rest)
    if key_id != key.key_id:
        reason = f"it was written with the key {key_id}, and {KEY_FILE.key} holds {key.key_id}"
        raise RecordNotTrustedError(place, reason)
    if not key.fits(_sealed_part(content, subject), mac, _PURPOSE):
        raise RecordNotTrustedError(place, f"it is not what was written about {subject}")
    return content


def _sealed_part(content: bytes, subject: str) -> bytes:
    name = subject.encode()
    return len(name).to_bytes(8, "big") + name + content

"""FileSeal: shows that a stored result is what somebody with the cluster's secret wrote, there and under that name.

A checksum tells damage; whoever may write to a file can make it anew. What is stored is rows, some of them pickled,
which run code where they are read: so files that outlive the process which wrote them carry a keyed BLAKE2b instead.
Each element is bound to its file and to its place in it, the index to its file. Pure.
Source: RFC 7693.
"""

import hashlib
import hmac
import struct
from collections.abc import Iterable
from typing import Any, Final

ELEMENT_SEAL_BYTES: Final = 8
"""Takes the place of an element's checksum. Whoever guesses has one try for each reading of the file."""
INDEX_SEAL_BYTES: Final = 32
_PLACE: Final = struct.Struct("!Q")


class FileSeal:
    """Of one file, called `name` unlike any other that the secret seals. Any thread."""

    def __init__(self, secret: bytes, name: str) -> None:
        self._key: Final = hashlib.blake2b(
            name.encode(), key=secret, digest_size=32, person=b"stored result"
        ).digest()

    def of_element(self, place: int, parts: Iterable[Any]) -> bytes:
        """Return the seal of an element at this byte of the file."""
        made = hashlib.blake2b(
            _PLACE.pack(place), key=self._key, digest_size=ELEMENT_SEAL_BYTES, person=b"element"
        )
        for part in parts:
            made.update(part)
        return made.digest()

    def begin_index(self) -> "hashlib.blake2b":
        """Return what is to be updated with the index from its beginning to its end."""
        return hashlib.blake2b(key=self._key, digest_size=INDEX_SEAL_BYTES, person=b"index")

    def fits_index(self, index: Any, seal: bytes) -> bool:
        """Whether `seal` was made of exactly this index."""
        made = self.begin_index()
        made.update(index)
        return hmac.compare_digest(made.digest(), seal)

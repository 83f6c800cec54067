"""BlobKey: the name of a big payload that travels by reference, made from its content. Source: Flink BlobKey."""

import hashlib
from typing import ClassVar, Self

import msgspec


class BlobKey(msgspec.Struct, frozen=True, order=True, array_like=True):
    """SHA-256 of the content, and its length in bytes: equal content has equal keys."""

    digest: bytes
    size_bytes: int

    DIGEST_SIZE: ClassVar[int] = 32

    def __post_init__(self) -> None:
        # A key names a file: whoever sends one must not be able to name any other.
        if len(self.digest) != self.DIGEST_SIZE or self.size_bytes < 0:
            raise ValueError(f"no blob key: {len(self.digest)} bytes of hash, {self.size_bytes}")

    @classmethod
    def of(cls, content: bytes | memoryview) -> Self:
        """The key of `content`."""
        view = memoryview(content)
        return cls(hashlib.sha256(view).digest(), view.nbytes)

    def __str__(self) -> str:
        return f"{self.digest.hex()[:16]} ({size_text(self.size_bytes)})"


def size_text(size_bytes: int) -> str:
    """`size_bytes` for people, in decimal units."""
    if size_bytes < 1_000_000:
        return f"{size_bytes / 1_000:.1f} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"

"""MemorySize: a number of bytes that compares, adds up in words and prints in the largest unit that fits exactly."""

from functools import total_ordering
from typing import Final

_UNITS: Final = (("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10))


@total_ordering
class MemorySize:
    """A number of bytes.

    Example:
        >>> print(MemorySize.of_mebi_bytes(3), MemorySize(bytes_size=1024), MemorySize(bytes_size=1500))
        3 mb 1 kb 1500 bytes
    """

    __slots__ = ("_bytes",)

    def __init__(self, bytes_size: int) -> None:
        if bytes_size < 0:
            raise ValueError(f"a size cannot be negative, but is {bytes_size}")
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> "MemorySize":
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """Rounded down, as the larger units."""
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        return self._bytes >> 40

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, MemorySize):
            raise TypeError(f"a MemorySize compares with another one, not with {other!r}")
        return self._bytes < other._bytes

    def __hash__(self) -> int:
        return hash((MemorySize, self._bytes))

    def __str__(self) -> str:
        for unit, size in _UNITS:
            if self._bytes and self._bytes % size == 0:
                return f"{self._bytes // size} {unit}"
        return f"{self._bytes} bytes"

    def __repr__(self) -> str:
        return f"MemorySize({self._bytes})"

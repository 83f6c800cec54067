"""ElementIndex: where the elements of one subpartition lie in a file that holds those of others in between."""

from array import array
from typing import Final

NOT_STORED: Final = (1 << 64) - 1
"""The offset of an element that is not in the file."""


class ElementIndex:
    """16 bytes per element. Appended to by one thread, read by any."""

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._lengths = array("Q")

    def __len__(self) -> int:
        return len(self._lengths)

    def append(self, offset: int, length: int) -> None:
        """Add the next element."""
        self._offsets.append(offset)
        # Last: whoever counts by lengths finds the offset.
        self._lengths.append(length)

    def place(self, position: int, offset: int, length: int) -> None:
        """An element that was not stored is stored now."""
        self._lengths[position] = length
        self._offsets[position] = offset

    def is_stored(self, position: int) -> bool:
        """Whether element `position` is in the file."""
        return self._offsets[position] != NOT_STORED

    def offset_of(self, position: int) -> int:
        """Where element `position` begins."""
        return self._offsets[position]

    def run_from(self, position: int, limit_bytes: int) -> tuple[int, int]:
        """Return how many elements from `position` on lie one behind the other within the limit, and their bytes."""
        count, size = 1, self._lengths[position]
        while position + count < len(self):
            following = position + count
            is_next = self._offsets[following] == self._offsets[position] + size
            if not is_next or size + self._lengths[following] > limit_bytes:
                break
            size += self._lengths[following]
            count += 1
        return count, size

"""Stretch: neighbouring parts of one file, for several consumers, that are read in one go.

With hundreds of consumers each has little of a region; what lies side by side for those who wait comes by one call to
the operating system, into memory of each one's own, so that none holds the memory of another. Source: Flink
PartitionedFileReader, which reads a region buffer by buffer.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headrace.network.errors import StorageError
from headrace.network.sort_merge_index import Extent
from headrace.network.spill_files import SpillFile


class Stretch:
    """`extents` lie one behind the other. Read when the first of them is asked for. By one thread."""

    def __init__(self, extents: Sequence[Extent]) -> None:
        self._extents: Final = tuple(extents)
        self._parts: dict[Extent, pa.Buffer] | None = None

    def read(self, file: SpillFile, offset: int, length: int) -> pa.Buffer:
        """Return `length` bytes from `offset` on, in aligned memory. StorageError.

        By itself where that is not one of the extents, or where not all of them can be read: nobody is to suffer
        from the bad sector of another.
        """
        wanted = Extent(offset, length)
        if self._parts is None:
            self._parts = {}
            if wanted in self._extents and len(self._extents) > 1:
                self._read_all(file, self._parts)
        part = self._parts.pop(wanted, None)
        return file.read(offset, length) if part is None else part

    def _read_all(self, file: SpillFile, parts: dict[Extent, pa.Buffer]) -> None:
        try:
            found = file.read_parts(
                self._extents[0].offset, [extent.length for extent in self._extents]
            )
        except StorageError:
            return
        parts.update(zip(self._extents, found, strict=True))

"""RegionCursor: where one consumer is in a sort-merge file. Source: Flink PartitionedFileReader."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headrace.network.errors import CorruptFileError
from headrace.network.stored.file_format import UndecodedElement, element_bytes, split_elements
from headrace.network.stored.partitioned_file import Extent, PartitionedFile
from headrace.network.stored.reading import Stretch


class RegionSource(Protocol):
    """A partition as its cursor sees it; its file exists once it is finished."""

    @property
    def file(self) -> PartitionedFile | None:
        """The partition's file, or None until it is finished. Any thread."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether it may be read. Any thread."""
        ...


class RegionCursor:
    """Goes through the extents of one subpartition. Implements SubpartitionCursor."""

    def __init__(self, partition: RegionSource, index: int, let_go: Callable[[], None]) -> None:
        self.close: Final = let_go
        self._partition = partition
        self._index = index
        self._next_region = 0
        self._extent = Extent(0, 0)

    @property
    def next_offset(self) -> int | None:
        """See SubpartitionCursor: nothing before the partition is finished."""
        file = self._partition.file
        if file is None or not self._partition.is_finished:
            return None
        if self._extent.length == 0 and self._next_region == file.region_count:
            return None
        return self._extent.offset

    def next_length(self, limit_bytes: int) -> int:
        """See SubpartitionCursor: of the present extent."""
        return min(limit_bytes, self._extent.length)

    def read(self, limit_bytes: int, stretch: Stretch | None = None) -> Sequence[UndecodedElement]:
        """See SubpartitionCursor. CorruptFileError."""
        file = self._partition.file
        assert file is not None
        if not self._extent.length:
            self._go_on(file)
        if not self._extent.length:
            return ()
        place = str(file.data.path)
        offset, length = self._extent.offset, min(limit_bytes, self._extent.length)
        data = None if stretch is None else stretch.read(file.data, offset, length)
        if data is None:
            data = file.data.read(offset, length)
        found = list(split_elements(data, file.schemas, place, offset))
        if not found:
            # A length is looked at before its checksum: what it says may be far more than anybody has written.
            size = element_bytes(data, place)
            if size > self._extent.length:
                raise CorruptFileError(
                    place, "an element is longer than the index of the file says"
                )
            data = file.data.read(offset, size)
            found = list(split_elements(data, file.schemas, place, offset))
        done = found[-1].end
        self._extent = Extent(self._extent.offset + done, self._extent.length - done)
        if not self._extent.length:
            self._go_on(file)
        return found

    def _go_on(self, file: PartitionedFile) -> None:
        """To the next region that has anything for this subpartition."""
        while not self._extent.length and self._next_region < file.region_count:
            self._extent = file.extent(self._next_region, self._index)
            self._next_region += 1

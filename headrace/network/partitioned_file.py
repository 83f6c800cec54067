"""PartitionedFile: the data file and the index file of one sort-merge partition.

The index gets its name when everything is written, and by one rename: what has no index is no partition, wherever its
writer ended. Of the index up to INDEX_MEMORY_BYTES are kept in memory; of a larger one the entries are read as they
are needed. Source: Flink PartitionedFile, PartitionedFileWriter.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headrace.network.errors import CorruptFileError
from headrace.network.file_seal import INDEX_SEAL_BYTES, FileSeal
from headrace.network.sort_merge_index import (
    ENTRY_BYTES,
    Extent,
    IndexFooter,
    RegionIndex,
    decode_entry,
    decode_footer,
    encode_footer,
)
from headrace.network.spill_files import FileLayer, SpillDirectories, SpillFile, SubmitToDisk
from headrace.network.stored_batches import SchemaTable

INDEX_MEMORY_BYTES: Final = 4 << 20
INDEX_SUFFIX: Final = ".index"
_UNFINISHED_SUFFIX: Final = ".index.unfinished"


class PartitionedFile:
    """Read by any thread of the I/O pool that has it retained."""

    def __init__(
        self,
        data: SpillFile,
        index: SpillFile,
        footer: IndexFooter,
        schemas: SchemaTable,
        in_memory: RegionIndex | None,
    ) -> None:
        self.data: Final = data
        self.schemas: Final = schemas
        self.region_count: Final = footer.region_count
        self.subpartition_count: Final = footer.subpartition_count
        self._index = index
        self._in_memory = in_memory

    @classmethod
    def open(
        cls,
        data_path: Path,
        index_path: Path,
        layer: FileLayer,
        submit_to_disk: SubmitToDisk,
        seal: FileSeal | None = None,
    ) -> "PartitionedFile":
        """Open what another writer has finished. StorageError where that is not a whole partition, so sealed.

        A larger index than INDEX_MEMORY_BYTES is believed again when its entries are read: elements are bound to their
        places, so that only their order and their consumers could be changed in the meantime.
        """
        index = SpillFile.open(index_path, layer, submit_to_disk)
        try:
            place = str(index_path)
            content = _without_seal(index.read(0, index.size).to_pybytes(), seal, place)
            footer = decode_footer(content, len(content), place)
            data = SpillFile.open(data_path, layer, submit_to_disk)
        except BaseException:
            index.close()
            raise
        if data.size != footer.data_bytes:
            index.close()
            data.close()
            what = f"it has {data.size} bytes, and {footer.data_bytes} were written"
            raise CorruptFileError(str(data_path), what)
        entry_bytes = footer.region_count * footer.subpartition_count * ENTRY_BYTES
        in_memory = None
        if seal is not None and entry_bytes <= INDEX_MEMORY_BYTES:
            in_memory = RegionIndex.decoded(footer.subpartition_count, content[:entry_bytes])
        return cls(data, index, footer, SchemaTable(footer.schemas, seal), in_memory)

    def extent(self, region: int, subpartition: int) -> Extent:
        """Where a subpartition of a region lies; may read the index file. StorageError."""
        if self._in_memory is not None:
            return self._in_memory.extent(region, subpartition)
        at = (region * self.subpartition_count + subpartition) * ENTRY_BYTES
        extent = decode_entry(self._index.read(at, ENTRY_BYTES).to_pybytes())
        if extent.end > self.data.size:
            raise CorruptFileError(
                str(self._index.path), f"region {region} lies behind the end of the data"
            )
        return extent

    def retain(self) -> bool:
        """Become one more user of both files; False if they are gone."""
        # Both are always retained and let go together, this one first.
        return self._index.retain() and self.data.retain()

    def let_go(self) -> None:
        """One user is done; the last one has both files deleted."""
        self._index.let_go()
        self.data.let_go()

    def close(self) -> None:
        """Close without deleting anything."""
        self._index.close()
        self.data.close()


class PartitionedFileWriter:
    """Writes regions one after the other. By the task's thread, but for `append`: by one thread at a time."""

    def __init__(
        self,
        directories: SpillDirectories,
        subpartition_count: int,
        index_memory_bytes: int = INDEX_MEMORY_BYTES,
    ) -> None:
        self.schemas: Final = SchemaTable(seal=directories.seal)
        self._index_seal = None if directories.seal is None else directories.seal.begin_index()
        self.data: Final = directories.create_file(".data")
        self._subpartition_count = subpartition_count
        self._index_memory_bytes = index_memory_bytes
        self._region_index = RegionIndex(subpartition_count)
        self._region_count = 0
        self._are_all_in_memory = True
        try:
            self._index = directories.create_file(_UNFINISHED_SUFFIX)
        except BaseException:
            self.data.let_go()
            raise

    @property
    def region_count(self) -> int:
        """Regions that were written."""
        return self._region_count

    def append(self, pieces: Sequence[Any]) -> int:
        """Write on in the present region; return where that is. StorageError."""
        return self.data.append(pieces)

    def end_region(self, extents: Sequence[Extent]) -> None:
        """End a region of which each subpartition has an extent. StorageError."""
        self._region_index.add_region(extents)
        self._region_count += 1
        if self._region_index.size_bytes > self._index_memory_bytes:
            self._are_all_in_memory = False
            self._append_to_index(self._region_index.encoded())
            self._region_index.clear()

    def finish(self) -> PartitionedFile:
        """Publish the index. StorageError."""
        footer = IndexFooter(
            self._subpartition_count, self._region_count, self.data.size, self.schemas.schemas
        )
        self._append_to_index(self._region_index.encoded() + encode_footer(footer))
        if self._index_seal is not None:
            self._index.append([self._index_seal.digest()])
        self._index.rename(self.data.path.with_suffix(INDEX_SUFFIX))
        in_memory = self._region_index if self._are_all_in_memory else None
        return PartitionedFile(self.data, self._index, footer, self.schemas, in_memory)

    def retain(self) -> bool:
        """Become one more user of both files; False if they are gone."""
        # Both are always retained and let go together, this one first.
        return self._index.retain() and self.data.retain()

    def let_go(self) -> None:
        """One user is done; the last one has both files deleted."""
        self._index.let_go()
        self.data.let_go()

    def _append_to_index(self, content: bytes) -> None:
        if self._index_seal is not None:
            self._index_seal.update(content)
        self._index.append([content])


def _without_seal(content: bytes, seal: FileSeal | None, place: str) -> bytes:
    if seal is None:
        return content
    index = content[:-INDEX_SEAL_BYTES]
    if not seal.fits_index(index, content[-INDEX_SEAL_BYTES:]):
        raise CorruptFileError(place, "it is not what was written under this name with this secret")
    return index

"""PartitionedFile: the data file and the index file of one sort-merge partition.

    index file
    entries     16 bytes per region and subpartition, regions one after the other: offset u64 · length u64
    schemas     one after the other: length u32 · Arrow schema
    footer      magic u32 · subpartitions u32 · regions u32 · schemas u32 · data bytes u64 · CRC-32 u32 of the
                schemas and the footer up to here · schema bytes u32

A region that is the same for all subpartitions is stored once, and all its entries name the same place. In a sealed
file the seal of all this follows, see file_format.py. The index gets its name when everything is written, and by one
rename: what has no index is no partition, wherever its writer ended. Of the index up to INDEX_MEMORY_BYTES are kept in
memory; of a larger one the entries are read as they are needed. Source: Flink PartitionedFile, PartitionedFileWriter.
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.network.errors import CorruptFileError
from headrace.network.stored.file_format import INDEX_SEAL_BYTES, FileSeal, SchemaTable
from headrace.network.stored.spill_files import FileLayer, SpillDirectories, SpillFile, SubmitToDisk
from headrace.network.wire.framing import crc32

ENTRY_BYTES: Final = 16
FOOTER: Final = struct.Struct("!IIIIQII")
_ENTRY: Final = struct.Struct("!QQ")
_SCHEMA_LENGTH: Final = struct.Struct("!I")
_MAGIC: Final = 0x48525849  # "HRXI"
INDEX_MEMORY_BYTES: Final = 4 << 20
INDEX_SUFFIX: Final = ".index"
_UNFINISHED_SUFFIX: Final = ".index.unfinished"


@dataclass(frozen=True, slots=True)
class Extent:
    """A stretch of the data file."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.length


class RegionIndex:
    """Extents by region and subpartition, as they are being written."""

    def __init__(self, subpartition_count: int) -> None:
        self.subpartition_count: Final = subpartition_count
        self._numbers = array("Q")

    @property
    def region_count(self) -> int:
        """Regions that are here."""
        return len(self._numbers) // (2 * self.subpartition_count)

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return len(self._numbers) * self._numbers.itemsize

    def add_region(self, extents: Sequence[Extent]) -> None:
        """Add a region with one extent per subpartition."""
        assert len(extents) == self.subpartition_count
        for extent in extents:
            self._numbers.extend((extent.offset, extent.length))

    def extent(self, region: int, subpartition: int) -> Extent:
        """Return the extent of a subpartition in a region."""
        at = 2 * (region * self.subpartition_count + subpartition)
        return Extent(self._numbers[at], self._numbers[at + 1])

    def encoded(self) -> bytes:
        """Return all entries as they stand in the file."""
        return np.frombuffer(self._numbers, dtype=np.uint64).astype(">u8").tobytes()

    @classmethod
    def decoded(cls, subpartition_count: int, entries: bytes) -> "RegionIndex":
        """Inverse of `encoded`."""
        index = cls(subpartition_count)
        index._numbers.frombytes(np.frombuffer(entries, dtype=">u8").astype(np.uint64).tobytes())
        return index

    def clear(self) -> None:
        """Forget all entries: they are in the file."""
        self._numbers = array("Q")


@dataclass(frozen=True)
class IndexFooter:
    """Footer of an index file."""

    subpartition_count: int
    region_count: int
    data_bytes: int
    schemas: tuple[pa.Schema, ...]


def decode_entry(data: bytes) -> Extent:
    """Inverse of one entry of `RegionIndex.encoded`."""
    return Extent(*_ENTRY.unpack(data))


def encode_footer(footer: IndexFooter) -> bytes:
    """Return schemas and footer."""
    messages = [schema.serialize().to_pybytes() for schema in footer.schemas]
    schemas = b"".join(_SCHEMA_LENGTH.pack(len(message)) + message for message in messages)
    values = (_MAGIC, footer.subpartition_count, footer.region_count, len(messages))
    head = FOOTER.pack(*values, footer.data_bytes, 0, len(schemas))
    return schemas + FOOTER.pack(
        *values, footer.data_bytes, crc32(head, crc32(schemas)), len(schemas)
    )


def decode_footer(data: bytes, file_bytes: int, place: str) -> IndexFooter:
    """Inverse of `encode_footer`; `data` is at least the end of a file of `file_bytes`. CorruptFileError."""
    if len(data) < FOOTER.size:
        raise CorruptFileError(place, "it is too short for an index")
    magic, subpartitions, regions, count, data_bytes, crc, schema_bytes = FOOTER.unpack(
        data[-FOOTER.size :]
    )
    if magic != _MAGIC or len(data) < FOOTER.size + schema_bytes:
        raise CorruptFileError(place, "it does not end as an index does")
    schemas = data[-FOOTER.size - schema_bytes : -FOOTER.size]
    head = FOOTER.pack(magic, subpartitions, regions, count, data_bytes, 0, schema_bytes)
    if crc32(head, crc32(schemas)) != crc:
        raise CorruptFileError(place, "the end of the index does not have its checksum")
    if regions * subpartitions * ENTRY_BYTES + len(schemas) + FOOTER.size != file_bytes:
        raise CorruptFileError(place, f"{file_bytes} bytes are no index of {regions} regions")
    return IndexFooter(subpartitions, regions, data_bytes, tuple(_decode_schemas(schemas, count)))


def _decode_schemas(data: bytes, count: int) -> list[pa.Schema]:
    schemas: list[pa.Schema] = []
    offset = 0
    for _ in range(count):
        (length,) = _SCHEMA_LENGTH.unpack_from(data, offset)
        offset += _SCHEMA_LENGTH.size
        schemas.append(pa.ipc.read_schema(pa.py_buffer(data[offset : offset + length])))
        offset += length
    return schemas


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
        """Return the extent of a subpartition in a region; may read the index file. StorageError."""
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

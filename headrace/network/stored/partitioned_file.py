"""PartitionedFile: the data file and the index file of one sort-merge partition.

    index file
    entries     16 bytes per region and subpartition, in order of regions: offset u64 · length u64
    schemas     in sequence: length u32 · Arrow schema
    footer      magic u32 · subpartitions u32 · regions u32 · schemas u32 · data bytes u64 · CRC-32 u32 of the
                schemas and the footer up to here · schema bytes u32

A region that is the same for all subpartitions is stored once, and all its entries name the same extent. In a sealed
file a seal of all this follows, see file_format.py. The index gets its name by one rename when everything is written:
a data file without an index is incomplete. Up to INDEX_MEMORY_BYTES of the index are kept in
memory; entries of a larger index are read on demand. Source: Flink PartitionedFile, PartitionedFileWriter.
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
    """Contiguous range of the data file."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the extent."""
        return self.offset + self.length


class RegionIndex:
    """Extents by region and subpartition, while they are written."""

    def __init__(self, subpartition_count: int) -> None:
        self.subpartition_count: Final = subpartition_count
        self._numbers = array("Q")

    @property
    def region_count(self) -> int:
        """Number of regions in memory."""
        return len(self._numbers) // (2 * self.subpartition_count)

    @property
    def size_bytes(self) -> int:
        """Size of the index in memory, in bytes."""
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
        """Return all entries in the file's encoding."""
        return np.frombuffer(self._numbers, dtype=np.uint64).astype(">u8").tobytes()

    @classmethod
    def decoded(cls, subpartition_count: int, entries: bytes) -> "RegionIndex":
        """Return the index that `encoded` has written."""
        index = cls(subpartition_count)
        index._numbers.frombytes(np.frombuffer(entries, dtype=">u8").astype(np.uint64).tobytes())
        return index

    def clear(self) -> None:
        """Forget all entries, which are in the file now."""
        self._numbers = array("Q")


@dataclass(frozen=True)
class IndexFooter:
    """Contents of the footer of an index file."""

    subpartition_count: int
    region_count: int
    data_bytes: int
    schemas: tuple[pa.Schema, ...]


def decode_entry(data: bytes) -> Extent:
    """Return the extent of one entry of `RegionIndex.encoded`."""
    return Extent(*_ENTRY.unpack(data))


def encode_footer(footer: IndexFooter) -> bytes:
    """Return the encoded schemas and footer."""
    messages = [schema.serialize().to_pybytes() for schema in footer.schemas]
    schemas = b"".join(_SCHEMA_LENGTH.pack(len(message)) + message for message in messages)
    values = (_MAGIC, footer.subpartition_count, footer.region_count, len(messages))
    head = FOOTER.pack(*values, footer.data_bytes, 0, len(schemas))
    return schemas + FOOTER.pack(
        *values, footer.data_bytes, crc32(head, crc32(schemas)), len(schemas)
    )


def decode_footer(data: bytes, file_bytes: int, place: str) -> IndexFooter:
    """Return the footer that `encode_footer` has written; `data` is at least the end of a file of `file_bytes`.

    CorruptFileError if it is not a valid index.
    """
    if len(data) < FOOTER.size:
        raise CorruptFileError(place, "the file is too short for an index")
    magic, subpartitions, regions, count, data_bytes, crc, schema_bytes = FOOTER.unpack(
        data[-FOOTER.size :]
    )
    if magic != _MAGIC or len(data) < FOOTER.size + schema_bytes:
        raise CorruptFileError(place, "the file does not end with the footer of an index")
    schemas = data[-FOOTER.size - schema_bytes : -FOOTER.size]
    head = FOOTER.pack(magic, subpartitions, regions, count, data_bytes, 0, schema_bytes)
    if crc32(head, crc32(schemas)) != crc:
        raise CorruptFileError(place, "the checksum of the index footer is wrong")
    if regions * subpartitions * ENTRY_BYTES + len(schemas) + FOOTER.size != file_bytes:
        raise CorruptFileError(
            place, f"the index has {file_bytes} bytes, which do not match {regions} regions"
        )
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
    """Files of a finished partition. Read by any thread of the I/O pool that has retained them."""

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
        """Open the files that another writer has finished.

        StorageError if they are not a whole partition with this seal. The entries of an index larger than
        INDEX_MEMORY_BYTES are read later without a new check of its seal: elements are bound to their offsets, so that
        only their order and their consumers could be changed in the meantime.
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
            what = f"the file has {data.size} bytes, but {footer.data_bytes} were written"
            raise CorruptFileError(str(data_path), what)
        entry_bytes = footer.region_count * footer.subpartition_count * ENTRY_BYTES
        in_memory = None
        if seal is not None and entry_bytes <= INDEX_MEMORY_BYTES:
            in_memory = RegionIndex.decoded(footer.subpartition_count, content[:entry_bytes])
        return cls(data, index, footer, SchemaTable(footer.schemas, seal), in_memory)

    def extent(self, region: int, subpartition: int) -> Extent:
        """Return the extent of a subpartition in a region; may read the index file. StorageError if that fails."""
        if self._in_memory is not None:
            return self._in_memory.extent(region, subpartition)
        at = (region * self.subpartition_count + subpartition) * ENTRY_BYTES
        extent = decode_entry(self._index.read(at, ENTRY_BYTES).to_pybytes())
        if extent.end > self.data.size:
            raise CorruptFileError(
                str(self._index.path), f"region {region} lies beyond the end of the data"
            )
        return extent

    def retain(self) -> bool:
        """Add one user of both files; return False if they are already deleted."""
        # Both files are always retained and released together, the index first.
        return self._index.retain() and self.data.retain()

    def let_go(self) -> None:
        """Remove one user; the last one has both files deleted."""
        self._index.let_go()
        self.data.let_go()

    def close(self) -> None:
        """Close both files without deleting them."""
        self._index.close()
        self.data.close()


class PartitionedFileWriter:
    """Writes regions in order. Task's thread, except `append`, which one thread at a time may call."""

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
        """Number of regions written so far."""
        return self._region_count

    def append(self, pieces: Sequence[Any]) -> int:
        """Append to the current region; return the offset of the data. StorageError if that fails."""
        return self.data.append(pieces)

    def end_region(self, extents: Sequence[Extent]) -> None:
        """End a region in which each subpartition has an extent. StorageError if the index cannot be written."""
        self._region_index.add_region(extents)
        self._region_count += 1
        if self._region_index.size_bytes > self._index_memory_bytes:
            self._are_all_in_memory = False
            self._append_to_index(self._region_index.encoded())
            self._region_index.clear()

    def finish(self) -> PartitionedFile:
        """Publish the index and return the finished file. StorageError if that fails."""
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
        """Add one user of both files; return False if they are already deleted."""
        # Both files are always retained and released together, the index first.
        return self._index.retain() and self.data.retain()

    def let_go(self) -> None:
        """Remove one user; the last one has both files deleted."""
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
        raise CorruptFileError(place, "the file was not written under this name with this secret")
    return index

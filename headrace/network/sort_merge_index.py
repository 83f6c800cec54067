"""RegionIndex: where in the data file each subpartition of each region lies; and the form of the index file. Pure.

    entries     16 bytes per region and subpartition, regions one after the other: offset u64 · length u64
    schemas     one after the other: length u32 · Arrow schema
    footer      magic u32 · subpartitions u32 · regions u32 · schemas u32 · data bytes u64 · CRC-32 u32 of the
                schemas and the footer up to here · schema bytes u32

A region that is the same for all subpartitions is stored once, and all its entries name the same place. In a sealed
file the seal of all this follows, see file_seal.py.
Source: Flink PartitionedFile, PartitionedFileWriter.
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.network.checksum import crc32
from headrace.network.errors import CorruptFileError

ENTRY_BYTES: Final = 16
FOOTER: Final = struct.Struct("!IIIIQII")
_ENTRY: Final = struct.Struct("!QQ")
_SCHEMA_LENGTH: Final = struct.Struct("!I")
_MAGIC: Final = 0x48525849  # "HRXI"


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
        """Where a subpartition of a region lies."""
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
    """What the end of an index file says."""

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

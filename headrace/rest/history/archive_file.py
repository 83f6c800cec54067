"""The file of an ended job: every REST answer about it, and an index to find them.

Its text is the JSON of Flink's archives with two more members:

    {"archive":[
    {"path":"/jobs/<id>","json":"{...}"}
    ,{"path":...}
    ],"index":{"version":1,"job":"<id>","overview":{...},"blocks":[["/jobs/<id>",13,65536,<crc32>],...]}
    ,"index-at":[<offset>,<length>,<crc32>]}          padded with spaces to a fixed length

Entries are sorted by path and grouped in blocks; the index has the first path, the place and the checksum of each
block. So reading one answer reads the end of the file, and one block, however many answers there are.

A large archive is stored as a sequence of gzip members, one for each line of the above, block, or index: unpacked by
any gzip tool, it is the same text. Offsets and lengths are those in the stored file.
Source: Flink FsJsonArchivist (the JSON); SSTables of Bigtable (the sparse index); BGZF (members of gzip).
"""

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from headrace.core.errors import DECODE_ERRORS, ErrorDomain, HeadraceError

ARCHIVE_VERSION: Final = 1
BLOCK_BYTES: Final = 1 << 16
"""Size of a block's text; the block ends with the entry that exceeds this."""
PART_BYTES_MAX: Final = 32 << 20
"""Maximum size of the text of one block, and so of one answer."""
INDEX_BYTES_MAX: Final = 4 << 20
"""Maximum size of an index's text, enough for some gigabytes of blocks."""
STORED_BYTES_MAX: Final = 1 << 30
"""Maximum size of a file."""
_TAIL_BYTES: Final = 1 << 16
"""Number of bytes that are read first, from the end; in most archives they contain the whole index."""
_COMPRESSION_LEVEL: Final = 4
_GZIP: Final = 31
"""Window bits of zlib for a gzip header."""
_MAGIC: Final = b"\x1f\x8b"
_HEAD: Final = b'{"archive":[\n'
_TRAILER_BYTES: Final = 96
_TRAILER: Final = re.compile(rb',"index-at":\[([0-9]{1,12}),([0-9]{1,12}),([0-9]{1,10})\]\} *\n')


class DamagedArchiveError(HeadraceError):
    """A file that cannot be read as an archive: it is cut off, was changed, or never was one. It is left unchanged."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} is not a complete archive of a job: {reason}; it is not shown, and stays until you delete it"
        )
        self.place = place
        self.reason = reason


class RangeReader(Protocol):
    """A file that can be read in pieces."""

    @property
    def size_bytes(self) -> int:
        """Return the file's size."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes, or fewer at the end of the file."""
        ...


class ArchiveBlock(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entries from `first_path` on.

    `offset` and `length` in the stored file; `checksum`: CRC-32 of the stored bytes.
    """

    first_path: str
    offset: int
    length: int
    checksum: int


class ArchiveIndex(msgspec.Struct, frozen=True):
    """The index of an archive. `overview`: the job's line in lists."""

    version: int
    job: str
    overview: msgspec.Raw
    blocks: list[ArchiveBlock]


class _Entry(msgspec.Struct, frozen=True, gc=False):
    path: str
    json: str


def pack_archive(
    job: str, overview: bytes, answers: Iterable[tuple[str, bytes]], *, is_compressed: bool
) -> bytes:
    """Return an archive. `answers`: paths and their JSON, sorted by path. ValueError if a part is too large."""
    content = bytearray(_stored(_HEAD, is_compressed))
    blocks: list[ArchiveBlock] = []
    first_path, last_path, text = "", "", bytearray()

    def end_block() -> None:
        if len(text) > PART_BYTES_MAX:
            raise ValueError(f"the answer of {first_path} has {len(text)} bytes")
        stored = _stored(text, is_compressed)
        blocks.append(ArchiveBlock(first_path, len(content), len(stored), zlib.crc32(stored)))
        content.extend(stored)
        if len(content) > STORED_BYTES_MAX:
            raise ValueError(f"the archive has more than {STORED_BYTES_MAX} bytes")

    for path, json in answers:
        assert path > last_path, f"{path} follows {last_path}"
        last_path = path
        if len(text) >= BLOCK_BYTES:
            end_block()
            text = bytearray()
        if not text:
            first_path = path
        if blocks or text:
            text += b","
        text += msgspec.json.encode(_Entry(path, json.decode()))
        text += b"\n"
    if text:
        end_block()
    index = msgspec.json.encode(ArchiveIndex(ARCHIVE_VERSION, job, msgspec.Raw(overview), blocks))
    stored = _stored(b'],"index":' + index + b"\n", is_compressed)
    if len(index) >= INDEX_BYTES_MAX:
        raise ValueError(f"the index has {len(index)} bytes")
    trailer = f',"index-at":[{len(content)},{len(stored)},{zlib.crc32(stored)}]}}'.encode()
    content += stored
    content += _stored(trailer.ljust(_TRAILER_BYTES - 1) + b"\n", is_compressed, level=0)
    return bytes(content)


def read_index(place: str, file: RangeReader) -> ArchiveIndex:
    """Read the index of an archive. DamagedArchiveError; OSError and the storage's own errors."""
    size = file.size_bytes
    if size > STORED_BYTES_MAX:
        raise DamagedArchiveError(
            place, f"the file has {size} bytes, more than an archive can have"
        )
    tail_offset = max(0, size - _TAIL_BYTES)
    tail = file.read(tail_offset, size - tail_offset)
    found = _trailer_of(place, tail)
    if found is None:
        raise DamagedArchiveError(place, "the file does not end like an archive")
    offset, length, checksum = (int(group) for group in found)
    if offset + length > size or length > INDEX_BYTES_MAX:
        raise DamagedArchiveError(place, "the index is outside of the file")
    if offset >= tail_offset:
        stored = tail[offset - tail_offset : offset - tail_offset + length]
    else:
        stored = file.read(offset, length)
    text = _checked(place, "index", stored, length, checksum, INDEX_BYTES_MAX)
    try:
        index = msgspec.json.decode(text.removeprefix(b'],"index":'), type=ArchiveIndex)
    except DECODE_ERRORS as error:
        raise DamagedArchiveError(place, f"the index cannot be read: {error}") from error
    if index.version != ARCHIVE_VERSION:
        raise DamagedArchiveError(
            place,
            f"the archive has version {index.version}, but this server reads version {ARCHIVE_VERSION}",
        )
    return index


def read_answer(place: str, file: RangeReader, index: ArchiveIndex, path: str) -> bytes | None:
    """Return the JSON of a path, or None if the archive has no such path. DamagedArchiveError."""
    number = bisect_right(index.blocks, path, key=lambda block: block.first_path) - 1
    if number < 0:
        return None
    block = index.blocks[number]
    if not (block.offset >= 0 and 0 < block.length <= PART_BYTES_MAX):
        raise DamagedArchiveError(place, "a block is outside of the file")
    stored = file.read(block.offset, block.length)
    text = _checked(place, "block", stored, block.length, block.checksum, PART_BYTES_MAX)
    try:
        for entry in msgspec.json.decode(b"[" + text.removeprefix(b",") + b"]", type=list[_Entry]):
            if entry.path == path:
                # Only valid JSON is returned, whoever wrote the archive.
                return bytes(msgspec.json.decode(entry.json, type=msgspec.Raw))
    except DECODE_ERRORS as error:
        raise DamagedArchiveError(place, f"a block cannot be read: {error}") from error
    return None


def _trailer_of(place: str, tail: bytes) -> tuple[bytes, ...] | None:
    text = tail[-_TRAILER_BYTES:]
    packed = tail[-_PACKED_TRAILER_BYTES:]
    if packed.startswith(_MAGIC):
        text = _unpacked(place, "end", packed, _TRAILER_BYTES)
    found = _TRAILER.fullmatch(text)
    return None if found is None else found.groups()


def _checked(
    place: str, part: str, stored: bytes, length: int, checksum: int, size_max: int
) -> bytes:
    if len(stored) != length or zlib.crc32(stored) != checksum:
        raise DamagedArchiveError(place, f"the {part} was changed or cut off")
    return _unpacked(place, part, stored, size_max) if stored.startswith(_MAGIC) else stored


def _unpacked(place: str, part: str, stored: bytes, size_max: int) -> bytes:
    unpacking = zlib.decompressobj(_GZIP)
    try:
        text = unpacking.decompress(stored, size_max)
    except zlib.error as error:
        raise DamagedArchiveError(place, f"the {part} cannot be unpacked: {error}") from error
    if not unpacking.eof:
        raise DamagedArchiveError(place, f"the {part} has more than {size_max} bytes")
    return text


def _stored(
    text: bytes | bytearray, is_compressed: bool, *, level: int = _COMPRESSION_LEVEL
) -> bytes:
    if not is_compressed:
        return bytes(text)
    packing = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return packing.compress(text) + packing.flush()


_PACKED_TRAILER_BYTES: Final = len(_stored(bytes(_TRAILER_BYTES), True, level=0))

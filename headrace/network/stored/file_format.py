"""The file format of stored batches and events: a header, the markers, then the Arrow message.

    header (32 bytes)   magic u16 · kind u8 · codec u8 · rows u32 · schema u32 · marker bytes u32 · raw bytes u32 ·
                        stored bytes u32 · CRC-32 u32 of everything else · zero u32; in a sealed file, 8 bytes of
                        its seal in place of the last two
    markers             as in a data frame (see framing.py)
    body                `stored bytes` of an Arrow message without schema, or kind and value of an event

Header with markers, and the body, are each padded to 8 bytes, so that the columns of a batch that is read into aligned
memory are aligned. Schemas are numbered per file. Bodies may be compressed, files may be sealed against forgery. Pure:
nothing here touches a file. Source: Flink BufferReaderWriterUtil.
"""

import hashlib
import hmac
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.core.config import ConfigOption, Settings
from headrace.core.elements import StreamEvent
from headrace.network.batches.sealed_batch import SealedBatch, decode_event, encode_event
from headrace.network.errors import CorruptFileError, ProtocolError
from headrace.network.wire.framing import Body, BodyParts, crc32, decode_markers, encode_markers

COMPRESSION_CODEC: Final = ConfigOption(
    "taskmanager.network.compression.codec", str, "LZ4",
    "Compression of the batches of blocking and hybrid results on disk: NONE, LZ4 or ZSTD.",
    choices=("NONE", "LZ4", "ZSTD"),
)  # fmt: skip

UNCOMPRESSED: Final = 0
# The numbers are stored in files: they are never reused for another codec.
_NUMBERS: Final = {"NONE": UNCOMPRESSED, "LZ4": 1, "ZSTD": 2}
_ARROW_NAMES: Final = {1: "lz4_raw", 2: "zstd"}
CODEC_NUMBERS: Final = frozenset({UNCOMPRESSED, *_ARROW_NAMES})
COMPRESSED_BYTES_MIN: Final = 512
"""Size in bytes below which compression costs more than it saves."""
NOT_STORED: Final = (1 << 64) - 1
"""Offset that marks an element which is not in the file."""
ELEMENT_SEAL_BYTES: Final = 8
"""Size of the seal that replaces an element's checksum. A forger has one guess for each reading of the file."""
INDEX_SEAL_BYTES: Final = 32
_PLACE: Final = struct.Struct("!Q")
_HEADER: Final = struct.Struct("!HBBIIIIIII")
_EVENT: Final = struct.Struct("!Bq")
_CHECKSUM: Final = struct.Struct("!II")
_MAGIC: Final = 0x4842  # "HB"
_DATA, _EVENT_KIND = 1, 2
_NO_SCHEMA: Final = 0xFFFFFFFF
_NO_CHECKSUM: Final = bytes(_CHECKSUM.size)
_ALIGNMENT: Final = 8
HEADER_BYTES: Final = _HEADER.size
StoredElement = SealedBatch | StreamEvent


class BatchCompressor:
    """Compresses the bodies of one partition's batches; a body that would not become smaller is stored as it is.

    Pipelined edges are never compressed: within a host it costs more than the bytes it saves. Used by one thread.
    Source: Flink BufferCompressor, BufferDecompressor.
    """

    def __init__(self, codec_number: int) -> None:
        self._number = codec_number
        self._codec: Any = pa.Codec(_ARROW_NAMES[codec_number]) if codec_number else None

    @classmethod
    def from_settings(cls, settings: Settings) -> "BatchCompressor":
        """Make a compressor from the option. ConfigurationError if the codec is not available."""
        return cls(_NUMBERS[settings.get_option(COMPRESSION_CODEC)])

    def compress(self, body: Body) -> tuple[int, Body]:
        """Return the codec's number and the bytes to store: `body` itself if compression would not make it smaller."""
        size = len(body)
        if self._codec is None or size < COMPRESSED_BYTES_MIN:
            return UNCOMPRESSED, body
        joined = b"".join(body.parts) if isinstance(body, BodyParts) else body
        compressed = self._codec.compress(joined)
        if compressed.size >= size:
            return UNCOMPRESSED, body
        return self._number, compressed


def decompress(codec_number: int, stored: pa.Buffer, raw_length: int) -> pa.Buffer:
    """Return the body of `raw_length` bytes. OSError or ValueError (Arrow's) if `stored` was damaged."""
    if codec_number == UNCOMPRESSED:
        return stored
    return pa.Codec(_ARROW_NAMES[codec_number]).decompress(stored, decompressed_size=raw_length)


class ElementIndex:
    """Offsets and lengths of one subpartition's elements in a file shared with other subpartitions.

    16 bytes per element. Appended to by one thread, read by any.
    """

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._lengths = array("Q")

    def __len__(self) -> int:
        return len(self._lengths)

    def append(self, offset: int, length: int) -> None:
        """Add the next element."""
        self._offsets.append(offset)
        # Last, because readers count by the lengths and then read the offset.
        self._lengths.append(length)

    def place(self, position: int, offset: int, length: int) -> None:
        """Set the offset and length of an element that was not stored before."""
        self._lengths[position] = length
        self._offsets[position] = offset

    def is_stored(self, position: int) -> bool:
        """Return whether element `position` is in the file."""
        return self._offsets[position] != NOT_STORED

    def offset_of(self, position: int) -> int:
        """Return the file offset of element `position`."""
        return self._offsets[position]

    def run_from(self, position: int, limit_bytes: int) -> tuple[int, int]:
        """Return the count and bytes of the elements that lie contiguously from `position` on, within the limit."""
        count, size = 1, self._lengths[position]
        while position + count < len(self):
            following = position + count
            is_next = self._offsets[following] == self._offsets[position] + size
            if not is_next or size + self._lengths[following] > limit_bytes:
                break
            size += self._lengths[following]
            count += 1
        return count, size


class FileSeal:
    """Proves that a stored result was written with the cluster's secret, at this offset and under this name.

    A checksum only detects damage; anyone who may write to a file can recompute it. Stored rows are partly pickled, and
    pickles run code when they are read: so files that outlive their writer carry a keyed BLAKE2b instead. Each element
    is bound to its file and offset, the index to its file. No two files sealed with the secret have the same `name`.
    Any thread. Source: RFC 7693.
    """

    def __init__(self, secret: bytes, name: str) -> None:
        self._key: Final = hashlib.blake2b(
            name.encode(), key=secret, digest_size=32, person=b"stored result"
        ).digest()

    def of_element(self, place: int, parts: Iterable[Any]) -> bytes:
        """Return the seal of an element at byte `place` of the file."""
        made = hashlib.blake2b(
            _PLACE.pack(place), key=self._key, digest_size=ELEMENT_SEAL_BYTES, person=b"element"
        )
        for part in parts:
            made.update(part)
        return made.digest()

    def begin_index(self) -> "hashlib.blake2b":
        """Return the hash object to update with the whole index."""
        return hashlib.blake2b(key=self._key, digest_size=INDEX_SEAL_BYTES, person=b"index")

    def fits_index(self, index: Any, seal: bytes) -> bool:
        """Return whether `seal` belongs to exactly this index."""
        made = self.begin_index()
        made.update(index)
        return hmac.compare_digest(made.digest(), seal)


class SchemaTable:
    """Schemas of one file by number, and the `seal` that authenticates its elements, or None."""

    def __init__(self, schemas: Sequence[pa.Schema] = (), seal: FileSeal | None = None) -> None:
        self.seal: Final = seal
        self._schemas = list(schemas)
        self._last = 0

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """Schemas in the order of their numbers."""
        return tuple(self._schemas)

    def number_of(self, schema: pa.Schema) -> int:
        """Return the number of a schema; assign one if it is new. Writer's thread only."""
        if self._schemas and self._schemas[self._last].equals(schema):
            return self._last
        for number, known in enumerate(self._schemas):
            if known.equals(schema):
                self._last = number
                return number
        self._schemas.append(schema)
        self._last = len(self._schemas) - 1
        return self._last

    def schema(self, number: int) -> pa.Schema | None:
        """Return the schema with this number, or None."""
        return self._schemas[number] if number < len(self._schemas) else None


class _Header(msgspec.Struct, frozen=True, gc=False):
    kind: int
    codec: int
    row_count: int
    schema_number: int
    marker_bytes: int
    raw_bytes: int
    stored_bytes: int
    crc: int
    body_offset: int
    total_bytes: int


def padded(size: int) -> int:
    """Return `size` rounded up to the alignment."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class PreparedElement(msgspec.Struct, frozen=True, gc=False):
    """A batch or event that will take `size_bytes` of a file; its checksum is not computed yet."""

    head: bytes
    markers: bytes
    parts: tuple[Any, ...]
    stored_bytes: int

    @property
    def size_bytes(self) -> int:
        """Size in the file, with padding."""
        return padded(HEADER_BYTES + len(self.markers)) + padded(self.stored_bytes)

    def pieces(self, seal: FileSeal | None = None, place: int = 0) -> list[Any]:
        """Return the pieces to write. Reads all of them for the checksum or the seal. Any thread.

        `place` is the file offset at which the element will be written.
        """
        plain = self.head[:-ELEMENT_SEAL_BYTES]
        if seal is None:
            crc = crc32(self.markers, crc32(self.head))
            for part in self.parts:
                crc = crc32(part, crc)
            check = _CHECKSUM.pack(crc, 0)
        else:
            check = seal.of_element(place, (plain, self.markers, *self.parts))
        head = plain + check + self.markers
        head += bytes(padded(len(head)) - len(head))
        tail = padded(self.stored_bytes) - self.stored_bytes
        return [head, *self.parts, bytes(tail)] if tail else [head, *self.parts]


def prepare_batch(
    sealed: SealedBatch, body: Body, schemas: SchemaTable, compressor: BatchCompressor
) -> PreparedElement:
    """Prepare a batch, whose message is `body`, for writing."""
    number = _NO_SCHEMA if sealed.arrow is None else schemas.number_of(sealed.arrow.schema)
    codec, stored = compressor.compress(body)
    markers = encode_markers(sealed.markers)
    return _prepared(_DATA, codec, sealed.row_count, number, markers, len(body), stored)


def prepare_event(event: StreamEvent) -> PreparedElement:
    """Prepare an event for writing."""
    body = _EVENT.pack(*_plain(event))
    return _prepared(_EVENT_KIND, 0, 0, _NO_SCHEMA, b"", len(body), body)


def encode_batch(
    sealed: SealedBatch, body: Body, schemas: SchemaTable, compressor: BatchCompressor
) -> list[Any]:
    """Return a batch, whose message is `body`, as pieces to write in order."""
    return prepare_batch(sealed, body, schemas, compressor).pieces()


def encode_stored_event(event: StreamEvent) -> list[Any]:
    """Return an event as pieces to write in order."""
    return prepare_event(event).pieces()


def _plain(event: StreamEvent) -> tuple[int, int]:
    """Return kind and value; barriers do not occur here, since jobs with stored results take no checkpoints."""
    kind, value, body = encode_event(event)
    assert not body, f"{event} in a stored result"
    return kind, value


def pieces_bytes(pieces: Sequence[Any]) -> int:
    """Return the total size of the pieces in bytes."""
    return sum(map(len, pieces))


class UndecodedElement(msgspec.Struct, frozen=True, gc=False):
    """A whole element in `data`, of which only the header has been parsed."""

    data: Any  # pa.Buffer
    offset: int
    header: _Header
    schemas: SchemaTable
    place: str
    file_offset: int = 0
    """Offset of `data` in the file."""

    @property
    def is_compressed(self) -> bool:
        """Return whether decoding must decompress, instead of only verifying a checksum."""
        return self.header.codec != UNCOMPRESSED

    @property
    def size_bytes(self) -> int:
        """Size of a batch in memory, like `SealedBatch.size_bytes`; 0 for an event."""
        return self.header.raw_bytes if self.header.kind == _DATA else 0

    @property
    def end(self) -> int:
        """Offset of the first byte of `data` after the element."""
        return self.offset + self.header.total_bytes

    def decode(self) -> StoredElement:
        """Return the batch or event. CorruptFileError, with its place, if the bytes were damaged."""
        return _decode_element(self, memoryview(self.data))


def split_elements(
    data: pa.Buffer, schemas: SchemaTable, place: str, file_offset: int = 0
) -> Iterator[UndecodedElement]:
    """Yield each whole element of `data`, which begins at `file_offset`; an incomplete one at the end is ignored.

    CorruptFileError, with `place`, if a header is invalid; `decode` checks the contents.
    """
    view = memoryview(data)
    offset = 0
    while len(view) - offset >= HEADER_BYTES:
        element = UndecodedElement(
            data, offset, _decode_header(view, offset, place), schemas, place, file_offset
        )
        if element.end > len(view):
            return
        yield element
        offset = element.end


def split_run(
    data: pa.Buffer, count: int, schemas: SchemaTable, place: str
) -> list[UndecodedElement]:
    """Return the elements of `data`, whose number is `count` according to the index of the file.

    CorruptFileError, with `place`, if there are fewer: lengths in headers are used before their checksums are verified,
    so a damaged one would otherwise drop elements silently.
    """
    elements = list(split_elements(data, schemas, place))
    if len(elements) < count:
        raise CorruptFileError(place, "an element is longer than the index of the file says")
    return elements


def element_bytes(data: pa.Buffer, place: str) -> int:
    """Return the length of the first element of `data` from its header. CorruptFileError if that is invalid."""
    if len(data) < HEADER_BYTES:
        raise CorruptFileError(
            place, f"an element has {len(data)} bytes, which is less than a header"
        )
    return _decode_header(memoryview(data), 0, place).total_bytes


def _prepared(
    kind: int, codec: int, row_count: int, schema: int, markers: bytes, raw_bytes: int, stored: Body
) -> PreparedElement:
    parts = stored.parts if isinstance(stored, BodyParts) else (stored,)
    stored_bytes = pieces_bytes(parts)
    head = _HEADER.pack(
        _MAGIC, kind, codec, row_count, schema, len(markers), raw_bytes, stored_bytes, 0, 0
    )
    return PreparedElement(head, markers, parts, stored_bytes)


def _decode_header(view: memoryview, offset: int, place: str) -> _Header:
    magic, kind, codec, rows, schema, markers, raw, stored, crc, _ = _HEADER.unpack_from(
        view, offset
    )
    if magic != _MAGIC or kind not in (_DATA, _EVENT_KIND) or codec not in CODEC_NUMBERS:
        raise CorruptFileError(place, f"no batch begins at byte {offset} of the data read")
    body_offset = padded(HEADER_BYTES + markers)
    total = body_offset + padded(stored)
    return _Header(kind, codec, rows, schema, markers, raw, stored, crc, body_offset, total)


def _decode_element(element: UndecodedElement, view: memoryview) -> StoredElement:
    offset, header, schemas, place = element.offset, element.header, element.schemas, element.place
    body = element.data.slice(offset + header.body_offset, header.stored_bytes)
    markers_start = offset + HEADER_BYTES
    plain = view[offset : markers_start - ELEMENT_SEAL_BYTES]
    raw_markers = view[markers_start : markers_start + header.marker_bytes]
    if schemas.seal is not None:
        seal = schemas.seal.of_element(element.file_offset + offset, (plain, raw_markers, body))
        if not hmac.compare_digest(seal, view[markers_start - ELEMENT_SEAL_BYTES : markers_start]):
            raise CorruptFileError(place, "a batch is not the one written there with this secret")
    else:
        crc = crc32(_NO_CHECKSUM, crc32(plain))
        if header.marker_bytes:
            crc = crc32(raw_markers, crc)
        if crc32(body, crc) != header.crc:
            raise CorruptFileError(place, "the checksum of a batch is wrong")
    try:
        if header.kind == _EVENT_KIND:
            kind, value = _EVENT.unpack(body)
            return decode_event(kind, value, b"", place)
        markers = decode_markers(view, offset + HEADER_BYTES, header.marker_bytes, place)
        if header.schema_number == _NO_SCHEMA:
            return SealedBatch(None, markers)
        schema = schemas.schema(header.schema_number)
        if schema is None:
            raise CorruptFileError(
                place, f"a batch names the unknown schema {header.schema_number}"
            )
        message = decompress(header.codec, body, header.raw_bytes)
        arrow = pa.ipc.read_record_batch(message, schema)
    except (ProtocolError, pa.ArrowException, EOFError, OSError, ValueError) as error:
        raise CorruptFileError(place, f"a batch cannot be read: {error}") from error
    if arrow.num_rows != header.row_count:
        raise CorruptFileError(
            place, f"a batch has {arrow.num_rows} rows instead of {header.row_count}"
        )
    return SealedBatch.of_message(arrow, markers, message)

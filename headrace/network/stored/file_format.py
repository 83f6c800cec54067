"""The form in which batches and events lie in files: a header that says what follows, markers, then the Arrow message.

    header (32 bytes)   magic u16 · kind u8 · codec u8 · rows u32 · schema u32 · marker bytes u32 · raw bytes u32 ·
                        stored bytes u32 · CRC-32 u32 of all the rest · zero u32; where the file is sealed, 8 bytes of
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
    "How batches of blocking and hybrid results are compressed on disk: NONE, LZ4 or ZSTD.",
    choices=("NONE", "LZ4", "ZSTD"),
)  # fmt: skip

UNCOMPRESSED: Final = 0
# Numbers stand in files: they are never given to another codec.
_NUMBERS: Final = {"NONE": UNCOMPRESSED, "LZ4": 1, "ZSTD": 2}
_ARROW_NAMES: Final = {1: "lz4_raw", 2: "zstd"}
CODEC_NUMBERS: Final = frozenset({UNCOMPRESSED, *_ARROW_NAMES})
COMPRESSED_BYTES_MIN: Final = 512
"""Below this the call costs more than the bytes."""
NOT_STORED: Final = (1 << 64) - 1
"""The offset of an element that is not in the file."""
ELEMENT_SEAL_BYTES: Final = 8
"""Takes the place of an element's checksum. Whoever guesses has one try for each reading of the file."""
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
        """Read the option; ConfigurationError for a codec that is not there."""
        return cls(_NUMBERS[settings.get_option(COMPRESSION_CODEC)])

    def compress(self, body: Body) -> tuple[int, Body]:
        """Return the codec's number and the bytes to store: `body` itself where it would not become smaller."""
        size = len(body)
        if self._codec is None or size < COMPRESSED_BYTES_MIN:
            return UNCOMPRESSED, body
        joined = b"".join(body.parts) if isinstance(body, BodyParts) else body
        compressed = self._codec.compress(joined)
        if compressed.size >= size:
            return UNCOMPRESSED, body
        return self._number, compressed


def decompress(codec_number: int, stored: pa.Buffer, raw_length: int) -> pa.Buffer:
    """Return the body of `raw_length` bytes; OSError or ValueError (Arrow's) where `stored` is not what it was."""
    if codec_number == UNCOMPRESSED:
        return stored
    return pa.Codec(_ARROW_NAMES[codec_number]).decompress(stored, decompressed_size=raw_length)


class ElementIndex:
    """Places of one subpartition's elements in a file that holds those of others in between.

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
        # Last: whoever counts by lengths finds the offset.
        self._lengths.append(length)

    def place(self, position: int, offset: int, length: int) -> None:
        """An element that was not stored is stored now."""
        self._lengths[position] = length
        self._offsets[position] = offset

    def is_stored(self, position: int) -> bool:
        """Return whether element `position` is in the file."""
        return self._offsets[position] != NOT_STORED

    def offset_of(self, position: int) -> int:
        """Return the file offset of element `position`."""
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


class FileSeal:
    """Proves that a stored result was written with the cluster's secret, in this place and under this name.

    A checksum tells damage; whoever may write to a file can make it anew. Stored rows are partly pickled, and pickles
    run code where they are read: so files that outlive the process which wrote them carry a keyed BLAKE2b instead. Each
    element is bound to its file and to its place in it, the index to its file. No two files that the secret seals have
    the same `name`. Any thread. Source: RFC 7693.
    """

    def __init__(self, secret: bytes, name: str) -> None:
        self._key: Final = hashlib.blake2b(
            name.encode(), key=secret, digest_size=32, person=b"stored result"
        ).digest()

    def of_element(self, place: int, parts: Iterable[Any]) -> bytes:
        """Return the seal of an element at this byte of the file."""
        made = hashlib.blake2b(
            _PLACE.pack(place), key=self._key, digest_size=ELEMENT_SEAL_BYTES, person=b"element"
        )
        for part in parts:
            made.update(part)
        return made.digest()

    def begin_index(self) -> "hashlib.blake2b":
        """Return what is to be updated with the index from its beginning to its end."""
        return hashlib.blake2b(key=self._key, digest_size=INDEX_SEAL_BYTES, person=b"index")

    def fits_index(self, index: Any, seal: bytes) -> bool:
        """Return whether `seal` was made of exactly this index."""
        made = self.begin_index()
        made.update(index)
        return hmac.compare_digest(made.digest(), seal)


class SchemaTable:
    """The schemas of one file, by number; `seal`: what its elements are authenticated with, None where by nothing."""

    def __init__(self, schemas: Sequence[pa.Schema] = (), seal: FileSeal | None = None) -> None:
        self.seal: Final = seal
        self._schemas = list(schemas)
        self._last = 0

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """Schemas in the order of their numbers."""
        return tuple(self._schemas)

    def number_of(self, schema: pa.Schema) -> int:
        """Return the number of a schema, giving it one if it is new. By the writer's thread only."""
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
    """Return `size` brought up to the alignment."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class PreparedElement(msgspec.Struct, frozen=True, gc=False):
    """A batch or event that is going to be `size_bytes` of a file; its checksum is not made yet."""

    head: bytes
    markers: bytes
    parts: tuple[Any, ...]
    stored_bytes: int

    @property
    def size_bytes(self) -> int:
        """Size in the file, with padding."""
        return padded(HEADER_BYTES + len(self.markers)) + padded(self.stored_bytes)

    def pieces(self, seal: FileSeal | None = None, place: int = 0) -> list[Any]:
        """Return what is to be written, piece by piece. Reads all of it, for the checksum or the seal. Any thread.

        `place`: the byte of the file at which it will lie.
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
    """Make ready a batch whose message is `body`."""
    number = _NO_SCHEMA if sealed.arrow is None else schemas.number_of(sealed.arrow.schema)
    codec, stored = compressor.compress(body)
    markers = encode_markers(sealed.markers)
    return _prepared(_DATA, codec, sealed.row_count, number, markers, len(body), stored)


def prepare_event(event: StreamEvent) -> PreparedElement:
    """Make ready an event."""
    body = _EVENT.pack(*_plain(event))
    return _prepared(_EVENT_KIND, 0, 0, _NO_SCHEMA, b"", len(body), body)


def encode_batch(
    sealed: SealedBatch, body: Body, schemas: SchemaTable, compressor: BatchCompressor
) -> list[Any]:
    """Return a batch, whose message is `body`, as pieces to be written one after the other."""
    return prepare_batch(sealed, body, schemas, compressor).pieces()


def encode_stored_event(event: StreamEvent) -> list[Any]:
    """Return an event as pieces to be written one after the other."""
    return prepare_event(event).pieces()


def _plain(event: StreamEvent) -> tuple[int, int]:
    """Kind and value; barriers never come where results are stored: such jobs take no checkpoints."""
    kind, value, body = encode_event(event)
    assert not body, f"{event} in a stored result"
    return kind, value


def pieces_bytes(pieces: Sequence[Any]) -> int:
    """Return how many bytes the pieces have together."""
    return sum(map(len, pieces))


class UndecodedElement(msgspec.Struct, frozen=True, gc=False):
    """A whole element as it lies in `data`, of which only the header was looked at."""

    data: Any  # pa.Buffer
    offset: int
    header: _Header
    schemas: SchemaTable
    place: str
    file_offset: int = 0
    """File offset of `data`."""

    @property
    def is_compressed(self) -> bool:
        """Return whether to decode it is work for a processor, and not only a checksum."""
        return self.header.codec != UNCOMPRESSED

    @property
    def size_bytes(self) -> int:
        """Size of a batch in memory, as `SealedBatch.size_bytes`; 0 for an event."""
        return self.header.raw_bytes if self.header.kind == _DATA else 0

    @property
    def end(self) -> int:
        """The first byte of `data` behind it."""
        return self.offset + self.header.total_bytes

    def decode(self) -> StoredElement:
        """Return what was stored. CorruptFileError, naming the place, where the bytes are not what was written."""
        return _decode_element(self, memoryview(self.data))


def split_elements(
    data: pa.Buffer, schemas: SchemaTable, place: str, file_offset: int = 0
) -> Iterator[UndecodedElement]:
    """Yield each whole element of `data`, which begins at `file_offset`; what is cut off at the end is left.

    CorruptFileError, naming `place`, where none begins; what lies in them is looked at by `decode`.
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
    """Return the elements of `data`, which are `count` as the index of the file says.

    CorruptFileError, naming `place`, where they are fewer: a length in a header is looked at before its checksum, and
    what seems to be cut off would be missing without a word.
    """
    elements = list(split_elements(data, schemas, place))
    if len(elements) < count:
        raise CorruptFileError(place, "an element is longer than the index of the file says")
    return elements


def element_bytes(data: pa.Buffer, place: str) -> int:
    """Return how long the element at the beginning of `data` is, from its header alone. CorruptFileError."""
    if len(data) < HEADER_BYTES:
        raise CorruptFileError(place, f"an element of {len(data)} bytes, less than a header")
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
        raise CorruptFileError(place, f"no batch begins at byte {offset} of what was read")
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
            raise CorruptFileError(place, "a batch is not what was written there with this secret")
    else:
        crc = crc32(_NO_CHECKSUM, crc32(plain))
        if header.marker_bytes:
            crc = crc32(raw_markers, crc)
        if crc32(body, crc) != header.crc:
            raise CorruptFileError(place, "a batch does not have the checksum it was written with")
    try:
        if header.kind == _EVENT_KIND:
            kind, value = _EVENT.unpack(body)
            return decode_event(kind, value, b"", place)
        markers = decode_markers(view, offset + HEADER_BYTES, header.marker_bytes, place)
        if header.schema_number == _NO_SCHEMA:
            return SealedBatch(None, markers)
        schema = schemas.schema(header.schema_number)
        if schema is None:
            raise CorruptFileError(place, f"a batch of the unknown schema {header.schema_number}")
        message = decompress(header.codec, body, header.raw_bytes)
        arrow = pa.ipc.read_record_batch(message, schema)
    except (ProtocolError, pa.ArrowException, EOFError, OSError, ValueError) as error:
        raise CorruptFileError(place, f"a batch cannot be read: {error}") from error
    if arrow.num_rows != header.row_count:
        raise CorruptFileError(place, f"{arrow.num_rows} rows instead of {header.row_count}")
    return SealedBatch.of_message(arrow, markers, message)

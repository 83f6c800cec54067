"""Wire format of the data plane's frames: their declaration, encoding and decoding.

    prefix (16 bytes)   magic u32 · version u8 · id u8 · flags u16 · header length u32 · body length u32
    header              the fields of the frame in the order of its class, big-endian, then its markers if it has any,
                        then, with CHECKSUM_FLAG, 8 bytes: CRC-32 of the body, CRC-32 of prefix and header up to here
    body                opaque bytes: an Arrow message, a schema, UTF-8 text

The header has a checksum of its own, so that no field is used, no credit charged and no memory allocated before the
header is verified. Other flags are zero in version 1. The frames themselves are declared in frames.py.

`crc32`, also the checksum of stored batches, is the CRC-32 of IEEE 802.3, as in zlib, computed by zlib-ng with the
processor's carry-less multiplication, three to four times as fast. Each byte that leaves a host or is stored is
checksummed twice.
"""

import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, Self, TypeVar

import msgspec
from zlib_ng.zlib_ng import crc32

from headrace.core.elements import (
    LatencyMarker,
    PlacedMarker,
    StreamMarker,
    Watermark,
    WatermarkStatus,
)
from headrace.core.ids import OperatorId
from headrace.network.errors import CorruptFrameError, ProtocolError, UnknownFrameError

__all__ = ["crc32"]

MAGIC: Final = 0x48445257  # "HDRW"
VERSION: Final = 1
PREFIX: Final = struct.Struct("!IBBHII")
HEADER_BYTES_MAX: Final = 64 * 1024
CHECKSUM_FLAG: Final = 1
"""Bit of the flags: the header ends with CHECKSUMS."""
CHECKSUMS: Final = struct.Struct("!II")
_FLAGS_OFFSET: Final = 6
_CHECKSUM: Final = struct.Struct("!I")
_MARKER: Final = struct.Struct("!IBq")
_ORIGIN: Final = struct.Struct("!16sI")
_WATERMARK, _STATUS, _LATENCY = 0, 1, 3
Body = Any
"""A bytes-like object (bytes, memoryview or pyarrow.Buffer), or BodyParts for sending."""
F = TypeVar("F", bound="Frame")

_FRAMES: dict[int, "type[Frame]"] = {}
_RESERVED: dict[int, str] = {}


class BodyParts(msgspec.Struct, frozen=True, gc=False):
    """A body of `size_bytes` in several bytes-like pieces, which need not be copied into one."""

    parts: tuple[Any, ...]
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Base of all frames. The last fields may be `markers` and `body`, in this order."""

    FRAME_ID: ClassVar[int]
    LAYOUT: ClassVar[struct.Struct]
    HAS_MARKERS: ClassVar[bool] = False
    HAS_BODY: ClassVar[bool] = False
    HAS_CHECKSUM: ClassVar[bool] = False
    """True if the frame carries checksums when both sides want them."""

    def header_values(self) -> tuple[Any, ...]:
        """Return the values of `LAYOUT`, in order."""
        raise NotImplementedError

    @classmethod
    def from_header(
        cls, values: tuple[Any, ...], markers: tuple[PlacedMarker, ...], body: Body
    ) -> Self:
        """Rebuild the frame from the values of `LAYOUT`."""
        raise NotImplementedError


def frame(*, id: int, layout: str, has_checksum: bool = False) -> Callable[[type[F]], type[F]]:
    """Register a frame class: `layout` lists its header fields, except `markers` and `body`, for `struct`."""

    def decorate(cls: type[F]) -> type[F]:
        assert id not in _FRAMES and id not in _RESERVED, f"frame id {id} is declared twice"
        names = list(cls.__struct_fields__)
        cls.FRAME_ID, cls.LAYOUT = id, struct.Struct(layout)
        cls.HAS_MARKERS, cls.HAS_BODY = "markers" in names, "body" in names
        cls.HAS_CHECKSUM = has_checksum
        if "header_values" not in cls.__dict__:
            _add_plain_codec(cls, [name for name in names if name not in ("markers", "body")])
        _FRAMES[id] = cls
        return cls

    return decorate


def _add_plain_codec(cls: type[Frame], names: list[str]) -> None:
    """Set the codec of a class whose fields are struct values themselves."""
    fields = attrgetter(*names) if len(names) > 1 else None

    def header_values(self: Frame) -> tuple[Any, ...]:
        return fields(self) if fields is not None else tuple(getattr(self, name) for name in names)

    def from_header(
        cls: type[Any], values: tuple[Any, ...], markers: tuple[PlacedMarker, ...], body: Body
    ) -> Any:
        if cls.HAS_MARKERS:
            return cls(*values, markers, body)
        return cls(*values, body) if cls.HAS_BODY else cls(*values)

    cls.header_values = header_values  # type: ignore[method-assign]
    cls.from_header = classmethod(from_header)  # type: ignore[method-assign,assignment]


def reserve(frame_id: int, name: str) -> None:
    """Reserve the id of a frame that nobody sends.

    No other frame may use it, and a received one is refused by name.
    """
    assert frame_id not in _FRAMES and frame_id not in _RESERVED, f"frame id {frame_id} is taken"
    _RESERVED[frame_id] = name


def reserved_frames() -> dict[int, str]:
    """Return the reserved ids with the names of their frames."""
    return dict(_RESERVED)


def declared_frames() -> list[type[Frame]]:
    """Return all frame classes, ordered by id."""
    return [_FRAMES[key] for key in sorted(_FRAMES)]


def encode(message: Frame, *, with_checksum: bool = False) -> list[Body]:
    """Return the frame as buffers to write in order: prefix with header, then the body if any.

    `with_checksum` may only be set for frames with `HAS_CHECKSUM`.
    """
    cls = type(message)
    header = cls.LAYOUT.pack(*message.header_values())
    if cls.HAS_MARKERS:
        header += encode_markers(message.markers)  # type: ignore[attr-defined]
    body: Body = message.body if cls.HAS_BODY else b""  # type: ignore[attr-defined]
    parts = body.parts if isinstance(body, BodyParts) else (body,) if len(body) else ()
    if with_checksum:
        return [_checked_start(cls, header, parts, len(body)), *parts]
    return [PREFIX.pack(MAGIC, VERSION, cls.FRAME_ID, 0, len(header), len(body)) + header, *parts]


def _checked_start(
    cls: type[Frame], header: bytes, parts: tuple[Any, ...], body_length: int
) -> bytes:
    assert cls.HAS_CHECKSUM
    body_checksum = 0
    for part in parts:
        body_checksum = crc32(part, body_checksum)
    header_length = len(header) + CHECKSUMS.size
    prefix = PREFIX.pack(MAGIC, VERSION, cls.FRAME_ID, CHECKSUM_FLAG, header_length, body_length)
    start = prefix + header + _CHECKSUM.pack(body_checksum)
    return start + _CHECKSUM.pack(crc32(start))


def decode_prefix(data: Any, offset: int, peer: str) -> tuple[type[Frame], int, int]:
    """Return frame class, header length and body length.

    UnknownFrameError if id, version or magic number is unsupported.
    """
    magic, version, frame_id, flags, header_length, body_length = PREFIX.unpack_from(data, offset)
    if magic != MAGIC:
        raise UnknownFrameError(peer, f"the bytes are not a frame (magic {magic:#010x})")
    if version != VERSION:
        raise UnknownFrameError(
            peer, f"a frame has version {version}, but this side speaks {VERSION}"
        )
    cls = _FRAMES.get(frame_id)
    if cls is None:
        name = _RESERVED.get(frame_id)
        what = f"unknown id {frame_id}" if name is None else f"reserved id {frame_id} ({name})"
        raise UnknownFrameError(peer, f"a frame has the {what}")
    if flags & ~CHECKSUM_FLAG or (flags and not cls.HAS_CHECKSUM):
        raise ProtocolError(peer, f"a frame of type {cls.__name__} has unknown flags {flags:#06x}")
    least = cls.LAYOUT.size + (CHECKSUMS.size if flags else 0)
    if header_length > HEADER_BYTES_MAX or header_length < least:
        raise ProtocolError(
            peer,
            f"a frame of type {cls.__name__} has an invalid header length of {header_length} bytes",
        )
    if body_length and not cls.HAS_BODY:
        raise ProtocolError(
            peer,
            f"a frame of type {cls.__name__} has an invalid body length of {body_length} bytes",
        )
    return cls, header_length, body_length


def verify_header(cls: type[Frame], data: Any, offset: int, length: int, peer: str) -> int | None:
    """Check the header at `offset`, which follows its prefix; return the checksum that `verify_body` needs.

    Returns None if the frame carries no checksums. CorruptFrameError if the checksum is wrong.
    """
    if not _is_checksummed(data, offset):
        return None
    end = offset + length - _CHECKSUM.size
    with memoryview(data) as view:
        actual = crc32(view[offset - PREFIX.size : end])
    body_checksum, expected = CHECKSUMS.unpack_from(data, end - _CHECKSUM.size)
    if actual != expected:
        raise _corrupt(peer, f"header of a frame of type {cls.__name__}", expected, actual)
    return body_checksum


def verify_body(cls: type[Frame], body: Any, expected: int, peer: str) -> None:
    """Check a body against the checksum in its header. CorruptFrameError if it differs."""
    actual = crc32(body)
    if actual != expected:
        raise _corrupt(peer, f"body of a frame of type {cls.__name__}", expected, actual)


def _corrupt(peer: str, what: str, expected: int, actual: int) -> CorruptFrameError:
    sums = f"its checksum is {actual:#010x} instead of {expected:#010x}"
    return CorruptFrameError(peer, f"the {what} was changed in transit: {sums}")


def _is_checksummed(data: Any, header_offset: int) -> bool:
    return bool(data[header_offset - PREFIX.size + _FLAGS_OFFSET + 1] & CHECKSUM_FLAG)


def decode_header(cls: type[F], data: Any, offset: int, length: int, body: Body, peer: str) -> F:
    """Rebuild a frame from its header at `offset`, which follows its prefix, and its body.

    Checksums are checked by `verify_header` and `verify_body`.
    """
    if _is_checksummed(data, offset):
        length -= CHECKSUMS.size
    values = cls.LAYOUT.unpack_from(data, offset)
    size = cls.LAYOUT.size
    markers: tuple[PlacedMarker, ...] = ()
    if cls.HAS_MARKERS:
        markers = decode_markers(data, offset + size, length - size, peer)
    elif length != size:
        raise ProtocolError(
            peer, f"a frame of type {cls.__name__} is {length - size} bytes too long"
        )
    try:
        return cls.from_header(values, markers, body)
    except (ValueError, UnicodeDecodeError) as error:
        raise ProtocolError(
            peer, f"a frame of type {cls.__name__} has invalid values: {error}"
        ) from error


def attach_body(header: Frame, body: Body) -> None:
    """Set the body of a frame that was decoded before its body had arrived."""
    msgspec.structs.force_setattr(header, "body", body)


def add_marker(placed: list[PlacedMarker], added: PlacedMarker) -> None:
    """Append a marker; of several watermarks without a row between them only the last one is kept."""
    if placed and isinstance(added.marker, Watermark):
        last = placed[-1]
        if last.row_offset == added.row_offset and isinstance(last.marker, Watermark):
            placed[-1] = added
            return
    placed.append(added)


def encode_markers(markers: Sequence[PlacedMarker]) -> bytes:
    """Return 13 bytes per marker: row offset u32, kind u8, value i64.

    A latency marker has 20 more: the source's operator id, and the index of its subtask, u32.
    """
    if not markers:
        return b""
    parts: list[bytes] = []
    for placed in markers:
        match placed.marker:
            case Watermark(timestamp_ms):
                parts.append(_MARKER.pack(placed.row_offset, _WATERMARK, timestamp_ms))
            case WatermarkStatus(is_idle):
                parts.append(_MARKER.pack(placed.row_offset, _STATUS, int(is_idle)))
            case LatencyMarker(marked_time_ms, source_id, subtask_index):
                parts.append(_MARKER.pack(placed.row_offset, _LATENCY, marked_time_ms))
                parts.append(_ORIGIN.pack(source_id.value, subtask_index))
    return b"".join(parts)


def decode_markers(data: Any, offset: int, length: int, peer: str) -> tuple[PlacedMarker, ...]:
    """Return the markers that `encode_markers` has encoded. ProtocolError if they are invalid."""
    if not length:
        return ()
    end = offset + length
    markers: list[PlacedMarker] = []
    while offset < end:
        if end - offset < _MARKER.size:
            raise ProtocolError(peer, f"the markers have an invalid length of {length} bytes")
        row_offset, kind, value = _MARKER.unpack_from(data, offset)
        offset += _MARKER.size
        marker: StreamMarker
        if kind == _WATERMARK:
            marker = Watermark(value)
        elif kind == _STATUS:
            marker = WatermarkStatus(bool(value))
        elif kind == _LATENCY:
            if end - offset < _ORIGIN.size:
                raise ProtocolError(peer, f"the markers have an invalid length of {length} bytes")
            source_id, subtask_index = _ORIGIN.unpack_from(data, offset)
            offset += _ORIGIN.size
            marker = LatencyMarker(value, OperatorId(source_id), subtask_index)
        else:
            raise ProtocolError(peer, f"a marker has the unknown kind {kind}")
        markers.append(PlacedMarker(row_offset, marker))
    return tuple(markers)

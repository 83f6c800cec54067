"""The marker vector in the header of a data frame: what stands between the rows of its batch."""

import struct
from collections.abc import Sequence
from typing import Any, Final

from headrace.core.elements import PlacedMarker, StreamMarker, Watermark, WatermarkStatus
from headrace.network.errors import ProtocolError

_MARKER: Final = struct.Struct("!IBq")
_WATERMARK, _STATUS = 0, 1


def add_marker(placed: list[PlacedMarker], added: PlacedMarker) -> None:
    """Put a marker behind those before it; of watermarks with no row between them the last one counts."""
    if placed and isinstance(added.marker, Watermark):
        last = placed[-1]
        if last.row_offset == added.row_offset and isinstance(last.marker, Watermark):
            placed[-1] = added
            return
    placed.append(added)


def encode_markers(markers: Sequence[PlacedMarker]) -> bytes:
    """Return 13 bytes per marker: row offset u32, kind u8, value i64."""
    if not markers:
        return b""
    parts: list[bytes] = []
    for placed in markers:
        match placed.marker:
            case Watermark(timestamp_ms):
                parts.append(_MARKER.pack(placed.row_offset, _WATERMARK, timestamp_ms))
            case WatermarkStatus(is_idle):
                parts.append(_MARKER.pack(placed.row_offset, _STATUS, int(is_idle)))
    return b"".join(parts)


def decode_markers(data: Any, offset: int, length: int, peer: str) -> tuple[PlacedMarker, ...]:
    """Inverse of `encode_markers`."""
    if not length:
        return ()
    count, rest = divmod(length, _MARKER.size)
    if rest:
        raise ProtocolError(peer, f"a marker vector of {length} bytes")
    markers: list[PlacedMarker] = []
    for index in range(count):
        row_offset, kind, value = _MARKER.unpack_from(data, offset + index * _MARKER.size)
        marker: StreamMarker
        if kind == _WATERMARK:
            marker = Watermark(value)
        elif kind == _STATUS:
            marker = WatermarkStatus(bool(value))
        else:
            raise ProtocolError(peer, f"a marker of the unknown kind {kind}")
        markers.append(PlacedMarker(row_offset, marker))
    return tuple(markers)

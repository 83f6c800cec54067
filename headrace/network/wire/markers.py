"""The marker vector in the header of a data frame: what stands between the rows of its batch."""

import struct
from collections.abc import Sequence
from typing import Any, Final

from headrace.core.elements import (
    LatencyMarker,
    PlacedMarker,
    StreamMarker,
    Watermark,
    WatermarkStatus,
)
from headrace.core.ids import OperatorId
from headrace.network.errors import ProtocolError

_MARKER: Final = struct.Struct("!IBq")
_ORIGIN: Final = struct.Struct("!16sI")
_WATERMARK, _STATUS, _LATENCY = 0, 1, 3


def add_marker(placed: list[PlacedMarker], added: PlacedMarker) -> None:
    """Put a marker behind those before it; of watermarks with no row between them the last one counts."""
    if placed and isinstance(added.marker, Watermark):
        last = placed[-1]
        if last.row_offset == added.row_offset and isinstance(last.marker, Watermark):
            placed[-1] = added
            return
    placed.append(added)


def encode_markers(markers: Sequence[PlacedMarker]) -> bytes:
    """Return 13 bytes per marker: row offset u32, kind u8, value i64.

    Behind those of a latency marker stand 20 more: the source's operator id, and the index of its subtask, u32.
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
    """Inverse of `encode_markers`."""
    if not length:
        return ()
    end = offset + length
    markers: list[PlacedMarker] = []
    while offset < end:
        if end - offset < _MARKER.size:
            raise ProtocolError(peer, f"a marker vector of {length} bytes")
        row_offset, kind, value = _MARKER.unpack_from(data, offset)
        offset += _MARKER.size
        marker: StreamMarker
        if kind == _WATERMARK:
            marker = Watermark(value)
        elif kind == _STATUS:
            marker = WatermarkStatus(bool(value))
        elif kind == _LATENCY:
            if end - offset < _ORIGIN.size:
                raise ProtocolError(peer, f"a marker vector of {length} bytes")
            source_id, subtask_index = _ORIGIN.unpack_from(data, offset)
            offset += _ORIGIN.size
            marker = LatencyMarker(value, OperatorId(source_id), subtask_index)
        else:
            raise ProtocolError(peer, f"a marker of the unknown kind {kind}")
        markers.append(PlacedMarker(row_offset, marker))
    return tuple(markers)

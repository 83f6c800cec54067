"""What an aligned source and its coordinator say to each other: reports and bounds beside the source's own events.

    event   one byte (0: the source's own, 1: alignment), then the source's event, or a msgpack struct of this file

Only sources whose strategy asks for alignment wrap their events so; whether they do is known on both sides from the
name of the coordinator. Source: Flink ReportedWatermarkEvent, WatermarkAlignmentEvent.

Collect events: a collected batch as it travels, cut into pieces that fit into messages however large a row is.

    event   one byte (1: last piece of its batch, 0: more follow), then bytes of the batch's Arrow IPC stream
    mark    one byte (2), then a checkpoint's id, 8 bytes big-endian: what came before belongs to that checkpoint
    end     an event without bytes: nothing follows from this subtask

The pieces of one batch follow each other in the events of its subtask; pieces of other subtasks may stand between.
"""

import enum
from collections.abc import Iterator
from typing import Any, Final

import msgspec

ALIGNED_COORDINATOR: Final = "aligned"
"""Name of the coordinator that aligns a source, with the source's own inside it."""

_OWN: Final = b"\x00"
_ALIGNMENT: Final = b"\x01"


class ReaderProgress(enum.Enum):
    """Whether a reader's watermark counts. States of their own: no timestamp has to mean them."""

    ACTIVE = 0
    IDLE = 1
    FINISHED = 2


class WatermarkReported(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """Reader → coordinator: how far it is. Answered with a WatermarkBound unless it has finished."""

    progress: ReaderProgress
    watermark_ms: int


class WatermarkBound(msgspec.Struct, frozen=True, array_like=True, tag="bound"):
    """Coordinator → reader: read on while your watermark is not above `max_watermark_ms`; None: no bound."""

    max_watermark_ms: int | None


AlignmentEvent = WatermarkReported | WatermarkBound


class AlignedSource(msgspec.Struct, frozen=True, array_like=True):
    """Payload of the coordinator. `own_coordinator`: name and payload of the source's own, or None without one."""

    group: str
    max_drift_ms: int
    own_coordinator: tuple[str, bytes] | None


_EVENT: Final = msgspec.msgpack.Decoder[Any](AlignmentEvent)
_SOURCE: Final = msgspec.msgpack.Decoder(AlignedSource)


def encode_alignment_event(event: AlignmentEvent) -> bytes:
    """Return the bytes of an event of this file."""
    return _ALIGNMENT + msgspec.msgpack.encode(event)


def wrap_own_event(payload: bytes) -> bytes:
    """Return the bytes that carry an event of the source's own."""
    return _OWN + payload


def decode_aligned_event(payload: bytes) -> AlignmentEvent | bytes:
    """Return an event of this file, or the bytes of one of the source's own; msgspec.ValidationError for neither."""
    match payload[:1]:
        case b"\x00":
            return payload[1:]
        case b"\x01":
            return _EVENT.decode(payload[1:])
        case other:
            raise msgspec.ValidationError(
                f"an event of an aligned source does not begin with {other!r}"
            )


def encode_aligned_source(source: AlignedSource) -> bytes:
    """Return the coordinator's payload."""
    return msgspec.msgpack.encode(source)


def decode_aligned_source(payload: bytes) -> AlignedSource:
    """Read the coordinator's payload; msgspec.ValidationError."""
    return _SOURCE.decode(payload)


PIECE_SIZE_MAX: Final = 1 << 20
END: Final = b""
_MORE: Final = b"\x00"
_LAST: Final = b"\x01"
_MARK: Final = b"\x02"


def cut(batch: bytes, size_max: int = PIECE_SIZE_MAX) -> Iterator[bytes]:
    """The events of one batch, each with at most `size_max` bytes of it."""
    for start in range(0, len(batch), size_max):
        end = start + size_max
        yield (_LAST if end >= len(batch) else _MORE) + batch[start:end]


def mark_of(checkpoint_id: int) -> bytes:
    """The event that stands before a checkpoint's barrier."""
    return _MARK + checkpoint_id.to_bytes(8, "big")


def marked_checkpoint(event: bytes) -> int | None:
    """The checkpoint that a mark names; None for other events."""
    return int.from_bytes(event[1:], "big") if event[:1] == _MARK else None


def is_last_piece(event: bytes) -> bool:
    """Whether a batch is complete with this event."""
    return event[:1] == _LAST


def piece_of(event: bytes) -> bytes:
    """The bytes of the batch."""
    return event[1:]

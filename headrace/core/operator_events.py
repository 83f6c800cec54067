"""OperatorEvents: messages between the subtasks of an operator and its coordinator in the JobMaster.

Two of Headrace's own coordinators need more events than a source and its enumerator exchange.

Watermark alignment: a source whose strategy uses alignment wraps its own events, and adds reports and bounds.

    event   one byte (0: the source's own, 1: alignment), then the source's event, or a msgpack struct of this file

Both sides know from the name of the coordinator whether events are wrapped.
Source: Flink ReportedWatermarkEvent, WatermarkAlignmentEvent.

Collect sink: batches are cut into pieces that fit into messages, however large a row is.

    event   one byte (1: last piece of its batch, 0: more follow), then bytes of the batch's Arrow IPC stream
    mark    one byte (2), then a checkpoint's id, 8 bytes big-endian: all events before belong to that checkpoint
    end     an event without bytes: nothing follows from this subtask

The pieces of one batch follow each other in the events of its subtask; pieces of other subtasks may stand between.
"""

import enum
from collections.abc import Iterator
from typing import Any, Final

import msgspec

ALIGNED_COORDINATOR: Final = "aligned"
"""Name of the coordinator that aligns a source, and contains the coordinator of the source."""

_OWN: Final = b"\x00"
_ALIGNMENT: Final = b"\x01"

PIECE_SIZE_MAX: Final = 1 << 20
END: Final = b""
_MORE: Final = b"\x00"
_LAST: Final = b"\x01"
_MARK: Final = b"\x02"


class ReaderProgress(enum.Enum):
    """States of a reader. IDLE and FINISHED are separate states, so that no timestamp has to represent them."""

    ACTIVE = 0
    IDLE = 1
    FINISHED = 2


class WatermarkReported(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """Reader → coordinator: the progress of the reader. A WatermarkBound answers it, unless the reader has finished."""

    progress: ReaderProgress
    watermark_ms: int


class WatermarkBound(msgspec.Struct, frozen=True, array_like=True, tag="bound"):
    """Coordinator → reader: read while the watermark is not above `max_watermark_ms`; None means no limit."""

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
    """Return the bytes that carry an event of the source itself."""
    return _OWN + payload


def decode_aligned_event(payload: bytes) -> AlignmentEvent | bytes:
    """Return an event of this file, or the bytes of an event of the source itself.

    Raises msgspec.ValidationError for neither.
    """
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
    """Return the coordinator's payload, decoded. Raises msgspec.ValidationError."""
    return _SOURCE.decode(payload)


def cut(batch: bytes, size_max: int = PIECE_SIZE_MAX) -> Iterator[bytes]:
    """Yield the events of one batch, each with at most `size_max` bytes of it."""
    for start in range(0, len(batch), size_max):
        end = start + size_max
        yield (_LAST if end >= len(batch) else _MORE) + batch[start:end]


def mark_of(checkpoint_id: int) -> bytes:
    """Return the event that precedes a checkpoint's barrier."""
    return _MARK + checkpoint_id.to_bytes(8, "big")


def marked_checkpoint(event: bytes) -> int | None:
    """Return the checkpoint that a mark names, or None for other events."""
    return int.from_bytes(event[1:], "big") if event[:1] == _MARK else None


def is_last_piece(event: bytes) -> bool:
    """Return whether a batch is complete with this event."""
    return event[:1] == _LAST


def piece_of(event: bytes) -> bytes:
    """Return the bytes of the batch that an event carries."""
    return event[1:]

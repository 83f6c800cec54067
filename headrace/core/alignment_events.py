"""What an aligned source and its coordinator say to each other: reports and bounds beside the source's own events.

    event   one byte (0: the source's own, 1: alignment), then the source's event, or a msgpack struct of this file

Only sources whose strategy asks for alignment wrap their events so; whether they do is known on both sides from the
name of the coordinator. Source: Flink ReportedWatermarkEvent, WatermarkAlignmentEvent.
"""

import enum
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

"""Collect events: a collected batch as it travels, cut into pieces that fit into messages however large a row is.

    event   one byte (1: last piece of its batch, 0: more follow), then bytes of the batch's Arrow IPC stream
    mark    one byte (2), then a checkpoint's id, 8 bytes big-endian: what came before belongs to that checkpoint
    end     an event without bytes: nothing follows from this subtask

The pieces of one batch follow each other in the events of its subtask; pieces of other subtasks may stand between.
"""

from collections.abc import Iterator
from typing import Final

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

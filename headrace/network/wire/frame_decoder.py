"""FrameDecoder: decodes frames from a stream of bytes, however it is cut. Without sockets: callers fill its buffers.

Small frames are collected in a staging buffer and copied out of it. A large body is received directly into a segment,
or into memory of its own, which the Arrow batch then keeps, so that it is never copied. A little room behind it takes
the header of the next frame, so that a stream of large bodies needs one read for each. While bodies are large, little
is offered for staging; otherwise the head of each body would be copied.
"""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from headrace.network.errors import CorruptFrameError, ProtocolError
from headrace.network.memory.segments import Segment
from headrace.network.wire.framing import (
    HEADER_BYTES_MAX,
    PREFIX,
    Frame,
    attach_body,
    decode_header,
    decode_prefix,
    verify_body,
    verify_header,
)

# A body of at least this many bytes is received in place.
DIRECT_BYTES: Final = 16 * 1024
# Holds any header and any body that is not received in place, so it never has to grow.
STAGING_BYTES: Final = PREFIX.size + HEADER_BYTES_MAX + DIRECT_BYTES
# Room offered behind and after a large body: for control frames and the next header, not for the next body.
_LEAN_STAGING_BYTES: Final = 512

BodyCheck = Callable[[type[Frame], Frame, int], Segment | None]
"""Decides on memory for a body from the frame class, the frame without its body, and the body length.

Returns the segment for a large body, or None for memory of its own. May raise to refuse the frame.
"""


def refuse_large_bodies(limit: int, peer: str) -> BodyCheck:
    """Return a check that refuses bodies above `limit` bytes."""

    def check(cls: type[Frame], header: Frame, body_length: int) -> None:
        if body_length > limit:
            raise ProtocolError(
                peer,
                f"a frame of type {cls.__name__} has a body of {body_length} bytes, but at most {limit} are allowed",
            )

    return check


class FrameDecoder:
    """Decodes the frames of one connection: read into `buffer()`, then `received(n)` returns the completed frames.

    ProtocolError if the bytes are invalid, or an error of `check_body`; the decoder cannot be used afterwards.
    """

    def __init__(self, peer: str, check_body: BodyCheck, *, needs_checksums: bool = False) -> None:
        self.peer = peer
        self._needs_checksums = needs_checksums
        self._body_checksum: int | None = None
        self._check_body = check_body
        self._staging = bytearray(STAGING_BYTES)
        self._view = memoryview(self._staging)
        self._start = 0  # first byte of the staging buffer that is not yet part of a frame
        self._end = 0
        self._is_lean = False
        self._body: memoryview | None = None  # a large body on its way
        self._body_buffer: Any = None
        self._segment: Segment | None = None
        self._body_length = 0
        self._body_filled = 0
        self._pending: Frame | None = None

    def buffer(self) -> memoryview:
        """Return writable memory (at least one byte) for the next read."""
        if self._body is not None:
            return self._body[self._body_filled :]
        limit = len(self._staging)
        if self._start == self._end:
            self._start = self._end = 0
            if self._is_lean:
                limit = _LEAN_STAGING_BYTES
        elif self._end == limit:
            self._move_to_front()
        return self._view[self._end : limit]

    def received(self, byte_count: int) -> list[Frame]:
        """Process `byte_count` bytes written to `buffer()`; return the frames that they complete."""
        frames: list[Frame] = []
        if self._body is not None:
            self._body_filled += byte_count
            if self._body_filled < self._body_length:
                return frames
            frames.append(self._finish_body())
        else:
            self._end += byte_count
        while self._body is None:
            frame = self._next_frame()
            if frame is None:
                break
            frames.append(frame)
        return frames

    def _move_to_front(self) -> None:
        held = self._end - self._start
        self._staging[:held] = self._staging[self._start : self._end]
        self._start, self._end = 0, held

    def _next_frame(self) -> Frame | None:
        available = self._end - self._start
        if available < PREFIX.size:
            return None
        cls, header_length, body_length = decode_prefix(self._staging, self._start, self.peer)
        header_start = self._start + PREFIX.size
        if available < PREFIX.size + header_length:
            return None
        checksum = self._verify_header(cls, header_start, header_length)
        body_start = header_start + header_length
        present = min(self._end - body_start, body_length)
        if present == body_length:
            self._start = body_start + body_length
            self._is_lean = body_length >= DIRECT_BYTES
            head = self._view[body_start : self._start]
            frame = decode_header(cls, self._staging, header_start, header_length, b"", self.peer)
            if checksum is not None:
                verify_body(cls, head, checksum, self.peer)
            if body_length:
                segment = self._check_body(cls, frame, body_length)
                attach_body(frame, bytes(head) if segment is None else _copied_into(segment, head))
            return frame
        if body_length < DIRECT_BYTES:
            return None
        header = decode_header(cls, self._staging, header_start, header_length, b"", self.peer)
        self._segment = self._check_body(cls, header, body_length)
        self._body_checksum = checksum
        self._begin_body(header, self._view[body_start : body_start + present], body_length)
        return None

    def _verify_header(self, cls: type[Frame], start: int, length: int) -> int | None:
        checksum = verify_header(cls, self._staging, start, length, self.peer)
        if checksum is None and cls.HAS_CHECKSUM and self._needs_checksums:
            what = f"a frame of type {cls.__name__} lacks the checksum that both sides agreed on"
            raise CorruptFrameError(self.peer, what)
        return checksum

    def _begin_body(self, header: Frame, head: memoryview, body_length: int) -> None:
        self._pending = header
        if self._segment is not None:
            self._body = self._segment.place(head, _LEAN_STAGING_BYTES)
        else:
            self._body_buffer = pa.allocate_buffer(body_length + _LEAN_STAGING_BYTES)
            self._body = memoryview(self._body_buffer).cast("B")
        self._body[: len(head)] = head
        self._body_filled = len(head)
        self._body_length = body_length
        self._start = self._end = 0
        self._is_lean = True

    def _finish_body(self) -> Frame:
        frame, body, length = self._pending, self._body, self._body_length
        assert frame is not None and body is not None
        if self._body_checksum is not None:
            verify_body(type(frame), body[:length], self._body_checksum, self.peer)
        # The bytes behind the body begin the next frame.
        self._end = self._body_filled - length
        self._view[: self._end] = body[length : self._body_filled]
        if self._segment is not None:
            attach_body(frame, self._segment.buffer())
        else:
            attach_body(frame, self._body_buffer.slice(0, length))
        self._body, self._body_buffer, self._pending, self._segment = None, None, None, None
        return frame


def _copied_into(segment: Segment, body: memoryview) -> pa.Buffer:
    place = segment.place(body, 0)
    place[: len(body)] = body
    return segment.buffer()

"""FrameSplitter: splits a stream of bytes into frames and keeps the bytes of each, for observers of a connection.

Endpoints read with FrameDecoder, which keeps no bytes and copies no bodies. The trace and the fault proxy need the
bytes of each frame, and can afford the copy.
"""

from typing import Final

import msgspec

from headrace.network.errors import ProtocolError
from headrace.network.wire.frames import Hello, Proof
from headrace.network.wire.framing import (
    MAGIC,
    PREFIX,
    Frame,
    decode_header,
    decode_prefix,
)

BODY_BYTES_MAX: Final = 1 << 30
"""Largest body of a valid frame in bytes; more means that a prefix was read at the wrong offset."""

_TLS_RECORD: Final = b"\x16\x03"
_MAGIC_BYTES: Final = MAGIC.to_bytes(4, "big")


class EncryptedStreamError(ProtocolError):
    """The connection uses TLS, so that an observer cannot read its frames."""

    def __init__(self, peer: str) -> None:
        super().__init__(
            peer,
            "this is a TLS connection, and its frames cannot be read from outside; use a Unix socket, or set "
            "'security.ssl.internal.enabled' to false where every process is on one host",
        )


class SplitFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame, its bytes, and its offset in the stream of its direction."""

    frame: Frame
    raw: bytes
    offset: int

    @property
    def is_opening(self) -> bool:
        """Return whether the frame belongs to the handshake, which covers its bytes."""
        return isinstance(self.frame, Hello | Proof)


class FrameSplitter:
    """Splits one direction of one connection. `peer` names the sender, for messages."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._held = bytearray()
        self._offset = 0

    @property
    def rest(self) -> bytes:
        """Bytes of an incomplete frame."""
        return bytes(self._held)

    def cut(self, data: bytes) -> list[SplitFrame]:
        """Process bytes and return the frames that they complete. The splitter is unusable after an error.

        ProtocolError if the bytes are not frames; EncryptedStreamError if they are TLS.
        """
        if self._offset == 0:
            self._refuse_foreign((self._held + data)[:4])
        self._held += data
        frames: list[SplitFrame] = []
        while (found := self._next()) is not None:
            frames.append(found)
        return frames

    def _refuse_foreign(self, start: bytes | bytearray) -> None:
        if start.startswith(_TLS_RECORD):
            raise EncryptedStreamError(self._peer)
        if not _MAGIC_BYTES.startswith(start) and not _TLS_RECORD.startswith(start):
            raise ProtocolError(self._peer, "the stream does not begin with a frame")

    def _next(self) -> SplitFrame | None:
        held = self._held
        if len(held) < PREFIX.size:
            return None
        cls, header_length, body_length = decode_prefix(held, 0, self._peer)
        if body_length > BODY_BYTES_MAX:
            raise ProtocolError(
                self._peer,
                f"a frame of type {cls.__name__} has a body of {body_length} bytes, which is too large",
            )
        body_start = PREFIX.size + header_length
        length = body_start + body_length
        if len(held) < length:
            return None
        raw = bytes(held[:length])
        del held[:length]
        offset, self._offset = self._offset, self._offset + length
        frame = decode_header(cls, raw, PREFIX.size, header_length, raw[body_start:], self._peer)
        return SplitFrame(frame, raw, offset)

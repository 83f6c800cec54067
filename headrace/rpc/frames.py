"""Messages as frames on a byte stream: a length (u32, big endian), then that many bytes. Pure."""

import struct
from typing import Final

from headrace.rpc.errors import OversizeFrameError

LENGTH: Final = struct.Struct("!I")


class FrameDecoder:
    """Cuts a byte stream into frames; holds at most one incomplete frame of `size_max` bytes."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._received = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes and return the frames that they complete; OversizeFrameError ends the stream."""
        self._received += data
        frames: list[bytes] = []
        start = 0
        while len(self._received) - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._received, start)
            if size > self._size_max:
                raise OversizeFrameError(size, self._size_max)
            end = start + LENGTH.size + size
            if len(self._received) < end:
                break
            frames.append(bytes(self._received[start + LENGTH.size : end]))
            start = end
        del self._received[:start]
        return frames

"""LineBlocks: reads a range of a file in blocks of whole lines, as bytes, with the position after each block.

A line belongs to the range in which it begins, and is read by it to its end. Positions count bytes of the content. To
reach a position in a compressed file, the decompressed bytes before it are read again and dropped.
"""

import re
from pathlib import PurePosixPath
from typing import Any, Final

from headrace.connectors.files.formats.splits import FileSplit

CHUNK_SIZE_BYTES: Final = 256 * 1024
_NEWLINE: Final = b"\n"
_OF_DECOMPRESSION: Final = re.compile("compress|inflate", re.IGNORECASE)
"""Texts in errors of Arrow's codecs that errors of disks and stores do not contain."""


class DecompressionError(OSError):
    """Raised if a file is not compressed as its suffix says, or is truncated.

    Not a HeadraceError: the reading operator adds its name and the user's line.
    """

    def __init__(self, name: str, reason: str) -> None:
        suffix = PurePosixPath(name).suffix
        super().__init__(
            f"the file '{name}' cannot be decompressed as {suffix}: {reason}; it is damaged, incomplete, or not a "
            f"{suffix} file"
        )


class NamedStream:
    """The content of a file that may be compressed. Its decompression errors name the file; Arrow's do not."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._name = name

    def read(self, size: int) -> bytes:
        """Return the next bytes, none at the end. DecompressionError."""
        try:
            return self._stream.read(size)
        except OSError as error:
            if not _OF_DECOMPRESSION.search(str(error)):
                raise
            raise DecompressionError(self._name, str(error)) from error

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class LineBlocks:
    """Splits `stream`, which is at `position`, into blocks.

    `end`: lines that begin before it belong to this range, None for the end of the stream. `size`: where to stop
    reading, even if the file has grown. With `skips_line` the first line, or the rest of it, belongs to another range.
    """

    def __init__(
        self, stream: Any, position: int, end: int | None, size: int | None, *, skips_line: bool
    ) -> None:
        self._stream = stream
        self._end = end
        self._size = size
        self._skips_line = skips_line
        self._rest = b""
        # A restored range may be positioned after its last line, if its end was not yet noticed.
        self._has_ended = end is not None and position >= end
        self._position = position

    @property
    def position(self) -> int | None:
        """Offset of the next line of this range; None until the previous range's line has ended."""
        return None if self._skips_line else self._position

    def next_block(self) -> bytes | None:
        """Return the lines that end in the next chunk (maybe none), or None after the last one."""
        if self._has_ended:
            return None
        chunk = self._read()
        data = self._rest + chunk
        cut = self._cut(data, is_last=not chunk)
        block, self._rest = data[:cut], data[cut:]
        self._position += cut
        self._has_ended = not chunk or (self._end is not None and self._position >= self._end)
        if self._skips_line and block:
            self._skips_line = False
            first = block.find(_NEWLINE)
            block = b"" if first < 0 else block[first + 1 :]
        return block

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def _read(self) -> bytes:
        wanted = CHUNK_SIZE_BYTES
        if self._size is not None:
            wanted = min(wanted, self._size - self._position - len(self._rest))
        return self._stream.read(wanted)

    def _cut(self, data: bytes, *, is_last: bool) -> int:
        if self._end is not None and self._position + len(data) >= self._end:
            last_line = data.find(_NEWLINE, max(0, self._end - 1 - self._position))
            if last_line >= 0:
                return last_line + 1
        return len(data) if is_last else data.rfind(_NEWLINE) + 1


def open_line_blocks(split: FileSplit, *, skips_header: bool = False) -> LineBlocks:
    """Open a split's lines at its position, without the file's first line if that is a header."""
    file_system = split.open_file_system()
    is_fresh = split.position is None
    position = split.offset if split.position is None else split.position
    if split.is_compressed:
        stream = NamedStream(file_system.open_input_stream(split.name), split.name)
        _skip(stream, position)
        return LineBlocks(stream, position, None, None, skips_line=is_fresh and skips_header)
    stream = file_system.open_input_file(split.name)
    skips_line = is_fresh and (split.offset > 0 or skips_header)
    if is_fresh and split.offset > 0:
        # One byte earlier: a line that begins right at the offset is then seen to be whole.
        position -= 1
    stream.seek(position)
    return LineBlocks(stream, position, split.end, split.file_size, skips_line=skips_line)


def header_line(split: FileSplit) -> bytes:
    """Return the first line of the split's file, for any range of it."""
    with split.open_file_system().open_input_stream(split.name) as content:
        blocks = LineBlocks(NamedStream(content, split.name), 0, None, None, skips_line=False)
        block = b""
        while block == b"":
            found = blocks.next_block()
            if found is None:
                return b""
            block = found
        return block.partition(_NEWLINE)[0]


def _skip(stream: Any, count: int) -> None:
    while count > 0:
        chunk = stream.read(min(count, CHUNK_SIZE_BYTES))
        if not chunk:
            return
        count -= len(chunk)

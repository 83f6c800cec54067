"""ChunkWriter: elements of one file, gathered by their task and written on the I/O pool a chunk at a time.

Where an element will lie is known when it is added, so that the task goes on while chunks before it are given their
checksums and written (see write_behind.py).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Protocol

from headrace.network.file_seal import FileSeal
from headrace.network.io_pool import IoExecutor
from headrace.network.stored_batches import PreparedElement
from headrace.network.write_behind import WriteBehind


class ChunkedFile(Protocol):
    """What chunks are written to: a file, or several that come and go together."""

    def retain(self) -> bool:
        """Become one more user; False if it is gone."""
        ...

    def append(self, pieces: Sequence[Any]) -> int:
        """Write at the end; return where that is. StorageError."""
        ...

    def let_go(self) -> None:
        """One user is done; the last one has it deleted."""
        ...


class ChunkWriter:
    """By the task's thread, which keeps the file retained meanwhile.

    At most `limit_bytes` are on their way to the disk, one chunk excepted that is larger by itself.
    """

    def __init__(
        self,
        file: ChunkedFile,
        io: IoExecutor,
        *,
        chunk_bytes: int,
        limit_bytes: int,
        seal: FileSeal | None = None,
    ) -> None:
        """`chunk_bytes`: what is handed to the I/O pool in one go; a chunk ends with the element that reaches it."""
        self._file: Final = file
        self._seal: Final = seal
        self._behind: Final = WriteBehind(io, limit_bytes)
        self._chunk_bytes: Final = chunk_bytes
        self._chunk: list[PreparedElement] = []
        self._gathered_bytes = 0
        self.position = 0
        """Where in the file the next element will lie."""

    @property
    def pending_bytes(self) -> int:
        """Bytes that are on their way. Any thread; a moment's reading."""
        return self._behind.pending_bytes

    def await_room(self, size_bytes: int) -> None:
        """Wait until about so many bytes may be written besides what is on its way. StorageError."""
        self._behind.await_room(size_bytes)

    def add(self, element: PreparedElement) -> None:
        """Add one element. StorageError, of this or an earlier chunk."""
        size = element.size_bytes
        self._chunk.append(element)
        self._gathered_bytes += size
        self.position += size
        if self._gathered_bytes >= self._chunk_bytes:
            self.flush()

    def flush(self) -> None:
        """End the chunk here. StorageError, of this or an earlier one."""
        chunk, self._chunk = self._chunk, []
        size, self._gathered_bytes = self._gathered_bytes, 0
        if chunk:
            # Also for chunks of one batch each, of which there may be many.
            self._behind.await_room(size)
            place = self.position - size
            self._behind.submit(size, partial(_write_chunk, self._file, chunk, self._seal, place))

    def drain(self) -> None:
        """Wait until all that was flushed is written. StorageError."""
        self._behind.drain()


def _write_chunk(
    file: ChunkedFile, chunk: Sequence[PreparedElement], seal: FileSeal | None, place: int
) -> None:
    """On the I/O pool; nothing is written where the partition was withdrawn under its task."""
    if not file.retain():
        return
    try:
        pieces: list[Any] = []
        for element in chunk:
            pieces += element.pieces(seal, place)
            place += element.size_bytes
        file.append(pieces)
    finally:
        file.let_go()

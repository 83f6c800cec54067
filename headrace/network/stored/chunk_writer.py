"""ChunkWriter and RegionWriter: write elements of stored partitions on the I/O pool while their task goes on.

A ChunkWriter gathers the elements of one file and writes them in chunks with an AsyncFileWriter; a RegionWriter
does this for the regions of a sort-merge partition. Source: Flink PartitionedFileWriter.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from headrace.network.batches.sealed_batch import BatchWriter, SealedBatch
from headrace.network.stored.file_format import (
    BatchCompressor,
    FileSeal,
    PreparedElement,
    prepare_batch,
)
from headrace.network.stored.io_pool import IoExecutor, SerialJobs
from headrace.network.stored.partitioned_file import Extent, PartitionedFile, PartitionedFileWriter

MESSAGE_BYTES: Final = 512 << 10
"""Most bytes stored as one batch; consumers with smaller segments cut it again.

Half as much would take a fifth more processor time to read.
"""
JOINED_BYTES: Final = 448 << 10
"""Smaller parts are joined by copying up to this many bytes."""
WRITE_BYTES: Final = 4 << 20
"""Number of bytes handed to the operating system at once."""


class AsyncFileWriter:
    """Writes chunks of one file in order on the I/O pool, while their task goes on. Used by the task's thread.

    The task waits only while more than a limit is pending. A disk error is raised by its next call, and nothing is
    written after it. If the pool is not concurrent, as in a simulation or on the pool itself, every chunk is written at
    once. Source: Flink PartitionedFileWriter, whose writes the task does itself.
    """

    def __init__(self, io: IoExecutor, limit_bytes: int) -> None:
        self._limit_bytes: Final = limit_bytes
        self._jobs: Final = SerialJobs(io) if io.is_concurrent else None
        # Guards changes of the fields below: the task hands over, the I/O pool writes and wakes the task.
        self._condition = threading.Condition()
        self._pending_bytes = 0
        self._error: Exception | None = None

    @property
    def pending_bytes(self) -> int:
        """Number of bytes still to be written. Any thread; a snapshot."""
        return self._pending_bytes

    def await_room(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more fit the limit, or nothing is pending. Raises the error of an earlier write."""
        with self._condition:
            self._condition.wait_for(
                lambda: (
                    self._error is not None
                    or not self._pending_bytes
                    or self._pending_bytes + size_bytes <= self._limit_bytes
                )
            )
            self._raise_error()

    def submit(self, size_bytes: int, write: Callable[[], None]) -> None:
        """Queue a chunk for writing after those before it, without waiting.

        Raises the error of this or an earlier write.
        """
        with self._condition:
            self._raise_error()
            self._pending_bytes += size_bytes
        if self._jobs is not None:
            self._jobs.submit(lambda: self._write(size_bytes, write))
            return
        self._write(size_bytes, write)
        with self._condition:
            self._raise_error()

    def drain(self) -> None:
        """Wait until everything was written. Raises the error of a failed write."""
        with self._condition:
            self._condition.wait_for(lambda: not self._pending_bytes)
            self._raise_error()

    def _write(self, size_bytes: int, write: Callable[[], None]) -> None:
        error: Exception | None = None
        try:
            if self._error is None:
                write()
        except Exception as raised:
            error = raised
        # Free the chunk's memory before the task may go on.
        del write
        with self._condition:
            self._error = self._error or error
            self._pending_bytes -= size_bytes
            self._condition.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


class ChunkedFile(Protocol):
    """Destination of chunks: one file, or several that are created and deleted together."""

    def retain(self) -> bool:
        """Add one user of the file; return False if it is already deleted."""
        ...

    def append(self, pieces: Sequence[Any]) -> int:
        """Write at the end; return the offset of the data. StorageError if that fails."""
        ...

    def let_go(self) -> None:
        """Remove one user; the last one has the file deleted."""
        ...


class ChunkWriter:
    """Gathers elements of one file and hands them to the I/O pool in chunks.

    Used by the task's thread, which retains the file meanwhile. The offset of an element is known when it is added, so
    that the task goes on while earlier chunks get their checksums and are written. At most `limit_bytes` are
    pending, except for one chunk that is larger by itself.
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
        """Set `chunk_bytes`, the size at which a chunk ends and is handed to the I/O pool."""
        self._file: Final = file
        self._seal: Final = seal
        self._behind: Final = AsyncFileWriter(io, limit_bytes)
        self._chunk_bytes: Final = chunk_bytes
        self._chunk: list[PreparedElement] = []
        self._gathered_bytes = 0
        self.position = 0
        """File offset of the next element."""

    @property
    def pending_bytes(self) -> int:
        """Number of bytes still to be written. Any thread; a snapshot."""
        return self._behind.pending_bytes

    def await_room(self, size_bytes: int) -> None:
        """Wait until about `size_bytes` may be written in addition to pending bytes.

        StorageError if an earlier write failed.
        """
        self._behind.await_room(size_bytes)

    def add(self, element: PreparedElement) -> None:
        """Add one element. StorageError of this or an earlier chunk."""
        size = element.size_bytes
        self._chunk.append(element)
        self._gathered_bytes += size
        self.position += size
        if self._gathered_bytes >= self._chunk_bytes:
            self.flush()

    def flush(self) -> None:
        """End the current chunk. StorageError of this or an earlier chunk."""
        chunk, self._chunk = self._chunk, []
        size, self._gathered_bytes = self._gathered_bytes, 0
        if chunk:
            # Needed also for chunks of a single batch, of which there may be many.
            self._behind.await_room(size)
            place = self.position - size
            self._behind.submit(size, partial(_write_chunk, self._file, chunk, self._seal, place))

    def drain(self) -> None:
        """Wait until all flushed chunks are written. StorageError if a write failed."""
        self._behind.drain()


def _write_chunk(
    file: ChunkedFile, chunk: Sequence[PreparedElement], seal: FileSeal | None, place: int
) -> None:
    """Write a chunk on the I/O pool, or nothing if the partition was released while its task runs."""
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


class RegionWriter:
    """Encodes the regions of one sort-merge partition and hands them to the I/O pool.

    Used by the task's thread, which retains the files meanwhile and goes on with the next region while chunks of this
    one are written. At most `limit_bytes` are pending, except for one chunk that is larger by itself.
    """

    def __init__(
        self,
        writer: PartitionedFileWriter,
        compressor: BatchCompressor,
        io: IoExecutor,
        limit_bytes: int,
    ) -> None:
        self._writer: Final = writer
        self._compressor: Final = compressor
        self._chunks: Final = ChunkWriter(
            writer,
            io,
            chunk_bytes=WRITE_BYTES,
            limit_bytes=limit_bytes,
            seal=writer.schemas.seal,
        )
        self._batch_writer: Final = BatchWriter()

    @property
    def position(self) -> int:
        """File offset of the next element."""
        return self._chunks.position

    @property
    def pending_bytes(self) -> int:
        """Number of bytes still to be written. Any thread; a snapshot."""
        return self._chunks.pending_bytes

    def await_room(self, size_bytes: int) -> None:
        """Wait until a region of about this size may be written in addition to pending ones.

        StorageError of an earlier write.
        """
        self._chunks.await_room(size_bytes)

    def write(self, sealed: SealedBatch) -> None:
        """Add a batch, cut into messages of limited size. StorageError of this or an earlier chunk."""
        for piece in sealed.cut(MESSAGE_BYTES):
            piece.write(self._batch_writer)
            body = piece.body()
            self.add(prepare_batch(piece, body, self._writer.schemas, self._compressor))

    def add(self, element: PreparedElement) -> None:
        """Add one element. StorageError of this or an earlier chunk."""
        self._chunks.add(element)

    def end_region(self, extents: Sequence[Extent]) -> None:
        """End a region in which each subpartition has an extent. StorageError of this or an earlier chunk."""
        self._chunks.flush()
        self._writer.end_region(extents)

    def finish(self) -> PartitionedFile:
        """Wait until everything is written, and publish the index. StorageError if a write failed."""
        self._chunks.drain()
        assert self._writer.data.size == self.position, (
            "a chunk is not at the offset of its extents"
        )
        return self._writer.finish()

"""RegionWriter: the regions of one sort-merge partition, encoded by its task and written on the I/O pool.

Where everything will lie is known when it is encoded, so that the task goes on with the next region while chunks of
this one are given their checksums and written. Source: Flink PartitionedFileWriter.
"""

from collections.abc import Sequence
from typing import Final

from headrace.network.batch_writer import BatchWriter
from headrace.network.batches import SealedBatch
from headrace.network.chunk_writer import ChunkWriter
from headrace.network.compression import BatchCompressor
from headrace.network.io_pool import IoExecutor
from headrace.network.partitioned_file import PartitionedFile, PartitionedFileWriter
from headrace.network.sort_merge_index import Extent
from headrace.network.stored_batches import PreparedElement, prepare_batch

MESSAGE_BYTES: Final = 512 << 10
"""The most that is stored as one batch; consumers with smaller segments cut it again. Half as much costs a fifth more
of a processor to read."""
JOINED_BYTES: Final = 448 << 10
"""Smaller parts are copied together up to this."""
WRITE_BYTES: Final = 4 << 20
"""What is handed to the operating system in one go."""


class RegionWriter:
    """By the task's thread, which keeps the files retained meanwhile.

    At most `limit_bytes` are on their way to the disk, one chunk excepted that is larger by itself.
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
        """Where in the file the next element will lie."""
        return self._chunks.position

    @property
    def pending_bytes(self) -> int:
        """Bytes that are on their way. Any thread; a moment's reading."""
        return self._chunks.pending_bytes

    def await_room(self, size_bytes: int) -> None:
        """Wait until a region of about this size may be written besides what is on its way. StorageError."""
        self._chunks.await_room(size_bytes)

    def write(self, sealed: SealedBatch) -> None:
        """Add a batch, in messages of a handy size. StorageError, of this or an earlier chunk."""
        for piece in sealed.cut(MESSAGE_BYTES):
            piece.write(self._batch_writer)
            body = piece.body()
            self.add(prepare_batch(piece, body, self._writer.schemas, self._compressor))

    def add(self, element: PreparedElement) -> None:
        """Add one element. StorageError, of this or an earlier chunk."""
        self._chunks.add(element)

    def end_region(self, extents: Sequence[Extent]) -> None:
        """End a region of which each subpartition has an extent. StorageError."""
        self._chunks.flush()
        self._writer.end_region(extents)

    def finish(self) -> PartitionedFile:
        """Wait until everything is written; publish the index. StorageError."""
        self._chunks.drain()
        assert self._writer.data.size == self.position, "a chunk is not where its extents say"
        return self._writer.finish()

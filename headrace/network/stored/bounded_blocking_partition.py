"""BoundedBlockingPartition: stores batches in one file in order of arrival, for reading after the task has finished.

The simple kind, for partitions with few consumers: if a consumer's batches lie among those of few others, sorting
them gains little. From `taskmanager.network.sort-shuffle.min-parallelism` subpartitions on, sort-merge is used.
A broadcast batch is stored once. The task assigns the offset of each element; the I/O pool computes the checksums and
writes, while the task goes on (see chunk_writer.py).
Source: Flink BoundedBlockingResultPartition (which has a file per subpartition, and whose task writes itself).
"""

from collections.abc import Sequence
from typing import Final

from headrace.core.elements import StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batches.sealed_batch import BatchWriter, SealedBatch
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.stored.chunk_writer import ChunkWriter
from headrace.network.stored.file_format import (
    BatchCompressor,
    ElementIndex,
    PreparedElement,
    SchemaTable,
    UndecodedElement,
    prepare_batch,
    prepare_event,
    split_run,
)
from headrace.network.stored.spill_files import SpillFile
from headrace.network.stored.stored_partition import (
    PartitionStorage,
    StoredPartition,
)
from headrace.network.stored.stored_view import CoalescedRead

CHUNK_BYTES: Final = 1 << 20
"""Number of bytes handed to the I/O pool at once."""
BEHIND_BYTES: Final = 4 << 20
"""Number of further bytes that may wait for the disk; beyond it the task waits."""


class BoundedBlockingPartition(StoredPartition):
    """Stores batches in one file in order of arrival.

    Its memory is bounded: its pool, a chunk and the pending writes.
    """

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        storage: PartitionStorage,
        manager: ResultPartitionManager,
        compressor: BatchCompressor,
    ) -> None:
        super().__init__(partition_id, subpartition_count, pool, storage, manager)
        self._compressor = compressor
        self._batch_writer = BatchWriter()
        self._schemas = SchemaTable()
        self._indexes = [ElementIndex() for _ in range(subpartition_count)]
        self._file = storage.directories.create_file(".data")
        self._chunks = ChunkWriter(
            self._file, storage.io, chunk_bytes=CHUNK_BYTES, limit_bytes=BEHIND_BYTES
        )

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Store a batch. StorageError, for example on a full disk, of this or an earlier batch."""
        self._store(self._indexes[index : index + 1], sealed, lease)

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Store a batch once for all subpartitions. StorageError as in `emit`."""
        self._store(self._indexes, sealed, lease)

    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        self._append(self._indexes, prepare_event(event))

    def _store(
        self, indexes: Sequence[ElementIndex], sealed: SealedBatch, lease: SegmentLease
    ) -> None:
        try:
            sealed.write(self._batch_writer)
            element = prepare_batch(sealed, sealed.body(), self._schemas, self._compressor)
            self._append(indexes, element)
        finally:
            lease.release(len(indexes))

    def _append(self, indexes: Sequence[ElementIndex], element: PreparedElement) -> None:
        if self.is_released:
            return  # The partition was released while the task runs, which is being cancelled.
        position, size = self._chunks.position, element.size_bytes
        for index in indexes:
            index.append(position, size)
        self._chunks.add(element)

    def _complete(self) -> None:
        """Write everything to the file, before consumers may read. StorageError if that fails."""
        if self.is_released:
            return
        self._chunks.flush()
        self._chunks.drain()
        assert self.is_released or self._file.size == self._chunks.position, "an index is wrong"

    def _cursor(self, index: int) -> "_Cursor":
        self._file.retain()
        return _Cursor(self, self._file, self._indexes[index], self._schemas)

    def _discard(self) -> None:
        self._file.let_go()


class _Cursor:
    """Iterates over the elements of one subpartition. Implements SubpartitionCursor."""

    def __init__(
        self,
        partition: BoundedBlockingPartition,
        file: SpillFile,
        index: ElementIndex,
        schemas: SchemaTable,
    ) -> None:
        self._partition = partition
        self._file = file
        self._index = index
        self._schemas = schemas
        self._position = 0

    @property
    def next_offset(self) -> int | None:
        """File offset of the next element; None before the partition is finished or at its end."""
        if not self._partition.is_finished or self._position == len(self._index):
            return None
        return self._index.offset_of(self._position)

    def next_length(self, limit_bytes: int) -> int:
        """Return 0: elements of several consumers are mixed, and each consumer has its own read."""
        return 0

    def read(
        self, limit_bytes: int, stretch: CoalescedRead | None = None
    ) -> Sequence[UndecodedElement]:
        """Return about `limit_bytes` of elements. CorruptFileError if the file was damaged."""
        count, size = self._index.run_from(self._position, limit_bytes)
        data = self._file.read(self._index.offset_of(self._position), size)
        elements = split_run(data, count, self._schemas, str(self._file.path))
        self._position += count
        return elements

    def close(self) -> None:
        self._file.let_go()

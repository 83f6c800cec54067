"""BoundedBlockingPartition: batches go to one file as they come, and are read once the task has finished.

The simple kind, for partitions of few consumers: where one consumer's batches lie among those of few others, sorting
them would buy little. Above `taskmanager.network.sort-shuffle.min-parallelism` subpartitions it is sort-merge's turn.
A broadcast batch is stored once. Source: Flink BoundedBlockingResultPartition (which has a file per subpartition).
"""

from collections.abc import Sequence
from typing import Any

from headrace.core.elements import StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batch_writer import BatchWriter
from headrace.network.batches import SealedBatch
from headrace.network.compression import BatchCompressor
from headrace.network.element_index import ElementIndex
from headrace.network.local_pool import LocalBufferPool, SegmentLease
from headrace.network.spill_files import SpillFile
from headrace.network.stored_batches import (
    SchemaTable,
    StoredElement,
    decode_elements,
    encode_batch,
    encode_stored_event,
)
from headrace.network.stored_partition import PartitionOwner, PartitionStorage, StoredPartition


class BoundedBlockingPartition(StoredPartition):
    """See the module. Every element is on its way to the disk when `emit` returns, so it needs hardly any memory."""

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        storage: PartitionStorage,
        owner: PartitionOwner,
        compressor: BatchCompressor,
    ) -> None:
        super().__init__(partition_id, subpartition_count, pool, storage, owner)
        self._compressor = compressor
        self._batch_writer = BatchWriter()
        self._schemas = SchemaTable()
        self._indexes = [ElementIndex() for _ in range(subpartition_count)]
        self._file = storage.directories.create_file(".data")

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """See ResultPartition. StorageError, as on a full disk."""
        try:
            self._append(self._indexes[index : index + 1], self._encode(sealed))
        finally:
            lease.release()

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """See ResultPartition: stored once, found by all."""
        try:
            self._append(self._indexes, self._encode(sealed))
        finally:
            for _ in self._indexes:
                lease.release()

    def emit_event(
        self, event: StreamEvent, *, is_priority: bool = False, blocks_upstream: bool = False
    ) -> None:
        """See ResultPartition."""
        self._append(self._indexes, encode_stored_event(event))

    def _encode(self, sealed: SealedBatch) -> list[Any]:
        sealed.write(self._batch_writer)
        return encode_batch(sealed, sealed.body(), self._schemas, self._compressor)

    def _append(self, indexes: Sequence[ElementIndex], pieces: list[Any]) -> None:
        if self.is_released or not self._file.retain():
            return  # Withdrawn under the task, which is being cancelled.
        try:
            offset = self._file.append(pieces)
        finally:
            self._file.let_go()
        for index in indexes:
            index.append(offset, self._file.size - offset)

    def _complete(self) -> None:
        """Everything is in the file already."""

    def _cursor(self, index: int) -> "_Cursor":
        self._file.retain()
        return _Cursor(self, self._file, self._indexes[index], self._schemas)

    def _discard(self) -> None:
        self._file.let_go()


class _Cursor:
    """Goes through the elements of one subpartition. Implements SubpartitionCursor."""

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
        """See SubpartitionCursor: nothing before the partition is finished."""
        if not self._partition.is_finished or self._position == len(self._index):
            return None
        return self._index.offset_of(self._position)

    def read(self, limit_bytes: int) -> Sequence[StoredElement]:
        """See SubpartitionCursor."""
        count, size = self._index.run_from(self._position, limit_bytes)
        data = self._file.read(self._index.offset_of(self._position), size)
        elements = [
            element for element, _ in decode_elements(data, self._schemas, str(self._file.path))
        ]
        self._position += count
        return elements

    def close(self) -> None:
        """See SubpartitionCursor."""
        self._file.let_go()

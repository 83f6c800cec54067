"""HybridPartition: read while the task produces, or later; what memory cannot hold goes to the disk, and nobody waits.

    HYBRID_FULL        everything is in the file, memory only saves the way: may be read again
    HYBRID_SELECTIVE   the file has what memory did not take: read once

Source: Flink TieredResultPartition, HsResultPartition.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.core.elements import StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batch_writer import BatchWriter
from headrace.network.batches import SealedBatch
from headrace.network.compression import BatchCompressor
from headrace.network.errors import PartitionError
from headrace.network.hybrid_subpartition import HybridSubpartition
from headrace.network.hybrid_tiers import TierPolicy, TierState, choose_tiers
from headrace.network.local_pool import LocalBufferPool, SegmentLease
from headrace.network.partition import cannot_read_on
from headrace.network.read_stretch import Stretch
from headrace.network.spill_files import SpillFile
from headrace.network.stored_batches import (
    SchemaTable,
    StoredElement,
    encode_batch,
    encode_stored_event,
)
from headrace.network.stored_partition import PartitionOwner, PartitionStorage, StoredPartition
from headrace.network.stored_view import StoredView


class HybridPartition(StoredPartition):
    """See the module."""

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        storage: PartitionStorage,
        owner: PartitionOwner,
        compressor: BatchCompressor,
        *,
        is_full: bool,
        policy: TierPolicy = choose_tiers,
    ) -> None:
        super().__init__(partition_id, subpartition_count, pool, storage, owner)
        self._is_full = is_full
        self._policy = policy
        self._compressor = compressor
        self._batch_writer = BatchWriter()
        self._schemas = SchemaTable()
        self._subpartitions = [HybridSubpartition() for _ in range(subpartition_count)]
        self._views_of: list[list[StoredView]] = [[] for _ in range(subpartition_count)]
        self._file = storage.directories.create_file(".hybrid")

    @property
    def queued_count(self) -> int:
        """See ResultPartition."""
        return super().queued_count + sum(each.held_count for each in self._subpartitions)

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """See ResultPartition. StorageError, as on a full disk."""
        subpartition = self._subpartitions[index]
        placement = self._policy(
            TierState(
                self._is_full,
                False,
                subpartition.has_consumer,
                subpartition.held_count,
                self.pool.size - self.pool.used,
            )
        )
        extent = None
        try:
            if placement.on_disk:
                extent = self._store(sealed)
        except BaseException:
            lease.release()
            raise
        if placement.in_memory:
            subpartition.add_held(sealed, lease, extent)
        else:
            lease.release()
            if extent is not None:
                subpartition.add_stored(*extent)
        self._serve(index)

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """See ResultPartition: stored once, found by all. StorageError."""
        try:
            self._share(self._encode(sealed))
        finally:
            for _ in self._subpartitions:
                lease.release()

    def emit_event(
        self, event: StreamEvent, *, is_priority: bool = False, blocks_upstream: bool = False
    ) -> None:
        """See ResultPartition. StorageError."""
        self._share(encode_stored_event(event))

    def make_room(self) -> None:
        """See ResultPartition. StorageError."""
        for subpartition in self._subpartitions:
            subpartition.spill(self._store_held)

    def create_view(
        self, index: int, listener: Callable[[], None], segment_size: int, first_element: int = 0
    ) -> StoredView:
        """See ResultPartition. A selective one is read once."""
        if first_element:
            raise cannot_read_on(self.partition_id)
        view = super().create_view(index, listener, segment_size)
        self._views_of[index].append(view)
        # What came between these two lines was told to nobody.
        self._read_loop.request(view)
        return view

    def _share(self, pieces: list[Any]) -> None:
        extent = self._append(pieces)
        if extent is None:
            return
        for index, subpartition in enumerate(self._subpartitions):
            subpartition.add_stored(*extent)
            self._serve(index)

    def _serve(self, index: int) -> None:
        for view in tuple(self._views_of[index]):
            self._read_loop.request(view)

    def _encode(self, sealed: SealedBatch) -> list[Any]:
        sealed.write(self._batch_writer)
        return encode_batch(sealed, sealed.body(), self._schemas, self._compressor)

    def _store(self, sealed: SealedBatch) -> tuple[int, int] | None:
        return self._append(self._encode(sealed))

    def _store_held(self, sealed: SealedBatch) -> tuple[int, int]:
        # Withdrawn under the task: the place is never looked at.
        return self._store(sealed) or (0, 0)

    def _append(self, pieces: list[Any]) -> tuple[int, int] | None:
        """Write; None where the partition was withdrawn under its task."""
        if self.is_released or not self._file.retain():
            return None
        try:
            offset = self._file.append(pieces)
            return offset, self._file.size - offset
        finally:
            self._file.let_go()

    def _complete(self) -> None:
        """Consumers have followed all along."""

    def _cursor(self, index: int) -> "_Cursor":
        subpartition = self._subpartitions[index]
        if not self._is_full and subpartition.was_read:
            text = str(self.partition_id)
            raise PartitionError(text, f"subpartition {index} of {text} had a consumer already")
        self._file.retain()
        subpartition.attach()
        return _Cursor(subpartition, self._file, self._schemas)

    def _view_released(self, view: StoredView) -> None:
        super()._view_released(view)
        for views in self._views_of:
            if view in views:
                views.remove(view)

    def _discard(self) -> None:
        for subpartition in self._subpartitions:
            subpartition.withdraw(at_once=self._failure is not None)
        self._file.let_go()


class _Cursor:
    """Goes through one subpartition as it grows. Implements SubpartitionCursor."""

    def __init__(
        self, subpartition: HybridSubpartition, file: SpillFile, schemas: SchemaTable
    ) -> None:
        self._subpartition: Final = subpartition
        self._file: Final = file
        self._schemas: Final = schemas
        self._position = 0

    @property
    def next_offset(self) -> int | None:
        """See SubpartitionCursor."""
        if self._position >= self._subpartition.element_count:
            return None
        return self._subpartition.offset_of(self._position)

    def next_length(self, limit_bytes: int) -> int:
        """See SubpartitionCursor: memory and file are mixed, and each consumer has its own read."""
        return 0

    def read(self, limit_bytes: int, stretch: Stretch | None = None) -> Sequence[StoredElement]:
        """See SubpartitionCursor."""
        count, elements = self._subpartition.take(
            self._position, limit_bytes, self._file, self._schemas
        )
        self._position += count
        return elements

    def close(self) -> None:
        """See SubpartitionCursor."""
        self._subpartition.detach()
        self._file.let_go()

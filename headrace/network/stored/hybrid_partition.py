"""HybridPartition: a result read while or after it is produced; batches beyond its memory go to disk without a wait.

    HYBRID_FULL        every batch is in the file, memory only saves the read: may be read again
    HYBRID_SELECTIVE   the file has only the batches that were not kept in memory: read once

Memory keeps the batches that a fast consumer will fetch at once; the disk takes the rest, so that a slow or
absent consumer never stops the producer (`choose_tiers`). A HybridSubpartition has one consumer's batches in the order
of emission, each in memory, in the file, or in both.
Source: Flink TieredResultPartition, HsResultPartition, TierProducerAgent and its memory and disk tiers.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.elements import StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batches.sealed_batch import BatchWriter, SealedBatch
from headrace.network.errors import PartitionError
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.result_partition import cannot_be_read_again
from headrace.network.stored.file_format import (
    NOT_STORED,
    BatchCompressor,
    ElementIndex,
    SchemaTable,
    StoredElement,
    encode_batch,
    encode_stored_event,
    split_run,
)
from headrace.network.stored.spill_files import SpillFile
from headrace.network.stored.stored_partition import (
    PartitionStorage,
    StoredPartition,
)
from headrace.network.stored.stored_view import CoalescedRead, StoredView

MEMORY_QUEUED_MAX: Final = 3
"""Number of batches queued in memory from which a consumer counts as slow; its next batches go to disk."""
SEGMENTS_KEPT_FREE: Final = 2
"""Number of segments kept free, so that the next batch can be sealed whatever consumers do."""


class HybridSubpartition:
    """Elements of one consumer. The producer's task adds, the I/O pool reads, any thread may drop them."""

    def __init__(self) -> None:
        self._index = ElementIndex()
        self.was_read = False
        # Guards the fields below: the task adds, the I/O pool takes, cancellation may come from a third thread.
        self._lock = threading.Lock()
        self._held: dict[int, tuple[SealedBatch, SegmentLease]] = {}
        self._consumer_count = 0
        self._is_withdrawn = False

    @property
    def has_consumer(self) -> bool:
        """Return whether a consumer is attached now."""
        return self._consumer_count > 0

    @property
    def held_count(self) -> int:
        """Number of batches held in memory."""
        return len(self._held)

    @property
    def element_count(self) -> int:
        """Number of elements added so far."""
        return len(self._index)

    def add_stored(self, offset: int, length: int) -> None:
        """Add an element that is only in the file."""
        self._index.append(offset, length)

    def add_held(
        self, sealed: SealedBatch, lease: SegmentLease, extent: tuple[int, int] | None
    ) -> None:
        """Add a batch that is in memory, and also in the file if `extent` is given."""
        with self._lock:
            is_withdrawn = self._is_withdrawn
            if not is_withdrawn:
                self._held[len(self._index)] = (sealed, lease)
            # Under the lock, so that a reader that finds the element also finds the batch.
            self._index.append(*(extent or (NOT_STORED, 0)))
        if is_withdrawn:
            lease.release()

    def spill(self, store: Callable[[SealedBatch], tuple[int, int]]) -> None:
        """Release all memory after passing elements that are not in the file to `store`. Task's thread.

        StorageError if that fails.
        """
        for position in sorted(self._held):
            entry = self._held.get(position)
            if entry is None:
                continue  # A consumer took it meanwhile.
            sealed, lease = entry
            if not self._index.is_stored(position):
                self._index.place(position, *store(sealed))
            with self._lock:
                is_mine = self._held.pop(position, None) is not None
            if is_mine:
                lease.release()

    def offset_of(self, position: int) -> int:
        """Return the file offset of an element, or 0 for one in memory, which needs no disk seek."""
        return 0 if position in self._held else self._index.offset_of(position)

    def take(
        self, position: int, limit_bytes: int, file: SpillFile, schemas: SchemaTable
    ) -> tuple[int, Sequence[StoredElement]]:
        """Return the number of elements and the elements from `position` on, releasing those in memory. May block.

        StorageError if the file cannot be read.
        """
        held = self._take_held(position, limit_bytes)
        if held:
            return len(held), held
        if not self._index.is_stored(position):
            return 0, ()  # Withdrawn while its consumer reads, which is being told.
        count, size = self._index.run_from(position, limit_bytes)
        data = file.read(self._index.offset_of(position), size)
        found = [each.decode() for each in split_run(data, count, schemas, str(file.path))]
        with self._lock:
            passed = [self._held.pop(each, None) for each in range(position, position + count)]
        _release([entry[1] for entry in passed if entry is not None])
        return count, found

    def attach(self) -> None:
        """Count one more consumer."""
        with self._lock:
            self._consumer_count += 1
            self.was_read = True

    def detach(self) -> None:
        """Count one consumer less; after withdrawal the last one drops the batches that are only in memory."""
        with self._lock:
            self._consumer_count -= 1
            dropped = self._drop() if self._is_withdrawn and not self._consumer_count else []
        _release(dropped)

    def withdraw(self, *, at_once: bool) -> None:
        """Release memory, `at_once` or with the last consumer; no new consumer will attach."""
        with self._lock:
            self._is_withdrawn = True
            dropped = self._drop() if at_once or not self._consumer_count else []
        _release(dropped)

    def _take_held(self, position: int, limit_bytes: int) -> list[SealedBatch]:
        taken: list[tuple[SealedBatch, SegmentLease]] = []
        size = 0
        with self._lock:
            while size < limit_bytes and (entry := self._held.pop(position + len(taken), None)):
                taken.append(entry)
                size += entry[0].size_bytes
        _release([lease for _, lease in taken])
        return [sealed for sealed, _ in taken]

    def _drop(self) -> list[SegmentLease]:
        held, self._held = self._held, {}
        return [lease for _, lease in held.values()]


def _release(leases: Sequence[SegmentLease]) -> None:
    if leases:
        leases[0].pool.release(leases)


@dataclass(frozen=True, slots=True)
class TierState:
    """Input for the choice of a tier. `free_segments` are those of the partition left after this batch."""

    is_full: bool
    is_broadcast: bool
    has_consumer: bool
    queued_in_memory: int
    free_segments: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Tiers that store a batch; at least one is set."""

    in_memory: bool
    on_disk: bool


TierPolicy = Callable[[TierState], Placement]


def choose_tiers(state: TierState) -> Placement:
    """Return the tiers for a batch. A broadcast is stored once for all, which only the disk can do."""
    in_memory = (
        state.has_consumer
        and not state.is_broadcast
        and state.queued_in_memory < MEMORY_QUEUED_MAX
        and state.free_segments >= SEGMENTS_KEPT_FREE
    )
    return Placement(in_memory, state.is_full or not in_memory)


class HybridPartition(StoredPartition):
    """Stored partition that consumers may read while it is produced; batches are in memory, in its file, or in both."""

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        storage: PartitionStorage,
        manager: ResultPartitionManager,
        compressor: BatchCompressor,
        *,
        is_full: bool,
        policy: TierPolicy = choose_tiers,
    ) -> None:
        super().__init__(partition_id, subpartition_count, pool, storage, manager)
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
        return super().queued_count + sum(each.held_count for each in self._subpartitions)

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Store a batch in memory, in the file or in both. StorageError, for example on a full disk."""
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
        """Store a batch once for all subpartitions. StorageError if it cannot be written."""
        try:
            self._share(self._encode(sealed))
        finally:
            lease.release(self.subpartition_count)

    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Store an event for all subpartitions. StorageError if it cannot be written."""
        self._share(encode_stored_event(event))

    def make_room(self) -> None:
        """Move batches from memory to the file, except those that consumers read next. StorageError if that fails."""
        for subpartition in self._subpartitions:
            subpartition.spill(self._store_held)

    def create_view(
        self, index: int, listener: Callable[[], None], segment_size: int, first_element: int = 0
    ) -> StoredView:
        """Attach a consumer.

        PartitionError if a selective partition already had one, or for a `first_element` other than 0.
        """
        if first_element:
            raise cannot_be_read_again(self.partition_id)
        view = super().create_view(index, listener, segment_size)
        self._views_of[index].append(view)
        # Elements that came between these two lines were announced to nobody.
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
        # Withdrawn while the task runs: the offset is never used.
        return self._store(sealed) or (0, 0)

    def _append(self, pieces: list[Any]) -> tuple[int, int] | None:
        """Write the pieces; return None if the partition was released while its task runs."""
        if self.is_released or not self._file.retain():
            return None
        try:
            offset = self._file.append(pieces)
            return offset, self._file.size - offset
        finally:
            self._file.let_go()

    def _complete(self) -> None:
        """Do nothing: consumers have read along."""

    def _cursor(self, index: int) -> "_Cursor":
        subpartition = self._subpartitions[index]
        if not self._is_full and subpartition.was_read:
            text = str(self.partition_id)
            raise PartitionError(text, f"subpartition {index} of {text} already had a consumer")
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
    """Iterates over one subpartition while it grows. Implements SubpartitionCursor."""

    def __init__(
        self, subpartition: HybridSubpartition, file: SpillFile, schemas: SchemaTable
    ) -> None:
        self._subpartition: Final = subpartition
        self._file: Final = file
        self._schemas: Final = schemas
        self._position = 0

    @property
    def next_offset(self) -> int | None:
        if self._position >= self._subpartition.element_count:
            return None
        return self._subpartition.offset_of(self._position)

    def next_length(self, limit_bytes: int) -> int:
        """Return 0: memory and file are mixed, and each consumer has its own read."""
        return 0

    def read(
        self, limit_bytes: int, stretch: CoalescedRead | None = None
    ) -> Sequence[StoredElement]:
        count, elements = self._subpartition.take(
            self._position, limit_bytes, self._file, self._schemas
        )
        self._position += count
        return elements

    def close(self) -> None:
        self._subpartition.detach()
        self._file.let_go()

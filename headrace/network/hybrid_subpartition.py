"""HybridSubpartition: one consumer's batches in the order of emission, each in memory, in the file, or in both.

Source: Flink TieredStorage's nettyConnectionReader and SubpartitionConsumerMemoryDataManager, in one.
"""

import threading
from collections.abc import Callable, Sequence

from headrace.network.batches import SealedBatch
from headrace.network.element_index import NOT_STORED, ElementIndex
from headrace.network.local_pool import SegmentLease
from headrace.network.spill_files import SpillFile
from headrace.network.stored_batches import SchemaTable, StoredElement, split_run


class HybridSubpartition:
    """Written to by the producer's task, read on the I/O pool, dropped from any thread."""

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
        """Whether somebody reads now."""
        return self._consumer_count > 0

    @property
    def held_count(self) -> int:
        """Batches that wait in memory."""
        return len(self._held)

    @property
    def element_count(self) -> int:
        """Elements that were added."""
        return len(self._index)

    def add_stored(self, offset: int, length: int) -> None:
        """Add an element that is in the file only."""
        self._index.append(offset, length)

    def add_held(
        self, sealed: SealedBatch, lease: SegmentLease, extent: tuple[int, int] | None
    ) -> None:
        """Add a batch that is in memory, and in the file too where `extent` says so."""
        with self._lock:
            is_withdrawn = self._is_withdrawn
            if not is_withdrawn:
                self._held[len(self._index)] = (sealed, lease)
            # Under the lock: who finds the element finds the batch.
            self._index.append(*(extent or (NOT_STORED, 0)))
        if is_withdrawn:
            lease.release()

    def spill(self, store: Callable[[SealedBatch], tuple[int, int]]) -> None:
        """Let go of all memory: `store` what is not in the file. By the task's thread. StorageError."""
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
        """Where to read on: 0 for what is in memory, which costs no way."""
        return 0 if position in self._held else self._index.offset_of(position)

    def take(
        self, position: int, limit_bytes: int, file: SpillFile, schemas: SchemaTable
    ) -> tuple[int, Sequence[StoredElement]]:
        """Return elements from `position` on, and how many. Those in memory are let go. May block. StorageError."""
        held = self._take_held(position, limit_bytes)
        if held:
            return len(held), held
        if not self._index.is_stored(position):
            return 0, ()  # Withdrawn under its consumer, who is being told.
        count, size = self._index.run_from(position, limit_bytes)
        data = file.read(self._index.offset_of(position), size)
        found = [each.decode() for each in split_run(data, count, schemas, str(file.path))]
        with self._lock:
            passed = [self._held.pop(each, None) for each in range(position, position + count)]
        _release([entry[1] for entry in passed if entry is not None])
        return count, found

    def attach(self) -> None:
        """One more consumer reads."""
        with self._lock:
            self._consumer_count += 1
            self.was_read = True

    def detach(self) -> None:
        """A consumer is gone; what only memory had is lost with the last one once the result was withdrawn."""
        with self._lock:
            self._consumer_count -= 1
            dropped = self._drop() if self._is_withdrawn and not self._consumer_count else []
        _release(dropped)

    def withdraw(self, *, at_once: bool) -> None:
        """Nobody else will come: let go of memory, `at_once` or with the last consumer."""
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

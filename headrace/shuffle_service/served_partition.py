"""ServedPartition: a result in a shuffle service that consumers can read once it is committed.

It exists from its registration, so that consumers that connect early wait. Rows that are being pushed lie elsewhere
until the commit hands over the file. Consumers that are reading at the release continue; the files are deleted after
the last of them. Source: Flink Remote Shuffle's MapPartition.
"""

from headrace.core.elements import StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.stored.partitioned_file import PartitionedFile
from headrace.network.stored.sort_merge_partition import RegionCursor
from headrace.network.stored.stored_partition import (
    PartitionStorage,
    StoredPartition,
)


class ServedPartition(StoredPartition):
    """Stored partition that is only read, as its producer pushes it. `unwritten` is a pool that stays unused."""

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        unwritten: LocalBufferPool,
        storage: PartitionStorage,
        manager: ResultPartitionManager,
        file: PartitionedFile | None = None,
    ) -> None:
        super().__init__(partition_id, subpartition_count, unwritten, storage, manager)
        self._file = file
        # Of consumers that came before the commit.
        self._early: set[_LateCursor] = set()
        self.is_finished = file is not None

    @property
    def file(self) -> PartitionedFile | None:
        return self._file

    def commit(self, file: PartitionedFile) -> bool:
        """Let consumers read `file`, which this partition owns from now on; return False if it was released before."""
        with self._lock:
            if self._is_released:
                return False
            assert self._file is None, f"{self.partition_id} was committed before"
            for cursor in self._early:
                cursor.keep(file)
            self._early.clear()
            self._file = file
            self.is_finished = True
        self.serve_views()
        return True

    def close(self) -> None:
        """Close the partition, but not its pool, which is shared."""
        with self._lock:
            self._is_closed = True

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Raise AssertionError: producers push their results, and nobody writes here."""
        raise AssertionError("nobody writes to a served partition")

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Raise AssertionError: producers push their results, and nobody writes here."""
        raise AssertionError("nobody writes to a served partition")

    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Raise AssertionError: producers push their results, and nobody writes here."""
        raise AssertionError("nobody writes to a served partition")

    def _complete(self) -> None:
        raise AssertionError("nobody writes to a served partition")

    def _cursor(self, index: int) -> "_LateCursor":
        cursor = _LateCursor(self, index)
        if self._file is not None:
            cursor.keep(self._file)
        else:
            self._early.add(cursor)
        return cursor

    def forget_early(self, cursor: "_LateCursor") -> None:
        """Remove a closed cursor that was waiting for the file."""
        self._early.discard(cursor)

    def _discard(self) -> None:
        if self._file is not None:
            self._file.let_go()


class _LateCursor(RegionCursor):
    """A cursor that may be created before its file exists."""

    def __init__(self, partition: ServedPartition, index: int) -> None:
        super().__init__(partition, index, self._let_go)
        self._served = partition
        self._kept: PartitionedFile | None = None

    def keep(self, file: PartitionedFile) -> None:
        """Become a user of the file.

        The caller holds the partition's lock, so that the file is not released meanwhile.
        """
        if file.retain():
            self._kept = file

    def _let_go(self) -> None:
        self._served.forget_early(self)
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.let_go()

r"""StoredPartition: the lifecycle that all partitions in files share, whatever their file format.

    producing --finish--> readable --release--> released: no new consumer; those that read go on
        \--fail-----------------------------> failed: consumers are told, the manager keeps the cause

The files are deleted once the partition was released (or failed) and its last consumer has detached.
Source: Flink ResultPartition, BoundedBlockingResultPartition, SortMergeResultPartition.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.elements import EndOfPartition
from headrace.core.ids import ResultPartitionId
from headrace.network.errors import (
    NetworkError,
    PartitionNotFoundError,
    ProducerFailedError,
    copy_of,
)
from headrace.network.memory.local_buffer_pool import LocalBufferPool
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.result_partition import ResultPartition, describe_cause
from headrace.network.stored.io_pool import IoExecutor
from headrace.network.stored.read_scheduler import ReadScheduler
from headrace.network.stored.spill_files import SpillDirectories
from headrace.network.stored.stored_view import ReadMemory, StoredView, SubpartitionCursor


@dataclass(frozen=True)
class PartitionStorage:
    """I/O threads, directories and read memory shared by all stored partitions of a TaskManager."""

    io: IoExecutor
    directories: SpillDirectories
    read_memory: ReadMemory

    def close(self) -> None:
        """End the I/O threads and delete every file. Idempotent."""
        self.io.close()
        self.directories.close()


class StoredPartition(ResultPartition):
    """Base of partitions in files. One task writes; any thread may close, fail, release or attach to it.

    Subclasses implement writing (`emit`, `broadcast`, `emit_event`, `_complete`), reading (`_cursor`) and clean-up
    (`_discard`).
    """

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        storage: PartitionStorage,
        manager: ResultPartitionManager,
    ) -> None:
        super().__init__(partition_id, subpartition_count, pool)
        self._storage = storage
        self._manager = manager
        self._read_loop = ReadScheduler(storage.io)
        # Guards the fields below: consumers, the task, its canceller and the master may come in any order.
        self._lock = threading.Lock()
        self._views: set[StoredView] = set()
        self._is_closed = False
        self._is_released = False
        self._failure: NetworkError | None = None

    @property
    def queued_count(self) -> int:
        """Number of elements that were read ahead."""
        return sum(view.queued_count for view in tuple(self._views))

    @property
    def longest_queue(self) -> int:
        """Number of elements read ahead for the consumer that has most of them."""
        return max((view.queued_count for view in tuple(self._views)), default=0)

    @property
    def queued_bytes(self) -> int:
        """Number of bytes that were read ahead."""
        return sum(view.queued_bytes for view in tuple(self._views))

    @property
    def is_released(self) -> bool:
        """Return whether new consumers are refused. Any thread."""
        return self._is_released

    def finish(self) -> None:
        """Store the remaining rows and end the partition. StorageError if they cannot be written."""
        if self.is_finished:
            return
        self.emit_event(EndOfPartition())
        self._complete()
        self.is_finished = True
        self.serve_views()

    def create_view(
        self, index: int, listener: Callable[[], None], segment_size: int, first_element: int = 0
    ) -> StoredView:
        """Attach a consumer; any number may attach, and before the end of the task they wait for it."""
        with self._lock:
            if self._failure is not None:
                raise copy_of(self._failure)
            if self._is_released:
                raise PartitionNotFoundError(str(self.partition_id), "the producer's")
            view = StoredView(
                self._cursor(index),
                self._storage.read_memory,
                listener,
                segment_size,
                self._read_loop.request,
                self._view_released,
                first_element,
            )
            self._views.add(view)
        self._read_loop.request(view)
        return view

    def serve_views(self) -> None:
        """Let consumers read the elements that were added."""
        for view in tuple(self._views):
            self._read_loop.request(view)

    def fail(self, cause: BaseException | None) -> None:
        text = describe_cause(cause)
        self._end(ProducerFailedError(str(self.partition_id), text), text)

    def close(self) -> None:
        """Release the partition for its task; a finished one stays, for any number of consumers, until `release`."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self.pool.destroy()

    def release(self) -> None:
        """Withdraw the partition: consumers of a finished one may go on, those of an unfinished one are told."""
        if not self.is_finished:
            text = "the partition was released"
            self._end(ProducerFailedError(str(self.partition_id), text), None)
            return
        self.close()
        with self._lock:
            if self._is_released:
                return
            self._is_released = True
        self._discard()
        self._manager.forget(self)

    def _end(self, failure: NetworkError, recorded: str | None) -> None:
        """End without a result; `recorded` is the cause to tell consumers that come late."""
        with self._lock:
            if self._is_closed or self._is_released:
                return
            self._is_released = True
            self._failure = failure
            views = tuple(self._views)
        if recorded is None:
            self._manager.forget(self)
        else:
            self._manager.record_failure(self, recorded)
        for view in views:
            view.fail(failure)
        self.close()
        self._discard()

    def _view_released(self, view: StoredView) -> None:
        self._read_loop.forget(view)
        with self._lock:
            self._views.discard(view)

    @abstractmethod
    def _complete(self) -> None:
        """Make everything emitted readable. Task's thread."""

    @abstractmethod
    def _cursor(self, index: int) -> SubpartitionCursor:
        """Return a reader of one subpartition from its beginning, which retains the files it needs. Lock held."""

    @abstractmethod
    def _discard(self) -> None:
        """Release the files, and the batches in memory. Called once."""

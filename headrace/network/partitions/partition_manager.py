"""ResultPartitionManager: all partitions of this TaskManager, and consumers that wait for a partition.

Source: Flink ResultPartitionManager.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Final

from headrace.core.ids import JobId, ResultPartitionId
from headrace.network.errors import (
    NetworkError,
    PartitionError,
    PartitionNotFoundError,
    ProducerFailedError,
    copy_of,
)
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.partitions.result_subpartition import ResultSubpartitionView

FAILURES_KEPT_MAX: Final = 1000


class ResultPartitionManager:
    """Partitions by id. Thread-safe."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # Guards the maps: tasks register, the network thread reads, the control thread releases.
        self._lock = threading.Lock()
        self._partitions: dict[ResultPartitionId, ResultPartition] = {}
        self._failures: OrderedDict[ResultPartitionId, NetworkError] = OrderedDict()
        self._watchers: dict[ResultPartitionId, list[Callable[[], None]]] = {}

    @property
    def partition_count(self) -> int:
        """Number of registered partitions."""
        return len(self._partitions)

    def register(self, partition: ResultPartition) -> None:
        """Register a partition, and call the consumers that wait for it."""
        with self._lock:
            assert partition.partition_id not in self._partitions, (
                f"{partition.partition_id} is registered twice"
            )
            self._partitions[partition.partition_id] = partition
            watchers = self._watchers.pop(partition.partition_id, [])
        for watcher in watchers:
            watcher()

    def create_view(
        self,
        partition_id: ResultPartitionId,
        subpartition_index: int,
        listener: Callable[[], None],
        segment_size: int,
        first_element: int = 0,
    ) -> ResultSubpartitionView:
        """Attach a consumer.

        PartitionNotFoundError if the partition is unknown; ProducerFailedError if its producer failed.
        """
        with self._lock:
            partition = self._partitions.get(partition_id)
            failure = self._failures.get(partition_id)
        if failure is not None:
            raise copy_of(failure)
        if partition is None:
            raise PartitionNotFoundError(str(partition_id), self._owner)
        if subpartition_index >= partition.subpartition_count:
            raise PartitionError(
                str(partition_id),
                f"{partition_id} has {partition.subpartition_count} subpartitions, but subpartition "
                f"{subpartition_index} was requested",
            )
        return partition.create_view(subpartition_index, listener, segment_size, first_element)

    def watch(self, partition_id: ResultPartitionId, watcher: Callable[[], None]) -> None:
        """Call `watcher` once the partition is registered or has failed; immediately if it is now."""
        with self._lock:
            if partition_id not in self._partitions and partition_id not in self._failures:
                self._watchers.setdefault(partition_id, []).append(watcher)
                return
        watcher()

    def unwatch(self, partition_id: ResultPartitionId, watcher: Callable[[], None]) -> None:
        """Forget a watcher; no effect if it was already called."""
        with self._lock:
            watchers = self._watchers.get(partition_id, [])
            if watcher in watchers:
                watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(partition_id, None)

    def record_failure(self, partition: ResultPartition, cause_text: str) -> None:
        """Forget a failed partition but keep the cause, for consumers that come late."""
        partition_id = partition.partition_id
        with self._lock:
            self._partitions.pop(partition_id, None)
            self._failures[partition_id] = ProducerFailedError(str(partition_id), cause_text)
            while len(self._failures) > FAILURES_KEPT_MAX:
                self._failures.popitem(last=False)
            watchers = self._watchers.pop(partition_id, [])
        for watcher in watchers:
            watcher()

    def forget(self, partition: ResultPartition) -> None:
        """Forget a partition that all users have released."""
        with self._lock:
            self._partitions.pop(partition.partition_id, None)

    def release(self, partition_ids: Iterable[ResultPartitionId]) -> None:
        """Drop partitions, even while consumers read them; unknown ids are ignored."""
        with self._lock:
            partitions = [
                self._partitions.pop(key) for key in partition_ids if key in self._partitions
            ]
        for partition in partitions:
            partition.release()

    def holds(self, partition_id: ResultPartitionId) -> bool:
        """Return whether a partition is registered."""
        with self._lock:
            return partition_id in self._partitions

    def release_job(self, job_id: JobId, kept: Collection[ResultPartitionId] = ()) -> None:
        """Drop all partitions of a job except those in `kept`."""
        with self._lock:
            ours = [key for key in self._partitions if key.producer.job_id == job_id]
        found = [key for key in ours if key not in kept]
        self.release(found)

    def release_all(self) -> None:
        """Drop every partition."""
        with self._lock:
            partitions = list(self._partitions.values())
            self._partitions.clear()
        for partition in partitions:
            partition.release()

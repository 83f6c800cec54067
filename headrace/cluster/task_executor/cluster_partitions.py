"""ClusterPartitions: keeps results on a TaskManager that outlive their job, and reports them.

They stay where they were written, and no JobMaster releases them; only the ResourceManager does, or the end of the
TaskManager. Main thread of the TaskExecutor. Source: Flink TaskExecutorPartitionTrackerImpl.
"""

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from headrace.core.ids import ClusterDataSetId, JobId, ResultPartitionId
from headrace.gateways.messages import (
    ClusterPartition,
    ClusterPartitionReport,
)


class StoredPartitions(Protocol):
    """Results on this TaskManager, as the network's ResultPartitionManager holds them."""

    @property
    def partition_count(self) -> int:
        """Number of results that may still be read."""
        ...

    def release(self, partition_ids: Iterable[ResultPartitionId]) -> None:
        """Drop results; unknown ids are ignored."""
        ...

    def holds(self, partition_id: ResultPartitionId) -> bool:
        """Return whether a result exists here."""
        ...

    def release_job(self, job_id: JobId, kept: Collection[ResultPartitionId] = ()) -> None:
        """Drop all results of a job except those in `kept`."""
        ...


class ClusterPartitions:
    """Cluster partitions of one TaskManager. `stored` holds them and the results of jobs."""

    def __init__(self, stored: StoredPartitions) -> None:
        self._stored: Final = stored
        self._promoted: dict[ResultPartitionId, ClusterPartition] = {}
        self._change_number = 0

    def promote(self, partitions: Iterable[ClusterPartition]) -> None:
        """Keep results for the cluster. Idempotent; results that do not exist here are ignored."""
        new = [
            each
            for each in partitions
            if each.partition_id not in self._promoted and self._stored.holds(each.partition_id)
        ]
        if new:
            self._promoted.update((each.partition_id, each) for each in new)
            self._change_number += 1

    def release(self, data_sets: Collection[ClusterDataSetId]) -> None:
        """Drop the results of these data sets; unknown ones are ignored."""
        gone = [key for key, each in self._promoted.items() if each.data_set in data_sets]
        if gone:
            self._stored.release(gone)
            for key in gone:
                del self._promoted[key]
            self._change_number += 1

    def release_of_job(self, partition_ids: Iterable[ResultPartitionId]) -> None:
        """Drop results that a JobMaster no longer needs, except cluster partitions."""
        self._stored.release([key for key in partition_ids if key not in self._promoted])

    def release_job(self, job_id: JobId) -> None:
        """Drop the results of a job that has ended here, except cluster partitions."""
        self._stored.release_job(job_id, self._promoted.keys())

    def report(self) -> ClusterPartitionReport:
        """Return all cluster partitions held here."""
        return ClusterPartitionReport(self._change_number, tuple(self._promoted.values()))

"""ClusterPartitions: keeps the results on a TaskManager that outlive their job, and reports them.

They stay where they were written, and no JobMaster releases them: only the ResourceManager does, or the end of the
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
    """The results on this TaskManager: those of the network's ResultPartitionManager."""

    @property
    def partition_count(self) -> int:
        """Results that somebody may still read."""
        ...

    def release(self, partition_ids: Iterable[ResultPartitionId]) -> None:
        """Drop results; unknown ones are passed over."""
        ...

    def holds(self, partition_id: ResultPartitionId) -> bool:
        """Whether a result is here."""
        ...

    def release_job(self, job_id: JobId, kept: Collection[ResultPartitionId] = ()) -> None:
        """Drop all results of a job, but for those in `kept`."""
        ...


class ClusterPartitions:
    """Cluster partitions of one TaskManager. `stored` knows them and the results of jobs."""

    def __init__(self, stored: StoredPartitions) -> None:
        self._stored: Final = stored
        self._promoted: dict[ResultPartitionId, ClusterPartition] = {}
        self._change_number = 0

    def promote(self, partitions: Iterable[ClusterPartition]) -> None:
        """Give results to the cluster. Idempotent; results that are not here are passed over."""
        new = [
            each
            for each in partitions
            if each.partition_id not in self._promoted and self._stored.holds(each.partition_id)
        ]
        if new:
            self._promoted.update((each.partition_id, each) for each in new)
            self._change_number += 1

    def release(self, data_sets: Collection[ClusterDataSetId]) -> None:
        """Drop what is here of these data sets; unknown ones are passed over."""
        gone = [key for key, each in self._promoted.items() if each.data_set in data_sets]
        if gone:
            self._stored.release(gone)
            for key in gone:
                del self._promoted[key]
            self._change_number += 1

    def release_of_job(self, partition_ids: Iterable[ResultPartitionId]) -> None:
        """A JobMaster does not need these any more: drop them, but for those that are the cluster's by now."""
        self._stored.release([key for key in partition_ids if key not in self._promoted])

    def release_job(self, job_id: JobId) -> None:
        """A job is over here: drop its results, but for those that are the cluster's."""
        self._stored.release_job(job_id, self._promoted.keys())

    def report(self) -> ClusterPartitionReport:
        """Return all that is here."""
        return ClusterPartitionReport(self._change_number, tuple(self._promoted.values()))

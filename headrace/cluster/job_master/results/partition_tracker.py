"""PartitionTracker: tracks results until their consumers are done, and chooses when to release them. Pure.

Only results that do not release themselves are tracked. Each is released once: when all its consumers have finished,
with all tasks that would restart together with one of them, or when the attempt that wrote it restarts. Results
left at the end of the job are released with the job's connection to each TaskManager. Persistent results of a job
that has finished are promoted instead, if their data set is complete: they belong to the cluster from then on.
Source: Flink JobMasterPartitionTrackerImpl.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from headrace.core.config import ConfigOption
from headrace.core.ids import ExecutionVertexId, ResourceId, ResultPartitionId
from headrace.core.shuffle_descriptors import ReleaseBy, ResultPartitionDescriptor
from headrace.gateways.messages import ClusterPartition

RELEASE_DURING_JOB: Final = ConfigOption(
    "jobmanager.partition.release-during-job-execution", bool, True,
    "Whether a stored result is deleted as soon as its consumers, and all tasks that would restart with them, have "
    "finished; if not, it is deleted when the job ends.",
)  # fmt: skip

ToRelease = dict[ResourceId | None, tuple[ResultPartitionId, ...]]
"""Results that each TaskManager must release and, under None, those that the shuffle master must release."""


class PartitionTracker:
    """Tracks the results of one job."""

    def __init__(self, releases_during_job: bool) -> None:
        self._releases_during_job = releases_during_job
        self._places: dict[ResultPartitionId, ResourceId | None] = {}
        self._consumer_counts: dict[ResultPartitionId, int] = {}
        self._consumed_by: dict[ResultPartitionId, set[ExecutionVertexId]] = {}
        # Only results on TaskManagers: no shuffle service keeps data beyond the job.
        self._persistent: dict[ResultPartitionId, ClusterPartition] = {}

    @property
    def tracked(self) -> frozenset[ResultPartitionId]:
        """Results that are, or will be, on a TaskManager or with a shuffle service."""
        return frozenset(self._places)

    def deployed(
        self,
        resource_id: ResourceId,
        descriptors: Iterable[ResultPartitionDescriptor],
        producer_count: int = 1,
    ) -> None:
        """Record the deployment of a task, one of `producer_count` subtasks, that writes these results."""
        for descriptor in descriptors:
            if descriptor.result_type.traits.release_by is ReleaseBy.SCHEDULER:
                shuffle = descriptor.shuffle
                is_external = shuffle is not None and shuffle.is_external
                self._places[descriptor.partition_id] = None if is_external else resource_id
                self._consumer_counts[descriptor.partition_id] = descriptor.subpartition_count
                self._consumed_by[descriptor.partition_id] = set()
                is_persistent = descriptor.result_type.traits.is_persistent
                if is_persistent and shuffle is not None and not is_external:
                    self._persistent[descriptor.partition_id] = ClusterPartition(
                        shuffle, producer_count
                    )

    def consumed(
        self, consumer: ExecutionVertexId, partition_ids: Iterable[ResultPartitionId]
    ) -> ToRelease:
        """Record that a task which read one subpartition of each result has finished for good.

        Return results to release.
        """
        done: list[ResultPartitionId] = []
        for partition_id in partition_ids:
            if partition_id in self._places:
                self._consumed_by[partition_id].add(consumer)
                is_done = (
                    len(self._consumed_by[partition_id]) == self._consumer_counts[partition_id]
                )
                if is_done and partition_id not in self._persistent:
                    done.append(partition_id)
        return self._release(done) if self._releases_during_job else {}

    def restarted(self, subtasks: Collection[ExecutionVertexId]) -> ToRelease:
        """Record that subtasks restart, so that they write new results and read others again.

        Return results to release.
        """
        for consumers in self._consumed_by.values():
            consumers.difference_update(subtasks)
        return self._release(
            [each for each in self._places if each.producer.execution_vertex_id in subtasks]
        )

    def promote(self) -> dict[ResourceId, tuple[ClusterPartition, ...]]:
        """Return the results that each TaskManager keeps for the cluster after the job has finished, and forget them.

        A data set with a lost part is useless: its other parts are released with the job.
        """
        counts = Counter(each.data_set for each in self._persistent.values())
        by_place: defaultdict[ResourceId, list[ClusterPartition]] = defaultdict(list)
        for partition_id, each in list(self._persistent.items()):
            place = self._places[partition_id]
            if place is not None and counts[each.data_set] == each.partition_count:
                by_place[place].append(each)
                self._forget(partition_id)
        return {place: tuple(found) for place, found in by_place.items()}

    def lost(self, resource_id: ResourceId) -> None:
        """Forget all results on a lost TaskManager; external ones stay."""
        for partition_id in [key for key, place in self._places.items() if place == resource_id]:
            self._forget(partition_id)

    def lose(self, partition_text: str) -> None:
        """Forget a result that a consumer could not read, so that its producer writes it again."""
        for partition_id in [key for key in self._places if str(key) == partition_text]:
            self._forget(partition_id)

    def _release(self, partition_ids: list[ResultPartitionId]) -> ToRelease:
        by_place: defaultdict[ResourceId | None, list[ResultPartitionId]] = defaultdict(list)
        for partition_id in partition_ids:
            by_place[self._places[partition_id]].append(partition_id)
            self._forget(partition_id)
        return {place: tuple(found) for place, found in by_place.items()}

    def _forget(self, partition_id: ResultPartitionId) -> None:
        del self._places[partition_id]
        del self._consumer_counts[partition_id]
        del self._consumed_by[partition_id]
        self._persistent.pop(partition_id, None)

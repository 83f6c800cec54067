"""ClusterPartitionTracker: tracks the data sets that jobs left to the cluster, as TaskManagers report them. Pure.

A data set of which a part was lost is of no use to anybody: its other parts are released, also those of which the
tracker learns only then; else they would keep their TaskManagers for ever. So are those that were released before they
were reported. All else comes again with the next reports.

ClusterPartitionRelease acts on it, on the ResourceManager's main thread. A data set can stay incomplete, because its
JobMaster or a TaskManager ended too early. It is released once nobody has led its job for
`resourcemanager.job.timeout`; till then its other parts may be on their way.
Source: Flink ResourceManagerPartitionTrackerImpl, ResourceManager.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Final

from headrace.cluster.resource_manager.options import JOB_TIMEOUT
from headrace.core.errors import HeadraceError
from headrace.core.ids import ClusterDataSetId, JobId, ResourceId
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.gateways.messages import (
    ClusterPartition,
    ClusterPartitionReport,
    DataSetInfo,
)
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)

DataSetsToRelease = dict[ResourceId, tuple[ClusterDataSetId, ...]]
"""Data sets that each TaskManager is to release."""
_NOTHING: Final = ClusterPartitionReport(-1)
UNWANTED_KEPT_MAX: Final = 1000
"""Number of data sets without a report that are remembered as lost or released."""


class ClusterPartitionTracker:
    """Tracks which TaskManager holds which data sets.

    Changes return the TaskManagers that have to release data sets; one that was not reached reports again, and is then
    told again.
    """

    def __init__(self) -> None:
        self._reports: dict[ResourceId, ClusterPartitionReport] = {}
        # Lost or released, oldest first: parts of them may still be reported, or for the first time.
        self._unwanted: dict[ClusterDataSetId, None] = {}

    def reported(
        self, resource_id: ResourceId, report: ClusterPartitionReport
    ) -> DataSetsToRelease:
        """A TaskManager says what it has; one that is older than the last changes nothing."""
        known = self._reports.get(resource_id, _NOTHING)
        if report.change_number < known.change_number:
            return {}
        there = {each.partition_id for each in report.partitions}
        lost = {each.data_set for each in known.partitions if each.partition_id not in there}
        self._reports[resource_id] = report
        self._unwanted |= dict.fromkeys(lost)
        stale = {each.data_set for each in report.partitions} & self._unwanted.keys()
        return self._telling(lost | stale, only=None if lost else resource_id)

    def registered(self, resource_id: ResourceId) -> None:
        """A TaskManager registered again, perhaps as another process: its next report counts, whatever its number."""
        known = self._reports.get(resource_id)
        if known is not None:
            self._reports[resource_id] = ClusterPartitionReport(-1, known.partitions)

    def lost(self, resource_id: ResourceId) -> DataSetsToRelease:
        """A TaskManager is gone, with everything on it."""
        report = self._reports.pop(resource_id, _NOTHING)
        lost = {each.data_set for each in report.partitions}
        self._unwanted |= dict.fromkeys(lost)
        return self._telling(lost)

    def release(self, data_sets: Collection[ClusterDataSetId]) -> DataSetsToRelease:
        """Release data sets, also parts that are reported only later, as their job may still go on."""
        self._unwanted |= dict.fromkeys(data_sets)
        return self._telling(data_sets)

    def incomplete(self) -> tuple[ClusterDataSetId, ...]:
        """Return those of which parts have not been reported yet, or never will be."""
        return tuple(info.data_set for info in self.data_sets() if not info.is_complete)

    def data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return what there is, and is not being released."""
        return tuple(
            DataSetInfo(key, parts[0].partition_count, len({_number(each) for each in parts}))
            for key, parts in sorted(self._parts().items())
            if key not in self._unwanted
        )

    def descriptors_of(self, data_set: ClusterDataSetId) -> tuple[ShuffleDescriptor, ...]:
        """Return where the partitions lie, by their numbers; none of a data set that is not complete, or unknown."""
        parts = self._parts().get(data_set, [])
        by_number = {_number(each): each.shuffle for each in parts}
        if data_set in self._unwanted or not parts or len(by_number) < parts[0].partition_count:
            return ()
        return tuple(by_number[number] for number in sorted(by_number))

    def _telling(
        self, data_sets: Iterable[ClusterDataSetId], only: ResourceId | None = None
    ) -> DataSetsToRelease:
        """Say who of those that have parts of these data sets is to be told."""
        wanted = set(data_sets)
        telling: DataSetsToRelease = {}
        held: set[ClusterDataSetId] = set()
        for resource_id, report in self._reports.items():
            here = {each.data_set for each in report.partitions}
            held |= here
            if here & wanted and only in (None, resource_id):
                telling[resource_id] = tuple(sorted(here & wanted))
        forgettable = [each for each in self._unwanted if each not in held]
        for each in forgettable[:-UNWANTED_KEPT_MAX]:
            del self._unwanted[each]
        return telling

    def _parts(self) -> dict[ClusterDataSetId, list[ClusterPartition]]:
        parts: defaultdict[ClusterDataSetId, list[ClusterPartition]] = defaultdict(list)
        for report in self._reports.values():
            for each in report.partitions:
                parts[each.data_set].append(each)
        return parts


def _number(partition: ClusterPartition) -> int:
    return partition.partition_id.partition_number


class ClusterPartitionRelease:
    """`gateway_of` finds a TaskManager that is registered, or None; `is_led` knows whether a job has a JobMaster."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        gateway_of: Callable[[ResourceId], TaskExecutorGateway | None],
        is_led: Callable[[JobId], bool],
    ) -> None:
        self._endpoint: Final = endpoint
        self._gateway_of: Final = gateway_of
        self._is_led: Final = is_led
        # Incomplete ones that are going to be looked at again.
        self._watched: set[ClusterDataSetId] = set()
        self.tracker: Final = ClusterPartitionTracker()
        """The data sets as they stand, to be read only."""

    def reported(self, resource_id: ResourceId, report: ClusterPartitionReport) -> None:
        """A TaskManager says what it has."""
        self._spawn(self.tracker.reported(resource_id, report))
        for data_set in self.tracker.incomplete():
            if data_set not in self._watched:
                self._watched.add(data_set)
                self._look_later(data_set)

    def registered(self, resource_id: ResourceId) -> None:
        """A TaskManager has registered, again perhaps."""
        self.tracker.registered(resource_id)

    def lost(self, resource_id: ResourceId) -> None:
        """A TaskManager is gone."""
        self._spawn(self.tracker.lost(resource_id))

    async def release(self, data_set: ClusterDataSetId) -> None:
        """Have a data set deleted, and wait for the answers; who does not answer is told again when it reports."""
        await self._release(self.tracker.release([data_set]))

    def _look_later(self, data_set: ClusterDataSetId) -> None:
        was_led = self._is_led(data_set.job_id)
        timeout_ms = self._endpoint.settings.duration_ms(JOB_TIMEOUT)
        self._endpoint.schedule_run_async(timeout_ms, lambda: self._look(data_set, was_led))

    def _look(self, data_set: ClusterDataSetId, was_led: bool) -> None:
        is_incomplete = data_set in self.tracker.incomplete()
        if is_incomplete and (was_led or self._is_led(data_set.job_id)):
            self._look_later(data_set)
            return
        self._watched.discard(data_set)
        if is_incomplete:
            _LOG.info("parts of data set %s will not come any more: it is released", data_set)
            self._spawn(self.tracker.release([data_set]))

    def _spawn(self, to_release: DataSetsToRelease) -> None:
        if to_release:
            self._endpoint.spawn(self._release(to_release), "release cluster partitions")

    async def _release(self, to_release: DataSetsToRelease) -> None:
        await asyncio.gather(*(self._tell(*each) for each in to_release.items()))

    async def _tell(self, resource_id: ResourceId, data_sets: Iterable[ClusterDataSetId]) -> None:
        gateway = self._gateway_of(resource_id)
        if gateway is None:
            return
        try:
            report = await gateway.release_cluster_partitions(tuple(data_sets))
        except HeadraceError as error:
            _LOG.info("%s did not release what it was asked to: %s", resource_id, error)
        else:
            # Only of one that is still there: an answer may come behind its loss.
            if self._gateway_of(resource_id) is gateway:
                self.reported(resource_id, report)

"""ClusterPartitionTracker: tracks the data sets that jobs left to the cluster, as TaskManagers report them. Pure.

A data set with a lost part is useless: its other parts are released, including parts of which the
tracker learns later; otherwise they would keep their TaskManagers forever. The same holds for data sets that were
released before they were reported. All other facts come again with the next reports.

ClusterPartitionRelease releases them on the ResourceManager's main thread. A data set can stay incomplete because its
JobMaster or a TaskManager ended too early. It is released once its job has had no leader for
`resourcemanager.job.timeout`; until then its other parts may still arrive.
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
"""Data sets that each TaskManager must release."""
_NOTHING: Final = ClusterPartitionReport(-1)
UNWANTED_KEPT_MAX: Final = 1000
"""Number of data sets without a report that are remembered as lost or released."""


class ClusterPartitionTracker:
    """Tracks the data sets of each TaskManager.

    Changes return the TaskManagers that must release data sets; one that could not be reached reports again, and is
    then returned again.
    """

    def __init__(self) -> None:
        self._reports: dict[ResourceId, ClusterPartitionReport] = {}
        # Lost or released data sets, oldest first: parts of them may still be reported, even for the first time.
        self._unwanted: dict[ClusterDataSetId, None] = {}

    def reported(
        self, resource_id: ResourceId, report: ClusterPartitionReport
    ) -> DataSetsToRelease:
        """Record a TaskManager's report; an older report than the last has no effect."""
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
        """Accept any number for the next report of a TaskManager that registered again, perhaps as another process."""
        known = self._reports.get(resource_id)
        if known is not None:
            self._reports[resource_id] = ClusterPartitionReport(-1, known.partitions)

    def lost(self, resource_id: ResourceId) -> DataSetsToRelease:
        """Record the loss of a TaskManager with its data."""
        report = self._reports.pop(resource_id, _NOTHING)
        lost = {each.data_set for each in report.partitions}
        self._unwanted |= dict.fromkeys(lost)
        return self._telling(lost)

    def release(self, data_sets: Collection[ClusterDataSetId]) -> DataSetsToRelease:
        """Release data sets, including parts that are reported later, because their job may still run."""
        self._unwanted |= dict.fromkeys(data_sets)
        return self._telling(data_sets)

    def incomplete(self) -> tuple[ClusterDataSetId, ...]:
        """Return data sets with parts that have not been reported yet, or never will be."""
        return tuple(info.data_set for info in self.data_sets() if not info.is_complete)

    def data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return the data sets that exist and are not being released."""
        return tuple(
            DataSetInfo(key, parts[0].partition_count, len({_number(each) for each in parts}))
            for key, parts in sorted(self._parts().items())
            if key not in self._unwanted
        )

    def descriptors_of(self, data_set: ClusterDataSetId) -> tuple[ShuffleDescriptor, ...]:
        """Return the descriptors of the partitions, by number; empty if the data set is incomplete or unknown."""
        parts = self._parts().get(data_set, [])
        by_number = {_number(each): each.shuffle for each in parts}
        if data_set in self._unwanted or not parts or len(by_number) < parts[0].partition_count:
            return ()
        return tuple(by_number[number] for number in sorted(by_number))

    def _telling(
        self, data_sets: Iterable[ClusterDataSetId], only: ResourceId | None = None
    ) -> DataSetsToRelease:
        """Return the TaskManagers that hold parts of these data sets and must be told."""
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
    """Releases the data sets of a cluster.

    `gateway_of` finds a registered TaskManager, or None; `is_led` returns whether a job has a JobMaster.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        gateway_of: Callable[[ResourceId], TaskExecutorGateway | None],
        is_led: Callable[[JobId], bool],
    ) -> None:
        self._endpoint: Final = endpoint
        self._gateway_of: Final = gateway_of
        self._is_led: Final = is_led
        # Incomplete data sets that will be checked again.
        self._watched: set[ClusterDataSetId] = set()
        self.tracker: Final = ClusterPartitionTracker()
        """Current data sets; read-only."""

    def reported(self, resource_id: ResourceId, report: ClusterPartitionReport) -> None:
        """Handle a TaskManager's report of its data sets."""
        self._spawn(self.tracker.reported(resource_id, report))
        for data_set in self.tracker.incomplete():
            if data_set not in self._watched:
                self._watched.add(data_set)
                self._look_later(data_set)

    def registered(self, resource_id: ResourceId) -> None:
        """Handle a registration of a TaskManager, perhaps a repeated one."""
        self.tracker.registered(resource_id)

    def lost(self, resource_id: ResourceId) -> None:
        """Handle the loss of a TaskManager."""
        self._spawn(self.tracker.lost(resource_id))

    async def release(self, data_set: ClusterDataSetId) -> None:
        """Delete a data set and wait for the answers; a TaskManager without an answer is told again when it reports."""
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
            _LOG.info(
                "releasing data set %s, because its missing parts will not arrive any more",
                data_set,
            )
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
            _LOG.info("%s could not release data sets: %s", resource_id, error)
        else:
            # Only if it is still registered: an answer may come after its loss.
            if self._gateway_of(resource_id) is gateway:
                self.reported(resource_id, report)

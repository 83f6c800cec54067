"""ClusterPartitionTracker: the data sets that jobs left to the cluster, as TaskManagers report them. Pure.

A data set of which a part was lost is of no use to anybody: its other parts are released, also those of which the
tracker learns only then; else they would keep their TaskManagers for ever. So are those that were released before they
were reported. But for that, nothing is kept that reports do not bring again.
Source: Flink ResourceManagerPartitionTrackerImpl.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from headrace.core.ids import ClusterDataSetId, ResourceId
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.gateways.messages import (
    ClusterPartition,
    ClusterPartitionReport,
    DataSetInfo,
)

DataSetsToRelease = dict[ResourceId, tuple[ClusterDataSetId, ...]]
"""What each TaskManager is to be told."""
_NOTHING: Final = ClusterPartitionReport(-1)
UNWANTED_KEPT_MAX: Final = 1000
"""So many data sets that nobody reports any more are remembered as lost or released."""


class ClusterPartitionTracker:
    """What lies where. Changes return who has to release what; whoever was not reached reports, and is told again."""

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
        """A TaskManager begins anew, perhaps as another process: its next report counts, whatever its number."""
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
        """Nobody wants these any more, nor those that are not there yet: their job may still go on."""
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

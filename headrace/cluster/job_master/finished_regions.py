"""FinishedRegions: which pipelined regions need their input no more, as every task of theirs has finished. Pure.

A task that has finished is begun anew with its region, as long as another task of that goes on and may fail.
Source: Flink RegionPartitionGroupReleaseStrategy.
"""

from collections.abc import Iterable
from typing import Final

from headrace.core.ids import ExecutionVertexId
from headrace.graph.execution_graph import ExecutionGraph


class FinishedRegions:
    """The regions of one job."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._regions: Final = [region.vertices for region in graph.regions]
        self._region_of: Final = {
            subtask: number for number, region in enumerate(self._regions) for subtask in region
        }
        self._unfinished: Final = [set(region) for region in self._regions]

    def finished(self, subtask: ExecutionVertexId) -> tuple[ExecutionVertexId, ...]:
        """Take note of a task's end; return its whole region where it was the last of that, else nothing."""
        number = self._region_of[subtask]
        self._unfinished[number].discard(subtask)
        return () if self._unfinished[number] else self._regions[number]

    def needs_input(self, subtask: ExecutionVertexId) -> bool:
        """Whether a task of its region has yet to finish, with which it would be begun anew."""
        return bool(self._unfinished[self._region_of[subtask]])

    def restarted(self, subtasks: Iterable[ExecutionVertexId]) -> None:
        """These begin anew."""
        for subtask in subtasks:
            self._unfinished[self._region_of[subtask]].add(subtask)

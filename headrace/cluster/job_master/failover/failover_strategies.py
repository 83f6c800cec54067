"""Failover strategies: choose the subtasks that restart when one has failed. Pure.

Subtasks that exchange records without storing them restart together, because their streams cannot be repeated singly.
A job whose exchanges are all pipelined, one of them all-to-all, is one region. FinishedRegions finds the regions that
no longer need their input because all their tasks have finished: a finished task restarts with its region while
another task of that region runs and may fail.
Source: Flink RestartPipelinedRegionFailoverStrategy, RestartAllFailoverStrategy, RegionPartitionGroupReleaseStrategy.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from headrace.core.config import ConfigOption, Settings
from headrace.core.ids import ExecutionVertexId
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.graph.execution_graph import ExecutionEdge, ExecutionGraph

FAILOVER_STRATEGY: Final = ConfigOption(
    "jobmanager.execution.failover-strategy", str, "region",
    "Tasks that restart when one fails: `region`, the tasks that exchange records with it without storing them, or "
    "`full`, all of them.",
    choices=("region", "full"),
)  # fmt: skip

IsAvailable = Callable[[ExecutionEdge, int], bool]
"""Returns whether the stored result of a producer subtask along an edge can still be read."""


class FailoverStrategy(Protocol):
    """Chooses the subtasks that restart after a failure."""

    def subtasks_to_restart(
        self, failed: Iterable[ExecutionVertexId], is_available: IsAvailable
    ) -> frozenset[ExecutionVertexId]:
        """Return all subtasks that must restart, including the failed ones."""
        ...


class RestartAll:
    """Restarts all subtasks of the job."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._all = frozenset(subtask for region in graph.regions for subtask in region.vertices)

    def subtasks_to_restart(
        self, failed: Iterable[ExecutionVertexId], is_available: IsAvailable
    ) -> frozenset[ExecutionVertexId]:
        return self._all


class RestartPipelinedRegions:
    """Restarts the region of the failed subtask, and all regions that must restart with it.

    These are producers whose results cannot be read again, and all consumers, whose input could differ from the
    earlier one.
    """

    def __init__(self, graph: ExecutionGraph) -> None:
        self._regions = [region.vertices for region in graph.regions]
        self._region_of = {
            subtask: number for number, region in enumerate(self._regions) for subtask in region
        }
        # Edges between regions only; within a region all tasks restart anyway.
        self._inputs: dict[int, set[tuple[int, ExecutionEdge, int]]] = defaultdict(set)
        self._consumers: dict[int, set[int]] = defaultdict(set)
        for edge in graph.edges:
            self._connect(edge)

    def subtasks_to_restart(
        self, failed: Iterable[ExecutionVertexId], is_available: IsAvailable
    ) -> frozenset[ExecutionVertexId]:
        waiting = deque(sorted({self._region_of[subtask] for subtask in failed}))
        chosen = set(waiting)
        while waiting:
            region = waiting.popleft()
            lost = {
                producer
                for producer, edge, partition_number in self._inputs[region]
                if producer not in chosen and not _is_readable(edge, partition_number, is_available)
            }
            for following in sorted((lost | self._consumers[region]) - chosen):
                chosen.add(following)
                waiting.append(following)
        return frozenset(subtask for region in chosen for subtask in self._regions[region])

    def _connect(self, edge: ExecutionEdge) -> None:
        source, target = edge.job_edge.source_vertex_id, edge.job_edge.target_vertex_id
        if edge.job_edge.result_type.traits.joins_regions:
            return
        for index in range(edge.consumer_count):
            consumer = self._region_of[ExecutionVertexId(target, index)]
            for partition_number in edge.producers_of(index):
                producer = self._region_of[ExecutionVertexId(source, partition_number)]
                if producer != consumer:
                    self._inputs[consumer].add((producer, edge, partition_number))
                    self._consumers[producer].add(consumer)


def _is_readable(edge: ExecutionEdge, partition_number: int, is_available: IsAvailable) -> bool:
    result_type = edge.job_edge.result_type
    if result_type is ResultPartitionType.PIPELINED_APPROXIMATE:
        # Its consumer goes on if it can, and loses in-flight rows.
        return True
    return result_type.traits.is_reconsumable and is_available(edge, partition_number)


def create_failover_strategy(settings: Settings, graph: ExecutionGraph) -> FailoverStrategy:
    """Return the strategy that the settings name. ConfigurationError for an unknown name."""
    is_full = settings.get_option(FAILOVER_STRATEGY) == "full"
    return RestartAll(graph) if is_full else RestartPipelinedRegions(graph)


class FinishedRegions:
    """Tracks the regions of one job whose tasks have all finished."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._regions: Final = [region.vertices for region in graph.regions]
        self._region_of: Final = {
            subtask: number for number, region in enumerate(self._regions) for subtask in region
        }
        self._unfinished: Final = [set(region) for region in self._regions]

    def finished(self, subtask: ExecutionVertexId) -> tuple[ExecutionVertexId, ...]:
        """Record that a task has finished; return its whole region if it was the last one, otherwise nothing."""
        number = self._region_of[subtask]
        self._unfinished[number].discard(subtask)
        return () if self._unfinished[number] else self._regions[number]

    def needs_input(self, subtask: ExecutionVertexId) -> bool:
        """Return whether a task of its region, with which it would restart, has not finished yet."""
        return bool(self._unfinished[self._region_of[subtask]])

    def restarted(self, subtasks: Iterable[ExecutionVertexId]) -> None:
        """Record that these subtasks restart."""
        for subtask in subtasks:
            self._unfinished[self._region_of[subtask]].add(subtask)

"""CachedInputs: tracks the data sets of earlier jobs that a job reads: their locations, and their loss. Pure.

No task of this job can write such a data set again: once it cannot be read, the job ends, and a program runs the job
that creates it again. Source: Flink ClusterDatasetCorruptedException, Execution.handlePartitionException.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from headrace.cluster.error_reports import error_info_of
from headrace.core.errors import ClusterDatasetCorruptedError
from headrace.core.ids import (
    ClusterDataSetId,
    ExecutionVertexId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
)
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import JobGraph

DataSetPlaces = Mapping[ClusterDataSetId, tuple[ShuffleDescriptor, ...]]
"""Descriptors of the partitions of data sets, ordered by partition number."""


class CachedInputs:
    """Vertices of one job that read such data sets: subtask i reads only partition i."""

    def __init__(self, graph: JobGraph) -> None:
        self._data_sets: Final = {
            vertex.vertex_id: vertex.cached_input
            for vertex in graph.vertices
            if vertex.cached_input is not None
        }
        self._parallelism: Final = {
            vertex.vertex_id: vertex.parallelism for vertex in graph.vertices
        }
        self._places: dict[ClusterDataSetId, tuple[ShuffleDescriptor, ...]] = {}

    def needed_by(self, subtasks: Collection[ExecutionVertexId]) -> tuple[ClusterDataSetId, ...]:
        """Return the data sets that these subtasks read, each once."""
        read = (self._data_sets.get(subtask.vertex_id) for subtask in subtasks)
        return tuple(sorted({data_set for data_set in read if data_set is not None}))

    def found(self, places: DataSetPlaces) -> ErrorInfo | None:
        """Record the locations of data sets; return an error if one is missing, or does not match its readers."""
        self._places.update(places)
        for vertex_id, data_set in self._data_sets.items():
            if data_set not in places:
                continue
            count = len(places[data_set])
            if not count:
                return _corrupted(data_set, "the cluster has lost it, or was asked to release it")
            if count != self._parallelism[vertex_id]:
                expected = self._parallelism[vertex_id]
                return _corrupted(data_set, f"it has {count} partitions instead of {expected}")
        return None

    def gate_of(self, subtask: ExecutionVertexId) -> InputGateDescriptor | None:
        """Return the input of a subtask that reads a data set, or None if it reads results of its own job."""
        data_set = self._data_sets.get(subtask.vertex_id)
        if data_set is None:
            return None
        # A whole partition: the job that left it to the cluster wrote one subpartition per partition.
        channel = InputChannelDescriptor(self._places[data_set][subtask.subtask_index], 0)
        kind = ResultPartitionType.BLOCKING_PERSISTENT
        return InputGateDescriptor(data_set.data_set_id, 0, (channel,), kind)

    def reads(self, partition_id: ResultPartitionId) -> bool:
        """Return whether a partition belongs to a data set that this job reads."""
        key = ClusterDataSetId(partition_id.producer.job_id, partition_id.data_set_id)
        return key in self._data_sets.values()

    def lost_with(
        self, resource_id: ResourceId, readers: Iterable[ExecutionVertexId]
    ) -> ErrorInfo | None:
        """Return the error if a lost TaskManager held data that one of these subtasks may still read, else None."""
        for subtask in readers:
            data_set = self._data_sets.get(subtask.vertex_id)
            places = () if data_set is None else self._places.get(data_set, ())
            if places and places[subtask.subtask_index].stored_by == resource_id:
                assert data_set is not None
                return _corrupted(data_set, f"TaskManager {resource_id}, which stored it, was lost")
        return None


def _corrupted(data_set: ClusterDataSetId, reason: str) -> ErrorInfo:
    return error_info_of(ClusterDatasetCorruptedError(data_set, reason))

"""Physical partitioning: to which subtasks of the next operator records go. Source: Flink DataStream."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.api.function_checks import check_key_selector, check_partitioner
from headrace.functions.record import KeySelector, Partitioner
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import Partitioning

if TYPE_CHECKING:
    from headrace.api.data_stream import DataStream


class PhysicalPartitioning(ABC):
    """The ways that any stream has; by key goes `DataStream.key_by`, to everybody `DataStream.broadcast`."""

    @abstractmethod
    def _partitioned(self, partitioning: Partitioning) -> "DataStream":
        """Return the stream whose records go where `partitioning` says."""

    def shuffle(self) -> "DataStream":
        """Send each record to a random subtask."""
        return self._partitioned(Partitioning(PartitionerKind.SHUFFLE))

    def rescale(self) -> "DataStream":
        """Go round robin inside groups of neighbouring subtasks."""
        return self._partitioned(Partitioning(PartitionerKind.RESCALE))

    def rebalance(self) -> "DataStream":
        """Go round robin over all subtasks."""
        return self._partitioned(Partitioning(PartitionerKind.REBALANCE))

    def forward(self) -> "DataStream":
        """Send to the subtask of the same index; needs equal parallelism."""
        return self._partitioned(Partitioning(PartitionerKind.FORWARD))

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector,
    ) -> "DataStream":
        """Send each record where `partitioner(key, num_partitions)` says; an index out of range fails the job."""
        check_partitioner(partitioner)
        check_key_selector(key_selector)
        return self._partitioned(Partitioning(PartitionerKind.CUSTOM, (partitioner, key_selector)))

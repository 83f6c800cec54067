"""Partitions that outlive their job, and reports of them."""

from headrace.core.ids import ClusterDataSetId
from headrace.core.shuffle_descriptors import ShuffleDescriptor, TaskManagerLocation
from headrace.gateways.messages import (
    ClusterPartition,
    ClusterPartitionReport,
)
from tests.unit.cluster.cluster_samples import TM_1
from tests.unit.network.exchange import partition_id

LOCATION = TaskManagerLocation(TM_1, "worker", 1, None, "host")


def part(number: int, of: int = 2, attempt: int = 0) -> ClusterPartition:
    """Partition `number` of a data set of `of`."""
    return ClusterPartition(ShuffleDescriptor(partition_id(number, attempt), LOCATION), of)


DATA_SET: ClusterDataSetId = part(0).data_set


def report(change_number: int, *parts: ClusterPartition) -> ClusterPartitionReport:
    return ClusterPartitionReport(change_number, parts)

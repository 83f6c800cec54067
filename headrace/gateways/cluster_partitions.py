"""Results that outlive their job: what TaskManagers, JobMasters and the ResourceManager tell each other of them.

Source: Flink ClusterPartitionReport, DataSetMetaInfo.
"""

import msgspec

from headrace.core.ids import ClusterDataSetId, ResultPartitionId
from headrace.core.shuffle_descriptors import ShuffleDescriptor


class ClusterPartition(msgspec.Struct, frozen=True):
    """One partition of a data set that belongs to the cluster, of `partition_count` altogether."""

    shuffle: ShuffleDescriptor
    partition_count: int

    @property
    def partition_id(self) -> ResultPartitionId:
        """Which one."""
        return self.shuffle.partition_id

    @property
    def data_set(self) -> ClusterDataSetId:
        """What it is a part of."""
        key = self.shuffle.partition_id
        return ClusterDataSetId(key.producer.job_id, key.data_set_id)


class ClusterPartitionReport(msgspec.Struct, frozen=True):
    """All partitions of the cluster on one TaskManager, now.

    `change_number` grows with every change there: a report that comes late can be told from what happened since.
    """

    change_number: int = 0
    partitions: tuple[ClusterPartition, ...] = ()


class DataSetInfo(msgspec.Struct, frozen=True):
    """A data set of the cluster; complete where all its partitions are there."""

    data_set: ClusterDataSetId
    partition_count: int
    stored_count: int

    @property
    def is_complete(self) -> bool:
        """Whether it can be read."""
        return self.stored_count == self.partition_count

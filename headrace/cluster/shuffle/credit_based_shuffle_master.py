"""CreditBasedShuffleMaster: results lie with their producers, and nothing is to be remembered of them.

Source: Flink NettyShuffleMaster.
"""

from collections.abc import Collection

from headrace.cluster.shuffle.shuffle_master import JobShuffleContext
from headrace.core.ids import JobId, ResultPartitionId
from headrace.core.shuffle_descriptors import (
    PartitionDescriptor,
    ProducerDescriptor,
    ShuffleDescriptor,
)


class CreditBasedShuffleMaster:
    """See ShuffleMaster."""

    async def start(self) -> None:
        """See ShuffleMaster."""

    async def close(self) -> None:
        """See ShuffleMaster."""

    def register_job(self, context: JobShuffleContext) -> None:
        """See ShuffleMaster."""

    def unregister_job(self, job_id: JobId) -> None:
        """See ShuffleMaster."""

    async def register_partition_with_producer(
        self, job_id: JobId, partition: PartitionDescriptor, producer: ProducerDescriptor
    ) -> ShuffleDescriptor:
        """See ShuffleMaster: where its producer is."""
        partition_id = ResultPartitionId(
            partition.data_set_id, partition.partition_number, producer.attempt_id
        )
        return ShuffleDescriptor(partition_id, producer.location)

    def release_partitions_externally(self, descriptors: Collection[ShuffleDescriptor]) -> None:
        """See ShuffleMaster: there are none."""

"""ShuffleMaster: registers result locations for all jobs of a cluster. The JobManager's part of a shuffle plug-in.

Life of an edge: the JobMaster registers each partition with its producer and waits for the descriptor; producer and
consumers are deployed with it; when no task needs the partition any more it is released, on its TaskManager
(`stored_by`) or, if it is external, by the master. With CreditBasedShuffleMaster results stay with their producers.
Source: Flink ShuffleMaster, JobShuffleContext, NettyShuffleMaster.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.ids import JobId, ResultPartitionId
from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import (
    PartitionDescriptor,
    ProducerDescriptor,
    ShuffleDescriptor,
)


@dataclass(frozen=True)
class ShuffleMasterContext:
    """Services and settings that the JobManager passes to its shuffle master.

    `on_fatal_error` ends the JobManager if the master cannot continue.
    """

    settings: Settings
    secret: bytes = field(repr=False)
    clock: Clock
    random: SeededRandom
    tls: TlsIdentity | None
    on_fatal_error: Callable[[BaseException], None]


@dataclass(frozen=True)
class JobShuffleContext:
    """Services that a job passes to the shuffle master.

    `partitions_lost(error)` reports the loss of all external data of the job in a single call; the job fails over. Call
    it on the JobManager's loop.
    """

    job_id: JobId
    partitions_lost: Callable[[HeadraceError], None]


class ShuffleMaster(Protocol):
    """Registers result partitions and returns their locations.

    One per cluster, on the JobManager's loop, without blocking.
    """

    async def start(self) -> None:
        """Start the master. An error ends the JobManager."""
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...

    def register_job(self, context: JobShuffleContext) -> None:
        """Register a job that starts."""
        ...

    def unregister_job(self, job_id: JobId) -> None:
        """Forget a job that has ended; all its external data may be deleted. Idempotent."""
        ...

    async def register_partition_with_producer(
        self, job_id: JobId, partition: PartitionDescriptor, producer: ProducerDescriptor
    ) -> ShuffleDescriptor:
        """Return the descriptor with the location of a partition.

        An error or a time-out fails the attempt before deployment.
        """
        ...

    def release_partitions_externally(self, descriptors: Collection[ShuffleDescriptor]) -> None:
        """Delete external partitions, each of which is passed once; unknown ones are ignored."""
        ...


class PartitionRegistrationError(HeadraceError):
    """The shuffle plug-in failed to return the location of a result, or did not return it in time."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, partition_text: str, reason: str) -> None:
        super().__init__(
            f"the shuffle plug-in did not register result partition {partition_text}: {reason}"
        )
        self.partition_text = partition_text
        self.reason = reason


class CreditBasedShuffleMaster:
    """Registers partitions at their producers' TaskManagers, and keeps no state. Implements ShuffleMaster."""

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def register_job(self, context: JobShuffleContext) -> None:
        pass

    def unregister_job(self, job_id: JobId) -> None:
        pass

    async def register_partition_with_producer(
        self, job_id: JobId, partition: PartitionDescriptor, producer: ProducerDescriptor
    ) -> ShuffleDescriptor:
        """Return a descriptor with the location of the producer."""
        partition_id = ResultPartitionId(
            partition.data_set_id, partition.partition_number, producer.attempt_id
        )
        return ShuffleDescriptor(partition_id, producer.location)

    def release_partitions_externally(self, descriptors: Collection[ShuffleDescriptor]) -> None:
        """Do nothing: there are no external partitions."""

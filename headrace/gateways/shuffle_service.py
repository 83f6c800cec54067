"""ShuffleServiceGateway: a JobManager's calls to a remote shuffle service. Not fenced: attempts are in the ids.

Every call may be repeated.
"""

from typing import Final, Protocol

import msgspec

from headrace.core.ids import JobId, ResultPartitionId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.messages import Acknowledge

SHUFFLE_SERVICE_ENDPOINT: Final = "shuffleservice"
"""Name of the endpoint at the address of the service."""


class ShuffleServiceStatus(msgspec.Struct, frozen=True):
    """The current status of the service. `location` is the address of its data plane."""

    location: TaskManagerLocation
    partition_count: int
    committed_count: int
    stored_bytes: int
    connection_count: int


class ShuffleServiceGateway(Protocol):
    """The endpoint of a shuffle service's process."""

    async def register_partition(
        self, partition_id: ResultPartitionId, subpartition_count: int
    ) -> TaskManagerLocation:
        """Expect a partition, and return the address for pushing and reading it.

        Early consumers wait for its commit.
        """
        ...

    async def release_partitions(self, partition_ids: tuple[ResultPartitionId, ...]) -> Acknowledge:
        """Delete partitions, committed or not. Unknown ones are ignored."""
        ...

    async def release_job(self, job_id: JobId) -> Acknowledge:
        """Delete everything of a job that has ended."""
        ...

    async def heartbeat(self, job_ids: tuple[JobId, ...]) -> ShuffleServiceStatus:
        """Report that these jobs run: their partitions are kept for another lease."""
        ...

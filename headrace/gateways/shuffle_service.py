"""ShuffleServiceGateway: a JobManager's calls to a remote shuffle service. Not fenced: attempts are in the ids.

Every call may be repeated.
"""

from typing import Final, Protocol

import msgspec

from headrace.core.ids import JobId, ResultPartitionId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.messages import Acknowledge

SHUFFLE_SERVICE_ENDPOINT: Final = "shuffleservice"
"""Its name at the address of the service."""


class ShuffleServiceStatus(msgspec.Struct, frozen=True):
    """The service at this moment. `location` is where its data plane is reached."""

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
        """Expect a partition: say where it is pushed and read. Consumers that come early wait for its commit."""
        ...

    async def release_partitions(self, partition_ids: tuple[ResultPartitionId, ...]) -> Acknowledge:
        """Delete partitions, committed or not. Unknown ones are passed over."""
        ...

    async def release_job(self, job_id: JobId) -> Acknowledge:
        """The job is over: delete everything of it."""
        ...

    async def heartbeat(self, job_ids: tuple[JobId, ...]) -> ShuffleServiceStatus:
        """These jobs live: their partitions stay for another lease."""
        ...

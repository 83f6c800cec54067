"""ShuffleServiceEndpoint: answers the calls of JobManagers to a shuffle service, and holds the leases of their jobs."""

from collections.abc import Iterable
from typing import Final

from headrace.core.ids import JobId, ResultPartitionId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.messages import Acknowledge
from headrace.gateways.shuffle_service import (
    SHUFFLE_SERVICE_ENDPOINT,
    ShuffleServiceGateway,
    ShuffleServiceStatus,
)
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.service import RpcService
from headrace.shuffle_service.options import LEASE
from headrace.shuffle_service.service import ShuffleService

_LOOKS_PER_LEASE: Final = 10


class ShuffleServiceEndpoint(RpcEndpoint, ShuffleServiceGateway):
    """RPC endpoint of a shuffle service that has been started; one per service."""

    def __init__(self, rpc_service: RpcService, service: ShuffleService) -> None:
        super().__init__(rpc_service, SHUFFLE_SERVICE_ENDPOINT)
        self._service: Final = service
        self._lease_ms: Final = self.settings.duration_ms(LEASE)
        self._leases: Final = JobLeases(self._lease_ms)

    async def on_start(self) -> None:
        """Give each job with recovered results a lease, in which its JobManager may reconnect."""
        self._leases.heard(self._service.job_ids, self._now_ms())
        self._look()

    async def register_partition(
        self, partition_id: ResultPartitionId, subpartition_count: int
    ) -> TaskManagerLocation:
        self._leases.heard([partition_id.producer.job_id], self._now_ms())
        self._service.register_partition(partition_id, subpartition_count)
        return self._service.location

    async def release_partitions(self, partition_ids: tuple[ResultPartitionId, ...]) -> Acknowledge:
        self._service.release_partitions(partition_ids)
        return Acknowledge()

    async def release_job(self, job_id: JobId) -> Acknowledge:
        self._leases.forget(job_id)
        self._service.release_job(job_id)
        return Acknowledge()

    async def heartbeat(self, job_ids: tuple[JobId, ...]) -> ShuffleServiceStatus:
        self._leases.heard(job_ids, self._now_ms())
        service = self._service
        return ShuffleServiceStatus(
            service.location,
            service.partition_count,
            service.committed_count,
            service.stored_bytes,
            service.connection_count,
        )

    def _look(self) -> None:
        for job_id in self._leases.expire(self._now_ms()):
            self._service.release_job(job_id)
        self.schedule_run_async(self._lease_ms / _LOOKS_PER_LEASE, self._look)

    def _now_ms(self) -> float:
        return self.clock.monotonic_ns() / 1e6


class JobLeases:
    """Leases of jobs: each expires `lease_ms` after its job's last message. Pure; times are ms of a monotonic clock.

    Source: Flink Remote Shuffle's heartbeat timeouts.
    """

    def __init__(self, lease_ms: float) -> None:
        self._lease_ms: Final = lease_ms
        self._heard_ms: dict[JobId, float] = {}

    @property
    def job_ids(self) -> frozenset[JobId]:
        """Return the jobs that have a lease."""
        return frozenset(self._heard_ms)

    def heard(self, job_ids: Iterable[JobId], now_ms: float) -> None:
        """Renew the leases of these jobs."""
        for job_id in job_ids:
            self._heard_ms[job_id] = now_ms

    def forget(self, job_id: JobId) -> None:
        """Drop the lease of a job that has ended. Idempotent."""
        self._heard_ms.pop(job_id, None)

    def expire(self, now_ms: float) -> list[JobId]:
        """Drop and return the jobs whose lease has expired."""
        over = [job_id for job_id, at in self._heard_ms.items() if now_ms - at >= self._lease_ms]
        for job_id in over:
            del self._heard_ms[job_id]
        return over

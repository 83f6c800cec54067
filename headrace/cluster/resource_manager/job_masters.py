"""JobMasters: the JobMasters registered at the ResourceManager. A job without a leader for too long loses its slots."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.cluster.resource_manager.options import JOB_TIMEOUT
from headrace.core.ids import JobId, JobMasterId, ResourceId, ResourceManagerId
from headrace.gateways.job_master import JobMasterGateway
from headrace.gateways.messages import Acknowledge
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.heartbeat import HeartbeatLoss, HeartbeatSender


@dataclass(frozen=True)
class RegisteredJobMaster:
    """Registered leader of one job."""

    job_master_id: JobMasterId
    address: str
    gateway: JobMasterGateway
    resource_id: ResourceId


class JobMasters:
    """JobMasters by job. `on_forgotten(job_id)` is called with jobs that had no leader for too long."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        resource_manager_id: ResourceManagerId,
        resource_id: ResourceId,
        on_forgotten: Callable[[JobId], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._resource_manager_id: Final = resource_manager_id
        self._resource_id: Final = resource_id
        self._on_forgotten: Final = on_forgotten
        self._registered: dict[JobId, RegisteredJobMaster] = {}
        self._heartbeats: Final = HeartbeatSender[Acknowledge](
            endpoint, self._silent, lambda _, __: None
        )

    def find(self, job_id: JobId) -> RegisteredJobMaster | None:
        """Return the job's leader, or None."""
        return self._registered.get(job_id)

    def is_leader(self, job_id: JobId, job_master_id: JobMasterId) -> bool:
        """Return whether messages of this session may change the job's requirements."""
        job_master = self._registered.get(job_id)
        return job_master is not None and job_master.job_master_id == job_master_id

    def add(self, job_id: JobId, job_master: RegisteredJobMaster) -> None:
        """Monitor a leader, in place of an earlier one of the same job."""
        self.forget(job_id)
        self._registered[job_id] = job_master
        self._heartbeats.monitor_target(
            job_master.resource_id,
            lambda: job_master.gateway.heartbeat_from_resource_manager(self._resource_id),
        )

    def forget(self, job_id: JobId) -> None:
        """Stop monitoring the leader of a job; no effect if there is none."""
        job_master = self._registered.pop(job_id, None)
        if job_master is not None:
            self._heartbeats.unmonitor_target(job_master.resource_id)

    def stop(self) -> None:
        """Stop all heartbeats."""
        self._heartbeats.stop()

    def _silent(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        """Drop a silent JobMaster, but keep the job's requirements for a while: another leader may come."""
        for job_id, job_master in tuple(self._registered.items()):
            if job_master.resource_id == resource_id:
                job_master.gateway.disconnect_resource_manager(self._resource_manager_id, loss.text)
                self.forget(job_id)
                self._give_up_later(job_id)

    def _give_up_later(self, job_id: JobId) -> None:
        def give_up() -> None:
            if job_id not in self._registered:
                self._on_forgotten(job_id)

        timeout_ms = self._endpoint.settings.duration_ms(JOB_TIMEOUT)
        self._endpoint.schedule_run_async(timeout_ms, give_up)

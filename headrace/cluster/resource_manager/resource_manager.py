"""ResourceManager: the endpoint that owns the cluster's slots and requests workers from the host.

All its state can be rebuilt: slots come from reports, requirements from declarations. Its loss does not affect tasks:
the next one takes over the workers, and assigns slots once their TaskManagers have reported or had time to.
Source: Flink ResourceManager, ActiveResourceManager.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.cluster.lock_witness import LockWitness
from headrace.cluster.resource_manager.blocklist import Blocklist
from headrace.cluster.resource_manager.cluster_partition_tracker import ClusterPartitionRelease
from headrace.cluster.resource_manager.driver import WorkerHost
from headrace.cluster.resource_manager.job_masters import JobMasters, RegisteredJobMaster
from headrace.cluster.resource_manager.options import DECOMMISSION_GRACE
from headrace.cluster.resource_manager.registered_task_managers import (
    RegisteredTaskManager,
    RegisteredTaskManagers,
)
from headrace.cluster.resource_manager.slot_manager import SlotManager, explain_missing
from headrace.cluster.resource_manager.slot_matching import (
    RequirementsDeclared,
    SlotFreed,
    SlotsReported,
    TaskManagerAdded,
    TaskManagerDecommissioned,
    TaskManagerRemoved,
)
from headrace.cluster.resource_manager.task_manager_inspection import TaskManagerInspection
from headrace.cluster.resource_manager.worker_events import (
    IdleReleaseAgreed,
    WorkerDecommissioned,
    WorkerLost,
)
from headrace.cluster.resource_manager.workers import Workers
from headrace.cluster.versions import find_mismatch
from headrace.core.errors import HeadraceError
from headrace.core.ids import (
    AllocationId,
    ClusterDataSetId,
    InstanceId,
    JobId,
    JobMasterId,
    JobVertexId,
    ResourceId,
    ResourceManagerId,
    SlotId,
)
from headrace.core.process.flame_graph import FlameGraphNode
from headrace.core.process.log_files import LogFile, LogPiece
from headrace.core.process.process_profiler import ProfilingInfo, ProfilingMode
from headrace.core.process.stack_sampler import StackSamples
from headrace.core.process.thread_dump import ThreadInfo
from headrace.core.resource_profile import UNSPECIFIED
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.core.threads import BlockingRunner, run_in_thread
from headrace.gateways.errors import StaleLeaderError, UnknownTaskManagerError
from headrace.gateways.job_master import JobMasterGateway
from headrace.gateways.messages import (
    Acknowledge,
    ClusterPartitionReport,
    DataSetInfo,
    RegistrationRefused,
    RegistrationRejected,
    SlotReport,
)
from headrace.gateways.resource_manager import (
    JobMasterRegistered,
    JobMasterRegistrationResponse,
    ResourceManagerGateway,
    ResourceOverview,
    ResourceRequirements,
    TaskExecutorRegistered,
    TaskExecutorRegistration,
    TaskExecutorRegistrationResponse,
    TaskManagerInfo,
)
from headrace.gateways.task_executor import (
    TaskExecutorGateway,
    TaskExecutorHeartbeatPayload,
)
from headrace.rpc.endpoint import FencedRpcEndpoint
from headrace.rpc.errors import EndpointFailedError, RpcError
from headrace.rpc.heartbeat import HeartbeatLoss, HeartbeatSender
from headrace.rpc.service import RpcService

_LOG = logging.getLogger(__name__)
_LEAVING: Final = "decommissioned: "


@dataclass(frozen=True)
class _SlotsReport:
    """Report of a TaskManager, and the number of changes of its slots' owners at the time of the request."""

    payload: TaskExecutorHeartbeatPayload
    change_number: int


class ResourceManager(FencedRpcEndpoint[ResourceManagerId], ResourceManagerGateway):
    """Manages the slots of a cluster; one at a time. `on_host_failed` is called if the host has failed.

    `is_followed` returns whether another one will replace this one after a failure; if not, the cluster fails. `close`
    leaves all TaskManagers to the next one, `shut_down` stops them. `log_folder` is the folder in which TaskManagers of
    this host write their logs, or None.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        resource_manager_id: ResourceManagerId,
        host: WorkerHost,
        *,
        resource_id: ResourceId,
        versions: Mapping[str, str],
        on_host_failed: Callable[[BaseException], None],
        is_followed: Callable[[], bool] = lambda: False,
        run_blocking: BlockingRunner = run_in_thread,
        log_folder: Path | None = None,
    ) -> None:
        name = rpc_service.create_endpoint_name("resourcemanager")
        super().__init__(rpc_service, name, resource_manager_id)
        self._resource_id: Final = resource_id
        self._versions: Final = dict(versions)
        self._on_host_failed: Final = on_host_failed
        self._is_followed: Final = is_followed
        self._is_leaving = False
        self._is_shutting_down = False
        self._task_managers: Final = RegisteredTaskManagers(self)
        self._workers: Final = Workers(
            self,
            host,
            stop=self._stop_task_manager,
            ask_whether_releasable=self._ask_whether_releasable,
            on_terminated=self._lose_task_manager,
            on_decommissioned=self._decommission,
            on_interpreter_failed=self._interpreter_failed,
            on_host_failed=self._host_failed,
        )
        self._job_masters: Final = JobMasters(
            self, resource_manager_id, resource_id, self._forget_requirements
        )
        self._blocklist: Final = Blocklist(self.settings)
        self._slots: Final = SlotManager(
            self,
            resource_manager_id,
            self._task_managers,
            self._job_masters,
            self._workers.handle,
            self._is_blocked,
            self._workers.may_another_come,
            self._workers.profile_of,
            self._workers.refusal_of_size,
            self._workers.slot_capacity,
        )
        self._data_sets: Final = ClusterPartitionRelease(
            self,
            self._task_managers.gateway_of,
            lambda job_id: self._job_masters.find(job_id) is not None,
        )
        self._inspection: Final = TaskManagerInspection(
            self, self._task_managers.gateway_of, run_blocking, log_folder
        )
        self._lock_witness: Final = LockWitness(self)
        self._heartbeats: Final = HeartbeatSender[_SlotsReport](
            self, self._task_manager_silent, self._answered, witness=self._lock_witness.excuses
        )

    def on_fatal_error(self, error: BaseException) -> None:
        """End, so that another ResourceManager follows or the cluster fails, because slots may never come any more."""
        if self._is_leaving:
            return
        if self._is_followed():
            self._is_leaving = True
            super().on_fatal_error(error)
        else:
            self.rpc_service.fatal_error(EndpointFailedError(self.address, error))

    async def on_start(self) -> None:
        """Open the host."""
        self._workers.open()

    async def shut_down(self) -> None:
        """Stop every TaskManager and end; a failed ResourceManager has already reported its failure."""
        self._is_shutting_down = True
        await asyncio.wait([self.close_async()])

    async def on_stop(self) -> None:
        """Stop every TaskManager, then let the host end the rest; or leave them to the next ResourceManager."""
        self._is_leaving = not self._is_shutting_down
        self._workers.stop_asking()
        self._heartbeats.stop()
        self._job_masters.stop()
        if self._is_leaving:
            return
        await self._task_managers.stop_all("the cluster is shutting down")
        await self._workers.close()

    # TaskManagers

    async def register_task_executor(
        self, registration: TaskExecutorRegistration
    ) -> TaskExecutorRegistrationResponse:
        worker_id = registration.location.resource_id
        if self._is_leaving:
            return RegistrationRefused("this ResourceManager is ending, and another one follows")
        rejection = self._rejection_of(registration)
        if rejection is not None:
            return RegistrationRejected(rejection)
        gateway = await self._task_managers.connect(registration)
        if isinstance(gateway, RegistrationRefused):
            return gateway
        refusal = self._workers.refusal_of(worker_id)
        if refusal is not None:
            return RegistrationRejected(refusal)
        # The slots of an earlier registration stay known until the first report of this one replaces them.
        instance_id = self._task_managers.add(registration, gateway)
        self._workers.registered(worker_id)
        self._data_sets.registered(worker_id)
        self._heartbeats.monitor_target(worker_id, lambda: self._ask_heartbeat(worker_id, gateway))
        return TaskExecutorRegistered(instance_id, self._resource_id)

    async def send_slot_report(
        self, resource_id: ResourceId, instance_id: InstanceId, report: SlotReport
    ) -> Acknowledge:
        self._task_managers.refuse_stale(resource_id, instance_id)
        is_previous = self._workers.is_previous(resource_id)
        self._slots.handle(TaskManagerAdded(resource_id, report.slots, is_previous))
        self._workers.reported(resource_id)
        return Acknowledge()

    def notify_slot_available(
        self, instance_id: InstanceId, slot_id: SlotId, allocation_id: AllocationId
    ) -> None:
        """Mark a slot as free, unless its TaskManager is no longer registered: it frees its slots as it ends."""
        if self._task_managers.is_registered(slot_id.resource_id, instance_id):
            self._slots.handle(SlotFreed(slot_id.resource_id, allocation_id))

    def decommission_task_manager(self, resource_id: ResourceId, cause: str) -> None:
        self._decommission(resource_id, cause)

    def disconnect_task_manager(self, resource_id: ResourceId, cause: str) -> None:
        self._lose_task_manager(resource_id, cause)

    def _rejection_of(self, registration: TaskExecutorRegistration) -> str | None:
        worker_id = registration.location.resource_id
        if registration.attempt_number > 0:
            return (
                f"attempt {registration.attempt_number} of worker {worker_id}: reruns are refused"
            )
        refusal = self._workers.refusal_of(worker_id)
        if refusal is not None:
            return refusal
        interpreter = (self._workers.profile_of(worker_id) or UNSPECIFIED).python_executable
        mismatch = find_mismatch(
            self._versions,
            registration.versions,
            f"{worker_id} (host {registration.location.host})",
            interpreter,
        )
        if mismatch is None:
            return None
        self._interpreter_failed(interpreter, str(mismatch), recoverable=False)
        self._workers.handle(WorkerLost(worker_id, str(mismatch)))
        return str(mismatch)

    def _interpreter_failed(self, interpreter: str, cause: str, recoverable: bool) -> None:
        """Tell jobs that lack slots of an interpreter that no worker can run; empty: the cluster's own.

        `recoverable`: a later worker may run it, on this host or another one.
        """
        for entry in self._slots.matching.missing():
            job_master = self._job_masters.find(entry.job_id)
            if job_master is not None and entry.profile.python_executable == interpreter:
                job_master.gateway.notify_not_enough_resources(cause, recoverable)

    def _lose_task_manager(self, worker_id: ResourceId, cause: str) -> bool:
        """Treat a TaskManager as lost: tell the JobMasters that used it, and look for a replacement.

        Returns whether it was registered; no effect otherwise.
        """
        task_manager = self._task_managers.remove(worker_id)
        if task_manager is None:
            return False
        self._remember(task_manager)
        self._heartbeats.unmonitor_target(worker_id)
        self._lock_witness.forget(worker_id)
        self.spawn(self._copy_last_lines(task_manager), f"copy the last lines of {worker_id}")
        _LOG.info("TaskManager %s was lost: %s", worker_id, cause)
        host = task_manager.registration.location.host
        blocked = self._blocklist.task_manager_lost(host, self.clock.monotonic_ms())
        if blocked:
            _LOG.warning("%s", blocked)
        job_ids = self._slots.matching.jobs_on(worker_id)
        for job_id in job_ids:
            job_master = self._job_masters.find(job_id)
            if job_master is not None:
                job_master.gateway.disconnect_task_manager(worker_id, cause)
        task_manager.gateway.disconnect_resource_manager(self.fencing_token, cause)
        self._workers.handle(WorkerLost(worker_id, cause, frozenset(job_ids)))
        self._slots.handle(TaskManagerRemoved(worker_id))
        self._data_sets.lost(worker_id)
        return True

    def _decommission(self, worker_id: ResourceId, cause: str) -> None:
        """Assign no more slots of a TaskManager, replace it, and let its jobs leave it within the grace period."""
        if self._workers.decommissioned(worker_id):
            return
        self._workers.handle(WorkerDecommissioned(worker_id, f"{_LEAVING}{cause}"))
        if not self._workers.decommissioned(worker_id):
            return  # The TaskManager was given up before.
        grace_ms = self.settings.duration_ms(DECOMMISSION_GRACE)
        _LOG.info(
            "TaskManager %s is decommissioned, and ends once its jobs have left it, within %g s: %s",
            worker_id,
            grace_ms / 1000,
            cause,
        )
        for job_id in self._slots.matching.jobs_on(worker_id):
            job_master = self._job_masters.find(job_id)
            if job_master is not None:
                self._tell_decommissioned(job_master, worker_id, cause)
        self._slots.handle(TaskManagerDecommissioned(worker_id))

    def _tell_decommissioned(
        self, job_master: RegisteredJobMaster, worker_id: ResourceId, cause: str
    ) -> None:
        grace_ms = round(self.settings.duration_ms(DECOMMISSION_GRACE))
        job_master.gateway.notify_task_manager_decommissioned(worker_id, cause, grace_ms)

    def _is_blocked(self, worker_id: ResourceId) -> bool:
        task_manager = self._task_managers.find(worker_id)
        return task_manager is not None and self._blocklist.is_blocked(
            task_manager.registration.location.host, self.clock.monotonic_ms()
        )

    def _remember(self, task_manager: RegisteredTaskManager) -> None:
        self._inspection.task_manager_ended(task_manager.describe(self._slots.matching))

    # Results that outlive their jobs

    async def report_cluster_partitions(
        self, resource_id: ResourceId, instance_id: InstanceId, report: ClusterPartitionReport
    ) -> Acknowledge:
        self._task_managers.refuse_stale(resource_id, instance_id)
        self._data_sets.reported(resource_id, report)
        return Acknowledge()

    async def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        await self._workers.await_recovery()
        return self._data_sets.tracker.data_sets()

    async def request_cluster_partitions(
        self, data_set: ClusterDataSetId
    ) -> tuple[ShuffleDescriptor, ...]:
        await self._workers.await_recovery()
        return self._data_sets.tracker.descriptors_of(data_set)

    async def release_cluster_partitions(self, data_set: ClusterDataSetId) -> Acknowledge:
        await self._data_sets.release(data_set)
        return Acknowledge()

    # JobMasters

    async def register_job_master(
        self, job_master_id: JobMasterId, resource_id: ResourceId, address: str, job_id: JobId
    ) -> JobMasterRegistrationResponse:
        """Register a JobMaster; a newer leader of the same job replaces the older one."""
        if not self._job_masters.is_leader(job_id, job_master_id):
            try:
                gateway = await self.rpc_service.connect(address, JobMasterGateway, job_master_id)
            except RpcError as error:
                return RegistrationRefused(
                    f"the ResourceManager at {self.address} cannot connect back to {address}: {error}"
                )
            job_master = RegisteredJobMaster(job_master_id, address, gateway, resource_id)
            self._job_masters.add(job_id, job_master)
            # TaskManagers that started to leave before this JobMaster could be told, e.g. under a failed
            # ResourceManager.
            for one in self._task_managers:
                worker_id = one.registration.location.resource_id
                cause = self._workers.decommissioned(worker_id)
                if cause and job_id in self._slots.matching.jobs_on(worker_id):
                    self._tell_decommissioned(job_master, worker_id, cause.removeprefix(_LEAVING))
        return JobMasterRegistered(self.fencing_token, self._resource_id)

    async def declare_required_resources(
        self, job_master_id: JobMasterId, requirements: ResourceRequirements
    ) -> Acknowledge:
        # Not earlier: a slot that its TaskManager has not reported yet would be taken for a missing one.
        await self._workers.await_recovery()
        if not self._job_masters.is_leader(requirements.job_id, job_master_id):
            raise StaleLeaderError(f"JobMaster {job_master_id} does not lead {requirements.job_id}")
        self._slots.handle(RequirementsDeclared(requirements.job_id, requirements.requirements))
        return Acknowledge()

    def disconnect_job_master(self, job_id: JobId, job_master_id: JobMasterId, cause: str) -> None:
        if self._job_masters.is_leader(job_id, job_master_id):
            self._job_masters.forget(job_id)
            self._forget_requirements(job_id)

    def _forget_requirements(self, job_id: JobId) -> None:
        self._slots.handle(RequirementsDeclared(job_id, ()))

    async def request_resource_overview(self) -> ResourceOverview:
        matching = self._slots.matching
        infos = tuple(map(self._describe, self._task_managers))
        explanation = explain_missing(
            matching.missing(),
            len(infos),
            sum(info.slot_count for info in infos),
            sum(info.free_slot_count for info in infos),
            self._workers.describe_pending(self._slots.waiting_since_ms),
        )
        return ResourceOverview(
            infos,
            self._workers.pending_count,
            explanation,
            self._workers.start_failures_per_second,
        )

    # What people ask of TaskManagers

    async def request_task_manager_details(self, resource_id: ResourceId) -> TaskManagerInfo:
        task_manager = self._task_managers.find(resource_id)
        if task_manager is None:
            raise UnknownTaskManagerError(str(resource_id))
        return self._describe(task_manager)

    def _describe(self, task_manager: RegisteredTaskManager) -> TaskManagerInfo:
        worker_id = task_manager.worker_id
        silence_ms = self.clock.now_ms() - task_manager.last_heartbeat_ms
        return task_manager.describe(
            self._slots.matching,
            self._lock_witness.held(worker_id, silence_ms),
            self._workers.decommissioned(worker_id),
        )

    async def request_task_manager_log_files(self, resource_id: ResourceId) -> tuple[LogFile, ...]:
        return await self._inspection.log_files(resource_id)

    async def read_task_manager_log_file(
        self, resource_id: ResourceId, name: str, offset: int, max_bytes: int
    ) -> LogPiece:
        return await self._inspection.read_log_file(resource_id, name, offset, max_bytes)

    async def request_task_manager_thread_dump(
        self, resource_id: ResourceId
    ) -> tuple[ThreadInfo, ...]:
        return await self._inspection.gateway(resource_id).request_thread_dump()

    async def request_task_manager_profiling(
        self, resource_id: ResourceId, mode: ProfilingMode, duration_s: int
    ) -> ProfilingInfo:
        return await self._inspection.gateway(resource_id).request_profiling(mode, duration_s)

    async def request_task_manager_profiling_list(
        self, resource_id: ResourceId
    ) -> tuple[ProfilingInfo, ...]:
        return await self._inspection.gateway(resource_id).request_profiling_list()

    async def request_task_manager_profile(
        self, resource_id: ResourceId, file_name: str
    ) -> FlameGraphNode:
        return await self._inspection.gateway(resource_id).request_profile(file_name)

    async def request_vertex_stack_samples(
        self,
        job_id: JobId,
        vertex_id: JobVertexId,
        subtask_index: int | None,
        sample_count: int,
        delay_ms: int,
        depth_max: int,
    ) -> StackSamples:
        task_managers = self._slots.matching.task_managers_of(job_id)
        return await self._inspection.sample_stacks(
            task_managers, job_id, vertex_id, subtask_index, sample_count, delay_ms, depth_max
        )

    async def request_task_manager_metrics(self, resource_id: ResourceId) -> dict[str, float]:
        gateway = self._task_managers.gateway_of(resource_id)
        if gateway is None:
            raise UnknownTaskManagerError(str(resource_id))
        return await gateway.request_process_metrics()

    # Heartbeats of TaskManagers

    async def _ask_heartbeat(
        self, resource_id: ResourceId, gateway: TaskExecutorGateway
    ) -> _SlotsReport:
        change_number = self._slots.matching.change_number(resource_id)
        payload = await gateway.heartbeat_from_resource_manager(self._resource_id)
        return _SlotsReport(payload, change_number)

    def _answered(self, resource_id: ResourceId, answer: _SlotsReport) -> None:
        task_manager = self._task_managers.find(resource_id)
        if task_manager is not None:
            log_folder = task_manager.registration.log_folder
            self._inspection.copies.heard(resource_id, task_manager.gateway, log_folder)
            self._lock_witness.heard(resource_id, answer.payload.lock_watcher_address)
            self._task_managers.heartbeat_received(resource_id, answer.payload.memory)
            self._data_sets.reported(resource_id, answer.payload.cluster_partitions)
        # Changes during the request may be missing in the answer; the next one will have them.
        if answer.change_number == self._slots.matching.change_number(resource_id):
            self._slots.handle(SlotsReported(resource_id, answer.payload.slot_report.slots))

    def _task_manager_silent(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        self._lose_task_manager(resource_id, loss.text)

    # Workers

    async def _stop_task_manager(self, worker_id: ResourceId, cause: str) -> None:
        task_manager = self._task_managers.remove(worker_id)
        if task_manager is not None:
            self._remember(task_manager)
            self._heartbeats.unmonitor_target(worker_id)
            self._lock_witness.forget(worker_id)
            self._slots.handle(TaskManagerRemoved(worker_id))
            self._data_sets.lost(worker_id)
            await self._copy_last_lines(task_manager)
            await task_manager.ask_to_stop(cause)

    async def _copy_last_lines(self, task_manager: RegisteredTaskManager) -> None:
        log_folder = task_manager.registration.log_folder
        copies = self._inspection.copies
        await copies.end(task_manager.worker_id, task_manager.gateway, log_folder)

    async def _ask_whether_releasable(self, worker_id: ResourceId) -> None:
        gateway = self._task_managers.gateway_of(worker_id)
        if gateway is None:
            return
        try:
            is_releasable = await gateway.can_be_released()
        except HeadraceError:
            return
        if is_releasable:
            self._workers.handle(IdleReleaseAgreed(worker_id))

    def _host_failed(self, error: BaseException) -> None:
        """Report the host's failure and drop all TaskManagers: every worker ends with its host, without a message."""
        self._on_host_failed(error)
        for task_manager in self._task_managers:
            self._lose_task_manager(task_manager.worker_id, str(error))

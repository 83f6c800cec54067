"""ResourceManager: the endpoint that owns the cluster's slots and asks the host for workers.

It keeps nothing that cannot be rebuilt: slots come from reports, needs from declarations. Losing it disturbs no task.
Source: Flink ResourceManager, ActiveResourceManager.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headrace.cluster.resource_manager.data_sets import DataSets
from headrace.cluster.resource_manager.driver import ResourceManagerDriver
from headrace.cluster.resource_manager.explanation import explain_missing
from headrace.cluster.resource_manager.job_masters import JobMasters, RegisteredJobMaster
from headrace.cluster.resource_manager.slot_matching import (
    AllocateSlot,
    AllocationAnswered,
    RequirementsDeclared,
    SlotEvent,
    SlotFreed,
    SlotMatching,
    SlotsReported,
    TaskManagerAdded,
    TaskManagerRemoved,
)
from headrace.cluster.resource_manager.worker_pool import (
    IdleReleaseAgreed,
    SlotsMissing,
    WorkerLost,
    WorkerRegistered,
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
    ResourceId,
    ResourceManagerId,
    SlotId,
)
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.gateways.cluster_partitions import (
    ClusterPartitionReport,
    DataSetInfo,
)
from headrace.gateways.errors import StaleLeaderError
from headrace.gateways.job_master import JobMasterGateway
from headrace.gateways.messages import (
    Acknowledge,
    MemoryUsage,
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
    SlotRequest,
    TaskExecutorGateway,
    TaskExecutorHeartbeatPayload,
)
from headrace.rpc.errors import RpcError
from headrace.rpc.fencing import FencedRpcEndpoint
from headrace.rpc.heartbeat import HeartbeatLoss, HeartbeatSender
from headrace.rpc.proxies import with_timeout
from headrace.rpc.service import RpcService

_LOG = logging.getLogger(__name__)

_REFUSED_SLOT_PAUSE_MS: Final = 100.0
"""A refused slot is matched again only after this, so that a refusing TaskManager is not asked in a loop."""
_STOP_TIMEOUT_MS: Final = 5_000.0


@dataclass(frozen=True)
class _RegisteredTaskManager:
    registration: TaskExecutorRegistration
    instance_id: InstanceId
    gateway: TaskExecutorGateway
    memory: MemoryUsage | None = None


@dataclass(frozen=True)
class _SlotsReport:
    """What a TaskManager told, and how often its slots had changed hands when it was asked."""

    payload: TaskExecutorHeartbeatPayload
    change_number: int


class ResourceManager(FencedRpcEndpoint[ResourceManagerId], ResourceManagerGateway):
    """One per cluster. `worker_name` makes the name of worker n; `on_host_failed` hears that the host is gone.

    Implements WorkersOwner.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        resource_manager_id: ResourceManagerId,
        driver: ResourceManagerDriver,
        *,
        resource_id: ResourceId,
        versions: Mapping[str, str],
        worker_name: Callable[[int], str],
        on_host_failed: Callable[[BaseException], None],
    ) -> None:
        name = rpc_service.create_endpoint_name("resourcemanager")
        super().__init__(rpc_service, name, resource_manager_id)
        self._resource_id: Final = resource_id
        self._versions: Final = dict(versions)
        self._on_host_failed: Final = on_host_failed
        self._task_managers: dict[ResourceId, _RegisteredTaskManager] = {}
        self._registration_numbers: dict[ResourceId, int] = {}
        self._matching: Final = SlotMatching(lambda: AllocationId.generate(self.rpc_service.random))
        self._workers: Final = Workers(self, driver, self, worker_name)
        self._job_masters: Final = JobMasters(
            self, resource_manager_id, resource_id, self._forget_requirements
        )
        self._data_sets: Final = DataSets(
            self, self._gateway_of, lambda job_id: self._job_masters.find(job_id) is not None
        )
        self._heartbeats: Final = HeartbeatSender[_SlotsReport](
            self, self._task_manager_silent, self._answered
        )

    async def on_start(self) -> None:
        """Open the host."""
        self._workers.open()

    async def on_stop(self) -> None:
        """Stop every TaskManager, then have the host end what is left."""
        self._workers.stop_asking()
        self._heartbeats.stop()
        self._job_masters.stop()
        task_managers = list(self._task_managers.values())
        self._task_managers.clear()
        cause = "the cluster is shutting down"
        await asyncio.gather(*(self._ask_to_stop(each, cause) for each in task_managers))
        await self._workers.close()

    # TaskManagers

    async def register_task_executor(
        self, registration: TaskExecutorRegistration
    ) -> TaskExecutorRegistrationResponse:
        """See ResourceManagerGateway."""
        worker_id = registration.location.resource_id
        rejection = self._rejection_of(registration)
        if rejection is not None:
            return RegistrationRejected(rejection)
        number = self._registration_numbers.get(worker_id, 0) + 1
        self._registration_numbers[worker_id] = number
        try:
            gateway = await self.rpc_service.connect(registration.address, TaskExecutorGateway)
        except RpcError as error:
            return RegistrationRefused(
                f"the ResourceManager at {self.address} cannot connect back to {registration.address}: {error}"
            )
        if self._registration_numbers[worker_id] != number:
            return RegistrationRefused("a newer registration of this TaskManager is under way")
        refusal = self._workers.refusal_of(worker_id)
        if refusal is not None:
            return RegistrationRejected(refusal)
        # The slots of an earlier registration stay known until the first report of this one replaces them.
        instance_id = InstanceId.generate(self.rpc_service.random)
        self._task_managers[worker_id] = _RegisteredTaskManager(registration, instance_id, gateway)
        self._workers.handle(WorkerRegistered(worker_id))
        self._data_sets.registered(worker_id)
        self._heartbeats.monitor_target(worker_id, lambda: self._ask_heartbeat(worker_id, gateway))
        return TaskExecutorRegistered(instance_id, self._resource_id)

    async def send_slot_report(
        self, resource_id: ResourceId, instance_id: InstanceId, report: SlotReport
    ) -> Acknowledge:
        """See ResourceManagerGateway."""
        if not self._is_registered(resource_id, instance_id):
            raise StaleLeaderError(f"TaskManager {resource_id} is not registered as {instance_id}")
        self._handle_slots(TaskManagerAdded(resource_id, report.slots))
        return Acknowledge()

    def notify_slot_available(
        self, instance_id: InstanceId, slot_id: SlotId, allocation_id: AllocationId
    ) -> None:
        """See ResourceManagerGateway. Of a TaskManager that was let go it is no news: it frees its slots as it ends."""
        if not self._is_registered(slot_id.resource_id, instance_id):
            return
        self._handle_slots(SlotFreed(slot_id.resource_id, allocation_id))

    def disconnect_task_manager(self, resource_id: ResourceId, cause: str) -> None:
        """See ResourceManagerGateway."""
        if resource_id in self._task_managers:
            self._lose_task_manager(resource_id, cause)

    def _is_registered(self, resource_id: ResourceId, instance_id: InstanceId) -> bool:
        task_manager = self._task_managers.get(resource_id)
        return task_manager is not None and task_manager.instance_id == instance_id

    def _rejection_of(self, registration: TaskExecutorRegistration) -> str | None:
        worker_id = registration.location.resource_id
        if registration.attempt_number > 0:
            return (
                f"attempt {registration.attempt_number} of worker {worker_id}: reruns are refused"
            )
        refusal = self._workers.refusal_of(worker_id)
        if refusal is not None:
            return refusal
        mismatch = find_mismatch(self._versions, registration.versions, str(worker_id))
        if mismatch is None:
            return None
        # Every worker of the host will be like this one: whoever waits for slots need not wait longer.
        self._workers.handle(WorkerLost(worker_id, str(mismatch)))
        for entry in self._matching.missing():
            job_master = self._job_masters.find(entry.job_id)
            if job_master is not None:
                job_master.gateway.notify_not_enough_resources(str(mismatch))
        return str(mismatch)

    def _lose_task_manager(self, worker_id: ResourceId, cause: str) -> None:
        """A TaskManager is gone, as far as anybody can tell: tell those who used it, and look for another one."""
        task_manager = self._task_managers.pop(worker_id)
        self._heartbeats.unmonitor_target(worker_id)
        _LOG.info("TaskManager %s is lost: %s", worker_id, cause)
        for job_id in self._matching.jobs_on(worker_id):
            job_master = self._job_masters.find(job_id)
            if job_master is not None:
                job_master.gateway.disconnect_task_manager(worker_id, cause)
        task_manager.gateway.disconnect_resource_manager(self.fencing_token, cause)
        self._workers.handle(WorkerLost(worker_id, cause))
        self._handle_slots(TaskManagerRemoved(worker_id))
        self._data_sets.lost(worker_id)

    def _gateway_of(self, worker_id: ResourceId) -> TaskExecutorGateway | None:
        task_manager = self._task_managers.get(worker_id)
        return None if task_manager is None else task_manager.gateway

    # Results that outlive their jobs

    async def report_cluster_partitions(
        self, resource_id: ResourceId, instance_id: InstanceId, report: ClusterPartitionReport
    ) -> Acknowledge:
        """See ResourceManagerGateway."""
        if not self._is_registered(resource_id, instance_id):
            raise StaleLeaderError(f"TaskManager {resource_id} is not registered as {instance_id}")
        self._data_sets.reported(resource_id, report)
        return Acknowledge()

    async def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        """See ResourceManagerGateway."""
        return self._data_sets.tracker.data_sets()

    async def request_cluster_partitions(
        self, data_set: ClusterDataSetId
    ) -> tuple[ShuffleDescriptor, ...]:
        """See ResourceManagerGateway."""
        return self._data_sets.tracker.descriptors_of(data_set)

    async def release_cluster_partitions(self, data_set: ClusterDataSetId) -> Acknowledge:
        """See ResourceManagerGateway."""
        await self._data_sets.release(data_set)
        return Acknowledge()

    # JobMasters

    async def register_job_master(
        self, job_master_id: JobMasterId, resource_id: ResourceId, address: str, job_id: JobId
    ) -> JobMasterRegistrationResponse:
        """See ResourceManagerGateway. A newer leader of the same job takes the place of the older one."""
        if not self._job_masters.is_leader(job_id, job_master_id):
            try:
                gateway = await self.rpc_service.connect(address, JobMasterGateway, job_master_id)
            except RpcError as error:
                return RegistrationRefused(
                    f"the ResourceManager at {self.address} cannot connect back to {address}: {error}"
                )
            job_master = RegisteredJobMaster(job_master_id, address, gateway, resource_id)
            self._job_masters.add(job_id, job_master)
        return JobMasterRegistered(self.fencing_token, self._resource_id)

    async def declare_required_resources(
        self, job_master_id: JobMasterId, requirements: ResourceRequirements
    ) -> Acknowledge:
        """See ResourceManagerGateway."""
        if not self._job_masters.is_leader(requirements.job_id, job_master_id):
            raise StaleLeaderError(f"JobMaster {job_master_id} does not lead {requirements.job_id}")
        self._handle_slots(RequirementsDeclared(requirements.job_id, requirements.requirements))
        return Acknowledge()

    def disconnect_job_master(self, job_id: JobId, job_master_id: JobMasterId, cause: str) -> None:
        """See ResourceManagerGateway."""
        if self._job_masters.is_leader(job_id, job_master_id):
            self._job_masters.forget(job_id)
            self._forget_requirements(job_id)

    def _forget_requirements(self, job_id: JobId) -> None:
        self._handle_slots(RequirementsDeclared(job_id, ()))

    async def request_resource_overview(self) -> ResourceOverview:
        """See ResourceManagerGateway."""
        infos: list[TaskManagerInfo] = []
        for worker_id, task_manager in self._task_managers.items():
            registration = task_manager.registration
            _, free_count = self._matching.slot_counts(worker_id)
            infos.append(
                TaskManagerInfo(
                    worker_id,
                    registration.address,
                    registration.location,
                    registration.slot_count,
                    free_count,
                    registration.pid,
                    task_manager.memory,
                )
            )
        explanation = explain_missing(
            self._matching.missing(),
            len(infos),
            sum(info.slot_count for info in infos),
            sum(info.free_slot_count for info in infos),
            self._workers.describe_pending(),
        )
        return ResourceOverview(tuple(infos), self._workers.pending_count, explanation)

    # Heartbeats of TaskManagers

    async def _ask_heartbeat(
        self, resource_id: ResourceId, gateway: TaskExecutorGateway
    ) -> _SlotsReport:
        change_number = self._matching.change_number(resource_id)
        payload = await gateway.heartbeat_from_resource_manager(self._resource_id)
        return _SlotsReport(payload, change_number)

    def _answered(self, resource_id: ResourceId, answer: _SlotsReport) -> None:
        task_manager = self._task_managers.get(resource_id)
        if task_manager is not None:
            memory = answer.payload.memory
            self._task_managers[resource_id] = replace(task_manager, memory=memory)
            self._data_sets.reported(resource_id, answer.payload.cluster_partitions)
        # What happened while the question was under way may not be in the answer; the next one will have it.
        if answer.change_number == self._matching.change_number(resource_id):
            self._handle_slots(SlotsReported(resource_id, answer.payload.slot_report.slots))

    def _task_manager_silent(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        if resource_id in self._task_managers:
            self._lose_task_manager(resource_id, loss.text)

    # Slots

    def _handle_slots(self, event: SlotEvent) -> None:
        self.validate_main_thread()
        for action in self._matching.handle(event):
            self.spawn(self._allocate(action), f"slot request {action.allocation_id}")
        missing_count = sum(entry.missing_count for entry in self._matching.missing())
        # TaskManagers that registered and have not reported yet will serve some of that.
        coming_count = sum(
            task_manager.registration.slot_count
            for worker_id, task_manager in self._task_managers.items()
            if self._matching.slot_counts(worker_id)[0] == 0
        )
        idle = tuple(self._matching.idle_task_managers())
        self._workers.handle(SlotsMissing(max(0, missing_count - coming_count), idle))

    async def _allocate(self, action: AllocateSlot) -> None:
        task_manager = self._task_managers.get(action.resource_id)
        job_master = self._job_masters.find(action.job_id)
        is_accepted = False
        if task_manager is not None and job_master is not None:
            request = SlotRequest(
                SlotId(action.resource_id, action.slot_index),
                action.job_id,
                action.allocation_id,
                action.profile,
                job_master.address,
                job_master.job_master_id,
                self.fencing_token,
            )
            try:
                await task_manager.gateway.request_slot(request)
                is_accepted = True
            except HeadraceError as error:
                _LOG.info("slot request to %s failed: %s", action.resource_id, error)
        answer = AllocationAnswered(action.resource_id, action.allocation_id, is_accepted)
        if is_accepted:
            self._handle_slots(answer)
        else:
            self.schedule_run_async(_REFUSED_SLOT_PAUSE_MS, lambda: self._handle_slots(answer))

    # WorkersOwner

    async def stop_task_manager(self, worker_id: ResourceId, cause: str) -> None:
        """See WorkersOwner."""
        task_manager = self._task_managers.pop(worker_id, None)
        if task_manager is not None:
            self._heartbeats.unmonitor_target(worker_id)
            self._handle_slots(TaskManagerRemoved(worker_id))
            self._data_sets.lost(worker_id)
            await self._ask_to_stop(task_manager, cause)

    async def ask_whether_releasable(self, worker_id: ResourceId) -> None:
        """See WorkersOwner."""
        task_manager = self._task_managers.get(worker_id)
        if task_manager is None:
            return
        try:
            is_releasable = await task_manager.gateway.can_be_released()
        except RpcError:
            return
        if is_releasable:
            self._workers.handle(IdleReleaseAgreed(worker_id))

    def worker_terminated(self, worker_id: ResourceId, diagnostics: str) -> bool:
        """See WorkersOwner: nobody knows it sooner or better than the host."""
        is_registered = worker_id in self._task_managers
        if is_registered:
            self._lose_task_manager(worker_id, diagnostics)
        return is_registered

    def host_failed(self, error: BaseException) -> None:
        """See WorkersOwner: with the host every worker is gone, without a word."""
        self._on_host_failed(error)
        for worker_id in tuple(self._task_managers):
            self._lose_task_manager(worker_id, str(error))

    async def _ask_to_stop(self, task_manager: _RegisteredTaskManager, cause: str) -> None:
        try:
            await with_timeout(task_manager.gateway, _STOP_TIMEOUT_MS).shut_down(cause)
        except RpcError as error:
            _LOG.debug("%s did not take its stop: %s", task_manager.registration.address, error)

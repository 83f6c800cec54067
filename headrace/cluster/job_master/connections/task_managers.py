"""TaskManagers: the TaskManagers that work for one job: registration, heartbeats, reconciliation, and calls.

Runs on the JobMaster's main thread. Source: Flink JobMaster, DefaultExecutionDeploymentReconciler.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.connections.cached_results import ResultPromotion
from headrace.cluster.job_master.connections.options import METRICS_UPDATE_INTERVAL, SUBMIT_TIMEOUT
from headrace.cluster.job_master.executions import Execution, Executions
from headrace.cluster.job_master.slots.slot_pool import PhysicalSlot, SlotPool
from headrace.cluster.lock_witness import LockWitness
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import (
    ExecutionAttemptId,
    JobId,
    JobMasterId,
    OperatorId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.job_master import (
    TaskManagerRegistered,
    TaskManagerRegistration,
    TaskManagerRegistrationResponse,
)
from headrace.gateways.messages import (
    AllocatedSlotReport,
    ClusterPartition,
    ErrorInfo,
    ExecutionDeploymentReport,
    RegistrationRefused,
    TaskMetrics,
)
from headrace.gateways.task_executor import TaskDeploymentDescriptor, TaskExecutorGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import AskTimeoutError, RpcError
from headrace.rpc.heartbeat import HeartbeatLoss, HeartbeatSender
from headrace.rpc.proxies import with_timeout

_LOG = logging.getLogger(__name__)

_TRIES: Final = 3
_DISMISS_TIMEOUT_MS: Final = 2_000.0
_METRICS_TIMEOUT_MS: Final = 1_000.0

OnSubmitAnswer = Callable[[ExecutionAttemptId, ErrorInfo | None], None]


@dataclass(frozen=True)
class _ConnectedTaskManager:
    address: str
    location: TaskManagerLocation
    gateway: TaskExecutorGateway


@dataclass(frozen=True)
class _ExecutionsReport:
    """A report, and the attempts that certainly existed when it was requested."""

    report: ExecutionDeploymentReport
    expected: tuple[ExecutionAttemptId, ...]


class TaskManagers:
    """Registered TaskManagers by id, which run `executions` in the slots of `pool`; a lost one must register again.

    `settings` are the job's over the cluster's. `on_lost(resource_id, error)`: a TaskManager is gone, with its slots;
    `on_task_lost(execution, error)`: a TaskManager does not run a task that it should.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        executions: Executions,
        pool: SlotPool,
        *,
        job_id: JobId,
        job_master_id: JobMasterId,
        resource_id: ResourceId,
        settings: Settings,
        blob_server_address: str,
        on_lost: Callable[[ResourceId, ErrorInfo], None],
        on_task_lost: Callable[[Execution, ErrorInfo], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._executions: Final = executions
        self._pool: Final = pool
        self._on_lost: Final = on_lost
        self._on_task_lost: Final = on_task_lost
        self._job_id: Final = job_id
        self.job_master_id: Final = job_master_id
        self._resource_id: Final = resource_id
        self._settings: Final = settings
        self._blob_server_address: Final = blob_server_address
        self._registered: dict[ResourceId, _ConnectedTaskManager] = {}
        self._lock_witness: Final = LockWitness(endpoint)
        self._heartbeats: Final = HeartbeatSender[_ExecutionsReport](
            endpoint, self._silent, self._answered, witness=self._lock_witness.excuses
        )
        self._metrics_time_ns = -(1 << 62)
        self._metrics_refresh: asyncio.Task[None] | None = None

    # Registration

    async def register(
        self, registration: TaskManagerRegistration
    ) -> TaskManagerRegistrationResponse:
        """Register a TaskManager; the same address again has no effect, a new one replaces the old one."""
        resource_id = registration.location.resource_id
        known = self._registered.get(resource_id)
        if known is None or known.address != registration.address:
            try:
                gateway = await self._endpoint.rpc_service.connect(
                    registration.address, TaskExecutorGateway
                )
            except RpcError as error:
                return RegistrationRefused(
                    f"the JobMaster at {self._endpoint.address} cannot connect back to "
                    f"{registration.address}: {error}"
                )
            self._pool.local_state.register(resource_id, registration.local_state)
            self._add(
                resource_id,
                _ConnectedTaskManager(registration.address, registration.location, gateway),
            )
        return TaskManagerRegistered(self._resource_id, self._blob_server_address)

    def is_registered(self, resource_id: ResourceId) -> bool:
        """Return whether the TaskManager may offer slots."""
        return resource_id in self._registered

    def gateway_of(self, resource_id: ResourceId) -> TaskExecutorGateway | None:
        """Return the gateway of a TaskManager, or None once it is lost."""
        task_manager = self._registered.get(resource_id)
        return None if task_manager is None else task_manager.gateway

    def location_of(self, resource_id: ResourceId) -> TaskManagerLocation:
        """Return the location of a TaskManager's data plane. KeyError unless it is registered."""
        return self._registered[resource_id].location

    def _add(self, resource_id: ResourceId, task_manager: _ConnectedTaskManager) -> None:
        known = self._registered.get(resource_id)
        if known is not None:
            if known.address == task_manager.address:
                return
            self.lose(resource_id, "another TaskManager has registered under its name")
        self._registered[resource_id] = task_manager
        self._heartbeats.monitor_target(
            resource_id, lambda: self._ask_heartbeat(resource_id, task_manager)
        )

    def lose(self, resource_id: ResourceId, cause: str) -> None:
        """Treat a TaskManager as lost, and tell it so in case it still runs."""
        text = f"TaskManager {resource_id} was lost: {cause}"
        error = ErrorInfo("TaskManagerLostError", text, "EXTERNAL", recoverable=True)
        self._disconnect(resource_id, error, error)

    def leave(self, resource_id: ResourceId, cause: str) -> None:
        """Let a TaskManager that will end soon free the job's slots, with the tasks still in them."""
        text = f"TaskManager {resource_id} is decommissioned: {cause}"
        error = ErrorInfo(
            "TaskManagerDecommissionedError", text, "EXTERNAL", recoverable=True, is_planned=True
        )
        self._disconnect(resource_id, error, None)

    def _disconnect(
        self, resource_id: ResourceId, error: ErrorInfo, reason: ErrorInfo | None
    ) -> None:
        task_manager = self._registered.pop(resource_id, None)
        if task_manager is None:
            return
        self._heartbeats.unmonitor_target(resource_id)
        self._lock_witness.forget(resource_id)
        task_manager.gateway.disconnect_job_master(self._job_id, self.job_master_id, reason)
        self._on_lost(resource_id, error)

    async def dismiss_all(self) -> None:
        """Let every TaskManager free the job's slots, with everything in them, because the job has ended.

        The message may be lost; freeing is repeated until it is acknowledged, within a bound.
        """
        self._heartbeats.stop()
        registered, self._registered = self._registered, {}
        for task_manager in registered.values():
            task_manager.gateway.disconnect_job_master(self._job_id, self.job_master_id, None)
        await asyncio.gather(
            *(
                self._free_for_certain(registered[slot.resource_id], slot)
                for slot in self._pool.slots
                if slot.resource_id in registered
            )
        )

    async def _free_for_certain(
        self, task_manager: _ConnectedTaskManager, slot: PhysicalSlot
    ) -> None:
        gateway = with_timeout(task_manager.gateway, _DISMISS_TIMEOUT_MS)
        for _ in range(_TRIES):
            try:
                await gateway.free_slot(slot.allocation_id, self.job_master_id, "the job has ended")
                return
            except AskTimeoutError:
                continue
            except HeadraceError:
                return

    # Heartbeats

    async def _ask_heartbeat(
        self, resource_id: ResourceId, task_manager: _ConnectedTaskManager
    ) -> _ExecutionsReport:
        expected = tuple(
            execution.attempt_id
            for execution in self._executions.on_task_manager(resource_id)
            if not execution.is_submit_pending
        )
        slots = AllocatedSlotReport(self._job_id, self._pool.allocations_on(resource_id))
        report = await task_manager.gateway.heartbeat_from_job_master(self.job_master_id, slots)
        return _ExecutionsReport(report, expected)

    def _answered(self, resource_id: ResourceId, answer: _ExecutionsReport) -> None:
        self._lock_witness.heard(resource_id, answer.report.lock_watcher_address)
        executions = self._executions
        running = set(answer.report.attempt_ids)
        for attempt_id in answer.expected:
            execution = executions.find(attempt_id)
            if execution is not None and execution.is_deployed and attempt_id not in running:
                text = f"task {attempt_id} is no longer running on TaskManager {resource_id}"
                self._on_task_lost(
                    execution, ErrorInfo("TaskLostError", text, "INTERNAL", recoverable=True)
                )
        for attempt_id in answer.report.attempt_ids:
            execution = executions.find(attempt_id)
            if (
                execution is None
                or execution.state.is_terminal
                or execution.state is ExecutionState.CANCELING
            ):
                # Unknown here, or its cancellation was lost.
                self._endpoint.spawn(self._cancel(resource_id, attempt_id), f"cancel {attempt_id}")
        self._take_metrics(answer.report.metrics)

    def _silent(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        self.lose(resource_id, loss.text)

    # Calls

    def submit_task(
        self, execution: Execution, descriptor: TaskDeploymentDescriptor, on_answer: OnSubmitAnswer
    ) -> None:
        """Deploy a task, then call `on_answer(attempt_id, error)`, with None if the TaskManager accepted it."""
        assert execution.slot is not None
        task_manager = self._registered[execution.slot.resource_id]
        self._endpoint.spawn(
            self._submit(task_manager, descriptor, on_answer), f"submit {execution.attempt_id}"
        )

    async def _submit(
        self,
        task_manager: _ConnectedTaskManager,
        descriptor: TaskDeploymentDescriptor,
        on_answer: OnSubmitAnswer,
    ) -> None:
        timeout_ms = self._settings.duration_ms(SUBMIT_TIMEOUT)
        error: ErrorInfo | None = None
        try:
            await with_timeout(task_manager.gateway, timeout_ms).submit_task(
                descriptor, self.job_master_id
            )
        except HeadraceError as raised:
            attempt_id = descriptor.attempt_id
            where = f"task '{descriptor.vertex.subtask_name(attempt_id.subtask_index)}'"
            error = error_info_of(raised, where)
        on_answer(descriptor.attempt_id, error)

    def cancel_task(self, execution: Execution) -> None:
        """Cancel a task; if the call fails, heartbeats repeat it."""
        if execution.slot is not None:
            self._endpoint.spawn(
                self._cancel(execution.slot.resource_id, execution.attempt_id),
                f"cancel {execution.attempt_id}",
            )

    def force_cancelled_tasks(self) -> None:
        """Force the end of cancelled tasks that have not ended, with their processes."""
        for execution in self._executions:
            if execution.slot is not None and execution.state is ExecutionState.CANCELING:
                self._endpoint.spawn(
                    self._cancel(execution.slot.resource_id, execution.attempt_id, is_forced=True),
                    f"force {execution.attempt_id}",
                )

    async def _cancel(
        self, resource_id: ResourceId, attempt_id: ExecutionAttemptId, is_forced: bool = False
    ) -> None:
        for _ in range(_TRIES):
            task_manager = self._registered.get(resource_id)
            if task_manager is None:
                return
            try:
                await task_manager.gateway.cancel_task(attempt_id, self.job_master_id, is_forced)
                return
            except HeadraceError as error:
                _LOG.info("could not cancel %s on %s: %s", attempt_id, resource_id, error)

    async def send_event(
        self,
        attempt_id: ExecutionAttemptId,
        operator_id: OperatorId,
        sequence_number: int,
        payload: bytes,
    ) -> None:
        """Send an event of a coordinator to a task. RpcError if it may not have arrived."""
        execution = self._executions.find(attempt_id)
        slot = None if execution is None else execution.slot
        task_manager = None if slot is None else self._registered.get(slot.resource_id)
        if task_manager is not None:
            await task_manager.gateway.send_operator_event(
                attempt_id, self.job_master_id, operator_id, sequence_number, payload
            )

    def release_partitions(
        self, resource_id: ResourceId, partition_ids: tuple[ResultPartitionId, ...]
    ) -> None:
        """Delete stored results; if the message is lost, they are deleted with the job."""
        task_manager = self._registered.get(resource_id)
        if task_manager is not None:
            task_manager.gateway.release_partitions(self._job_id, self.job_master_id, partition_ids)

    async def promote_partitions(
        self, promoted: Mapping[ResourceId, tuple[ClusterPartition, ...]]
    ) -> None:
        """Let TaskManagers keep results beyond the job, which has ended. Call before they are dismissed."""
        gateways = {key: each.gateway for key, each in self._registered.items()}
        await ResultPromotion(self._job_id, self.job_master_id, gateways).promote(promoted)

    def free_slot(self, slot: PhysicalSlot, cause: str) -> None:
        """Return a slot to its TaskManager."""
        task_manager = self._registered.get(slot.resource_id)
        if task_manager is not None:
            self._endpoint.spawn(
                self._free(task_manager, slot, cause), f"free slot {slot.allocation_id}"
            )

    async def _free(
        self, task_manager: _ConnectedTaskManager, slot: PhysicalSlot, cause: str
    ) -> None:
        try:
            await task_manager.gateway.free_slot(slot.allocation_id, self.job_master_id, cause)
        except HeadraceError as error:
            _LOG.info("could not free slot %s: %s", slot.allocation_id, error)

    async def refresh_metrics(self, age_max_ms: float = 0.0) -> None:
        """Request the tasks' metrics from all TaskManagers; without an answer in time the old ones stay.

        A TaskManager is not asked again before `age_max_ms` or `metrics.fetcher.update-interval`, whichever is longer;
        concurrent callers share the answers.
        """
        interval_ms = max(self._settings.duration_ms(METRICS_UPDATE_INTERVAL), age_max_ms)
        oldest_ns = self._endpoint.clock.monotonic_ns() - interval_ms * 1e6
        if self._metrics_refresh is None and self._metrics_time_ns > oldest_ns:
            return
        if self._metrics_refresh is None:
            self._metrics_refresh = self._endpoint.spawn(self._refresh_all(), "metrics")
        try:
            await asyncio.shield(self._metrics_refresh)
        finally:
            self._metrics_refresh = None
            self._metrics_time_ns = self._endpoint.clock.monotonic_ns()

    async def _refresh_all(self) -> None:
        await asyncio.gather(*(self._refresh(each) for each in self._registered.values()))

    async def _refresh(self, task_manager: _ConnectedTaskManager) -> None:
        try:
            gateway = with_timeout(task_manager.gateway, _METRICS_TIMEOUT_MS)
            answers = await gateway.request_task_metrics(self._job_id)
        except HeadraceError:
            return
        self._take_metrics(answers)

    def _take_metrics(self, answers: Iterable[TaskMetrics]) -> None:
        for metrics in answers:
            execution = self._executions.find(metrics.attempt_id)
            if execution is not None and not execution.state.is_terminal:
                execution.take_metrics(metrics)

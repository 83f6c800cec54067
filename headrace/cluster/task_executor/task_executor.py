"""TaskExecutor: the endpoint of a TaskManager, with its slots, its tasks and its connections to leaders.

Tasks go on when the ResourceManager is lost and fail when their JobMaster is. Whoever leads is checked by hand, since
a TaskManager serves several leaders. Source: Flink TaskExecutor.
"""

import asyncio
import logging
from typing import Final

from headrace.cluster.blob.blob_cache import BlobCache
from headrace.cluster.task_executor.job_connections import JobConnection, JobConnections
from headrace.cluster.task_executor.options import SLOT_TIMEOUT
from headrace.cluster.task_executor.payload_loader import PayloadLoader
from headrace.cluster.task_executor.resource_manager_connection import (
    TaskExecutorToResourceManagerConnection,
)
from headrace.cluster.task_executor.setup import (
    JobMasterLostError,
    SlotReleasedError,
    TaskExecutorSetup,
    TaskManagerEndsError,
)
from headrace.cluster.task_executor.slot_table import (
    FreedSlot,
    SlotTicket,
    TaskSlotState,
    TaskSlotTable,
)
from headrace.cluster.task_executor.task_reporter import TaskReporter
from headrace.cluster.task_executor.task_reports import TaskOutbox
from headrace.cluster.task_executor.task_table import TaskEntry, TaskTable
from headrace.core.errors import HeadraceError
from headrace.core.ids import (
    AllocationId,
    ExecutionAttemptId,
    JobId,
    JobMasterId,
    OperatorId,
    ResourceId,
    ResourceManagerId,
    ResultPartitionId,
    SlotId,
)
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.gateways.errors import StaleLeaderError, TaskBuildError, TaskSubmissionError
from headrace.gateways.messages import (
    Acknowledge,
    AllocatedSlotReport,
    ErrorInfo,
    ExecutionDeploymentReport,
    SlotOffer,
    SlotReport,
    TaskMetrics,
)
from headrace.gateways.resource_manager import TaskExecutorRegistration
from headrace.gateways.task_executor import (
    SlotRequest,
    TaskDeploymentDescriptor,
    TaskExecutorGateway,
    TaskExecutorHeartbeatPayload,
)
from headrace.graph.pipeline_options import TASK_CANCELLATION_TIMEOUT
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.service import RpcService

_LOG = logging.getLogger(__name__)

_TASKS_END_TIMEOUT_MS: Final = 3_000
_TASKS_END_POLL_S: Final = 0.01


class TaskExecutor(RpcEndpoint, TaskExecutorGateway):
    """One per TaskManager. Implements JobConnectionOwner and TaskReporterOwner."""

    def __init__(self, rpc_service: RpcService, setup: TaskExecutorSetup) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("taskmanager"))
        self._setup: Final = setup
        self._slots: Final = TaskSlotTable(setup.slot_count, setup.slot_profile)
        self._tasks: Final = TaskTable()
        self._jobs: Final = JobConnections(self, self, setup.resource_id, setup.location)
        self._reporter: Final = TaskReporter(self, self, self._tasks, self._jobs)
        self._resource_manager: Final = TaskExecutorToResourceManagerConnection(
            self,
            setup.resource_id,
            setup.resource_manager_address,
            setup.resource_manager_id,
            registration=self._registration,
            slot_report=self.slot_report,
            on_end=self.end,
        )
        self._payloads: Final = PayloadLoader(
            self, self, self._jobs, BlobCache(self, setup.run_blocking, setup.scratch)
        )
        self._slot_timeout_ms = rpc_service.settings.duration_ms(SLOT_TIMEOUT)
        self._end_reason: str | None = None

    async def on_start(self) -> None:
        """Introduce yourself."""
        self._resource_manager.connect()

    async def on_stop(self) -> None:
        """Stop every task, then say goodbye."""
        reason = self._end_reason or "the TaskManager is being closed"
        for entry in self._tasks.running:
            entry.fail(TaskManagerEndsError(f"its TaskManager ends: {reason}"))
        await self._await_end_of_tasks()
        self._jobs.close_all(reason)
        self._resource_manager.close(reason)
        for entry in self._tasks:
            entry.outbox.close()
        await self._payloads.close()
        self._setup.on_terminated(reason)

    async def _await_end_of_tasks(self) -> None:
        """Give tasks a moment to release what they hold and to say how they ended."""
        deadline_ns = self.clock.monotonic_ns() + _TASKS_END_TIMEOUT_MS * 1_000_000
        while len(self._tasks) and self.clock.monotonic_ns() < deadline_ns:
            await asyncio.sleep(_TASKS_END_POLL_S)
        for entry in self._tasks.running:
            _LOG.warning("task '%s' does not end; it is left behind", entry.display_name)

    def end(self, reason: str) -> None:
        """Begin the graceful end; from any thread, idempotent."""

        def begin() -> None:
            if self._end_reason is None:
                self._end_reason = reason
                _LOG.info("TaskManager %s ends: %s", self._setup.resource_id, reason)
                self.close_async()

        self.run_async(begin)

    def on_fatal_error(self, error: BaseException) -> None:
        """A coroutine of this endpoint failed: bookkeeping can no longer be trusted."""
        self._setup.exit_process(f"fatal error: {type(error).__name__}: {error}")

    @property
    def resource_id(self) -> ResourceId:
        """The TaskManager's name."""
        return self._setup.resource_id

    @property
    def attempt_ids(self) -> tuple[ExecutionAttemptId, ...]:
        """Attempts that run here, or whose end their JobMaster has not heard."""
        return tuple(entry.attempt_id for entry in self._tasks)

    # Slots

    async def request_slot(self, request: SlotRequest) -> Acknowledge:
        """See TaskExecutorGateway."""
        if not self._resource_manager.link.is_leader(request.resource_manager_id):
            raise StaleLeaderError(
                f"slot request of ResourceManager {request.resource_manager_id}, "
                f"which does not lead TaskManager {self._setup.resource_id}"
            )
        ticket = self._slots.allocate(
            request.slot_id.slot_index, request.job_id, request.allocation_id
        )
        self._await_activation(ticket)
        self._payloads.retain_job(request.job_id)
        self._jobs.follow(request.job_id, request.job_master_address, request.job_master_id)
        self._jobs.offer_slots(request.job_id)
        return Acknowledge()

    async def free_slot(
        self, allocation_id: AllocationId, job_master_id: JobMasterId, cause: str
    ) -> Acknowledge:
        """See TaskExecutorGateway."""
        job_id = self._slots.job_of(allocation_id)
        if job_id is not None:
            self._jobs.refuse_stale(job_id, job_master_id)
        self._free_slot(allocation_id, cause)
        return Acknowledge()

    def slots_to_offer(self, job_id: JobId) -> tuple[SlotOffer, ...]:
        """See JobConnectionOwner."""
        return self._slots.offers_for(job_id)

    def slots_answered(
        self, job_id: JobId, offered: tuple[SlotOffer, ...], accepted: tuple[AllocationId, ...]
    ) -> None:
        """See JobConnectionOwner."""
        connection = self._jobs.find(job_id)
        for offer in offered:
            allocation_id = offer.allocation_id
            if allocation_id not in accepted:
                self._free_slot(allocation_id, "the JobMaster did not accept it")
            elif not self._slots.activate(allocation_id) and connection is not None:
                connection.fail_slot(allocation_id, "the slot was freed while it was offered")

    def _await_activation(self, ticket: SlotTicket) -> None:
        def timed_out() -> None:
            if self._slots.is_expired(ticket):
                self._free_slot(ticket.allocation_id, "no JobMaster accepted it in time")

        self.schedule_run_async(self._slot_timeout_ms, timed_out)

    def _free_slot(self, allocation_id: AllocationId, cause: str) -> None:
        result = self._slots.free(allocation_id)
        if isinstance(result, FreedSlot):
            self._slot_freed(result)
            return
        for attempt_id in result:
            entry = self._tasks.find(attempt_id)
            assert entry is not None, "a task in a slot is in the table"
            self.fail_task(entry, SlotReleasedError(f"its slot was freed: {cause}"))

    def _free_slots_of(self, job_id: JobId, cause: str) -> None:
        states = (TaskSlotState.ALLOCATED, TaskSlotState.ACTIVE)
        for allocation_id in self._slots.allocations_of(job_id, *states):
            self._free_slot(allocation_id, cause)
        self._close_job_if_over(job_id)

    def _slot_freed(self, freed: FreedSlot) -> None:
        slot_id = SlotId(self._setup.resource_id, freed.slot_index)
        self._resource_manager.notify_slot_available(slot_id, freed.allocation_id)
        self._close_job_if_over(freed.job_id)

    def _close_job_if_over(self, job_id: JobId) -> None:
        if not self._slots.has_slots_of(job_id) and not self._tasks.of_job(job_id):
            self._setup.partitions.release_job(job_id)
            self._jobs.close(job_id, "no slots of the job are left here")
            self._payloads.release_job(job_id)

    # Tasks

    async def submit_task(
        self, descriptor: TaskDeploymentDescriptor, job_master_id: JobMasterId
    ) -> Acknowledge:
        """See TaskExecutorGateway. What goes wrong while the task is built is raised as it is."""
        attempt_id = descriptor.attempt_id
        connection = self._jobs.find(attempt_id.job_id)
        if connection is None or not connection.leads(job_master_id):
            raise TaskSubmissionError(
                f"TaskManager {self._setup.resource_id} does not follow JobMaster {job_master_id}"
            )
        if self._tasks.find(attempt_id) is not None:
            return Acknowledge()
        if self._slots.state_of(descriptor.allocation_id) is TaskSlotState.ALLOCATED:
            self._slots.activate(descriptor.allocation_id)
        if not self._slots.add_task(descriptor.allocation_id, attempt_id):
            raise TaskSubmissionError(
                f"TaskManager {self._setup.resource_id} has no slot {descriptor.allocation_id} "
                f"for job {attempt_id.job_id}"
            )
        vertex = descriptor.vertex
        name = f"{vertex.name} ({attempt_id.subtask_index + 1}/{vertex.parallelism})"
        try:
            task = self._setup.task_factory.create(descriptor, self._reporter)
        except Exception as error:
            self._leave_slot(attempt_id)
            if isinstance(error, HeadraceError):
                raise
            raise TaskBuildError(f"{type(error).__name__}: {error} (in task '{name}')") from error
        settings = self.settings.with_values(descriptor.settings)
        outbox = TaskOutbox(attempt_id)
        entry = TaskEntry(attempt_id, descriptor.allocation_id, name, settings, outbox, task)
        self._tasks.add(entry)
        task.start()
        self._payloads.load(entry, descriptor)
        return Acknowledge()

    async def cancel_task(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, is_forced: bool = False
    ) -> Acknowledge:
        """See TaskExecutorGateway."""
        self._jobs.refuse_stale(attempt_id.job_id, job_master_id)
        entry = self._tasks.find(attempt_id)
        if entry is not None and not entry.has_ended:
            if is_forced:
                self._setup.exit_process(
                    f"task '{entry.display_name}' did not return, and its job was to end at once"
                )
            self._watch(entry)
            entry.cancel()
        return Acknowledge()

    def release_partitions(
        self,
        job_id: JobId,
        job_master_id: JobMasterId,
        partition_ids: tuple[ResultPartitionId, ...],
    ) -> None:
        """See TaskExecutorGateway."""
        self._jobs.refuse_stale(job_id, job_master_id)
        self._setup.partitions.release(partition_ids)

    def update_partitions(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        shuffles: tuple[ShuffleDescriptor, ...],
    ) -> None:
        """See TaskExecutorGateway."""
        self._jobs.refuse_stale(attempt_id.job_id, job_master_id)
        entry = self._tasks.find(attempt_id)
        if entry is not None:
            for shuffle in shuffles:
                entry.task.update_partition_info(shuffle)

    def send_operator_event(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        operator_id: OperatorId,
        payload: bytes,
    ) -> None:
        """See TaskExecutorGateway."""
        self._jobs.refuse_stale(attempt_id.job_id, job_master_id)
        entry = self._tasks.find(attempt_id)
        if entry is not None:
            entry.task.deliver_operator_event(operator_id, payload)

    async def request_task_metrics(self, job_id: JobId) -> tuple[TaskMetrics, ...]:
        """See TaskExecutorGateway."""
        return tuple(entry.metrics() for entry in self._tasks.of_job(job_id))

    def fail_task(self, entry: TaskEntry, error: BaseException) -> None:
        """See TaskReporterOwner: fail a task, and watch that it ends."""
        if not entry.has_ended:
            self._watch(entry)
            entry.fail(error)

    def _watch(self, entry: TaskEntry) -> None:
        """A task that does not end although it must can be stopped only with its process."""
        timeout_ms = entry.settings.duration_ms(TASK_CANCELLATION_TIMEOUT)
        if entry.watchdog is not None or timeout_ms <= 0:
            return

        def stuck() -> None:
            if not entry.has_ended:
                self._setup.exit_process(
                    f"task '{entry.display_name}' did not end within {timeout_ms / 1000:g} s "
                    "(task.cancellation.timeout) after it was cancelled"
                )

        entry.watchdog = self.schedule_run_async(timeout_ms, stuck)

    def task_gone(self, entry: TaskEntry) -> None:
        """See TaskReporterOwner: the task has ended, and its JobMaster knows or will never know."""
        entry.has_ended = True
        entry.outbox.close()
        if entry.watchdog is not None:
            entry.watchdog.cancel()
        self._tasks.remove(entry.attempt_id)
        self._leave_slot(entry.attempt_id)

    def _leave_slot(self, attempt_id: ExecutionAttemptId) -> None:
        freed = self._slots.remove_task(attempt_id)
        if freed is not None:
            self._slot_freed(freed)
        else:
            self._close_job_if_over(attempt_id.job_id)

    # Heartbeats and leaders

    async def heartbeat_from_resource_manager(
        self, resource_id: ResourceId
    ) -> TaskExecutorHeartbeatPayload:
        """See TaskExecutorGateway."""
        self._resource_manager.link.heartbeat_received(resource_id)
        return TaskExecutorHeartbeatPayload(self.slot_report(), self._setup.measure_memory())

    async def heartbeat_from_job_master(
        self, job_master_id: JobMasterId, slots: AllocatedSlotReport
    ) -> ExecutionDeploymentReport:
        """See TaskExecutorGateway."""
        self._jobs.refuse_stale(slots.job_id, job_master_id)
        connection = self._jobs.find(slots.job_id)
        if connection is not None and connection.is_connected:
            self._jobs.heartbeat_received(connection)
            self._reconcile_slots(connection, slots)
        entries = self._tasks.of_job(slots.job_id)
        return ExecutionDeploymentReport(
            self._setup.resource_id,
            tuple(entry.attempt_id for entry in entries),
            tuple(entry.metrics() for entry in entries),
        )

    def _reconcile_slots(self, connection: JobConnection, slots: AllocatedSlotReport) -> None:
        for allocation_id in slots.allocation_ids:
            if self._slots.state_of(allocation_id) is TaskSlotState.FREE:
                connection.fail_slot(allocation_id, "the TaskManager does not have this slot")
        active = self._slots.allocations_of(slots.job_id, TaskSlotState.ACTIVE)
        unlisted = {each for each in active if each not in slots.allocation_ids}
        # Requests and answers take different connections: a report may have left before the JobMaster accepted
        # what is active here. So only what two reports in a row do not list is taken for forgotten.
        for allocation_id in sorted(unlisted & connection.unlisted_slots):
            self._free_slot(allocation_id, "the JobMaster does not have it any more")
        connection.unlisted_slots = unlisted

    def job_master_rejected(self, job_id: JobId, reason: str) -> None:
        """See JobConnectionOwner."""
        self._free_slots_of(job_id, f"the JobMaster rejected the TaskManager: {reason}")

    def job_master_lost(self, job_id: JobId, cause: str) -> None:
        """See JobConnectionOwner."""
        for entry in self._tasks.of_job(job_id):
            entry.outbox.close()
            if entry.has_ended:
                self.task_gone(entry)
            else:
                self.fail_task(entry, JobMasterLostError(f"the JobMaster was lost: {cause}"))
        for allocation_id in self._slots.allocations_of(job_id, TaskSlotState.ACTIVE):
            ticket = self._slots.deactivate(allocation_id)
            if ticket is not None:
                self._await_activation(ticket)

    def disconnect_job_master(
        self, job_id: JobId, job_master_id: JobMasterId, cause: ErrorInfo | None
    ) -> None:
        """See TaskExecutorGateway. Without a cause the job is over; with one, register again."""
        if self._jobs.find(job_id) is None:
            return
        self._jobs.refuse_stale(job_id, job_master_id)
        if cause is not None:
            self._jobs.reconnect(job_id, cause.text)
            return
        self._jobs.end_of_job(job_id)
        self._free_slots_of(job_id, "the job is over")

    def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerId, cause: str
    ) -> None:
        """See TaskExecutorGateway."""
        if self._resource_manager.link.is_leader(resource_manager_id):
            self._resource_manager.link.lost(cause)

    async def can_be_released(self) -> bool:
        """See TaskExecutorGateway."""
        return not len(self._tasks) and not self._setup.partitions.partition_count

    async def shut_down(self, cause: str) -> Acknowledge:
        """See TaskExecutorGateway."""
        self.end(cause)
        return Acknowledge()

    def slot_report(self) -> SlotReport:
        """Every slot as it stands."""
        return self._slots.report(self._setup.resource_id)

    def _registration(self) -> TaskExecutorRegistration:
        setup = self._setup
        return TaskExecutorRegistration(
            self.address,
            setup.location,
            setup.slot_count,
            setup.slot_profile,
            setup.versions,
            setup.pid,
            setup.attempt_number,
        )

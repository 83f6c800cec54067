"""TaskExecutor: the endpoint of a TaskManager, with its slots, its tasks and its connections to leaders.

Tasks go on when the ResourceManager is lost and fail when their JobMaster is. Whoever leads is checked by hand, since
a TaskManager serves several leaders. Source: Flink TaskExecutor.
"""

import asyncio
import logging
from typing import Final

from headrace.checkpoint.errors import SubtaskNotReadableError
from headrace.checkpoint.handles import CheckpointProgress
from headrace.checkpoint.state_queries import StateQuery, StateReadResult
from headrace.cluster.task_executor.job_table import JobTable
from headrace.cluster.task_executor.resource_manager_connection import (
    TaskExecutorToResourceManagerConnection,
)
from headrace.cluster.task_executor.task_manager_services import (
    TaskManagerEndsError,
    TaskManagerServices,
)
from headrace.cluster.task_executor.task_outbox import TaskOutbox
from headrace.cluster.task_executor.task_table import TaskEntry
from headrace.core.barriers import CheckpointOptions
from headrace.core.errors import HeadraceError
from headrace.core.ids import (
    AllocationId,
    ClusterDataSetId,
    ExecutionAttemptId,
    JobId,
    JobMasterId,
    OperatorId,
    ResourceId,
    ResourceManagerId,
    ResultPartitionId,
    SlotId,
)
from headrace.core.process.failpoints import Failpoint, reach
from headrace.gateways.errors import StaleLeaderError, TaskBuildError, TaskSubmissionError
from headrace.gateways.messages import (
    Acknowledge,
    AllocatedSlotReport,
    ClusterPartition,
    ClusterPartitionReport,
    ErrorInfo,
    ExecutionDeploymentReport,
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
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.service import RpcService

_LOG = logging.getLogger(__name__)


class TaskExecutor(RpcEndpoint, TaskExecutorGateway):
    """One per TaskManager."""

    def __init__(self, rpc_service: RpcService, setup: TaskManagerServices) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("taskmanager"))
        self._setup: Final = setup
        self._job_table: Final = JobTable(self, setup, self._slot_freed)
        self._jobs: Final = self._job_table.connections
        self._slots: Final = self._job_table.slots
        self._tasks: Final = self._job_table.tasks
        self._cluster_partitions: Final = self._job_table.cluster_partitions
        self._reads: Final = self._job_table.reads
        self._resource_manager: Final = TaskExecutorToResourceManagerConnection(
            self,
            setup.resource_id,
            setup.resource_manager_address,
            setup.resource_manager_id,
            registration=self._registration,
            slot_report=self.slot_report,
            on_end=self.end,
        )
        self._end_reason: str | None = None
        self.termination.add_done_callback(self._terminated)

    async def on_start(self) -> None:
        """Introduce yourself."""
        self._resource_manager.connect()

    async def on_stop(self) -> None:
        """Stop every task, then say goodbye."""
        reason = self._end_reason or "the TaskManager is being closed"
        for entry in self._tasks.running:
            entry.fail(TaskManagerEndsError(f"its TaskManager ends: {reason}"))
        await self._tasks.await_end()
        self._jobs.close_all(reason)
        self._resource_manager.close(reason)
        await self._job_table.close()

    def _terminated(self, termination: asyncio.Future[None]) -> None:
        """However it ended, also if it never started: its process has nothing left to live for."""
        error = termination.exception()
        reason = self._end_reason or "the TaskManager was closed"
        self._setup.on_terminated(
            reason if error is None else f"{reason}: {type(error).__name__}: {error}"
        )

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
        if not self._resource_manager.link.is_leader(request.resource_manager_id):
            raise StaleLeaderError(
                f"slot request of ResourceManager {request.resource_manager_id}, "
                f"which does not lead TaskManager {self._setup.resource_id}"
            )
        self._job_table.allocate_slot(request)
        return Acknowledge()

    async def free_slot(
        self, allocation_id: AllocationId, job_master_id: JobMasterId, cause: str
    ) -> Acknowledge:
        job_id = self._slots.table.job_of(allocation_id)
        if job_id is not None:
            self._jobs.refuse_stale(job_id, job_master_id)
        self._slots.free(allocation_id, cause)
        return Acknowledge()

    def follows(self, job_id: JobId) -> bool:
        """Whether a JobMaster of the job has accepted this TaskManager, which has not lost it since."""
        connection = self._jobs.find(job_id)
        return connection is not None and connection.is_connected

    def _slot_freed(self, slot_id: SlotId, allocation_id: AllocationId) -> None:
        self._resource_manager.notify_slot_available(slot_id, allocation_id)

    # Tasks

    async def submit_task(
        self, descriptor: TaskDeploymentDescriptor, job_master_id: JobMasterId
    ) -> Acknowledge:
        """Build and start a task in its slot; a HeadraceError while the task is built is raised as it is."""
        reach(Failpoint.TASK_RECEIVED)
        attempt_id = descriptor.attempt_id
        connection = self._jobs.find(attempt_id.job_id)
        if connection is None or not connection.leads(job_master_id):
            raise TaskSubmissionError(
                f"TaskManager {self._setup.resource_id} does not follow JobMaster {job_master_id}"
            )
        if self._tasks.find(attempt_id) is not None:
            return Acknowledge()
        if not self._slots.enter(descriptor.allocation_id, attempt_id):
            raise TaskSubmissionError(
                f"TaskManager {self._setup.resource_id} has no slot {descriptor.allocation_id} "
                f"for job {attempt_id.job_id}"
            )
        name = descriptor.vertex.subtask_name(attempt_id.subtask_index)
        try:
            task = self._setup.task_factory.create(descriptor, self._job_table.reporter)
        except Exception as error:
            self._job_table.leave_slot(attempt_id)
            if isinstance(error, HeadraceError):
                raise
            raise TaskBuildError(f"{type(error).__name__}: {error} (in task '{name}')") from error
        settings = self.settings.with_values(descriptor.settings)
        outbox = TaskOutbox(attempt_id)
        entry = TaskEntry(attempt_id, descriptor.allocation_id, name, settings, outbox, task)
        self._tasks.add(entry)
        task.start()
        self._job_table.payloads.load(entry, descriptor)
        return Acknowledge()

    async def cancel_task(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, is_forced: bool = False
    ) -> Acknowledge:
        entry = self._find(attempt_id, job_master_id)
        if entry is not None:
            self._tasks.cancel_task(entry, is_forced)
        return Acknowledge()

    def release_partitions(
        self,
        job_id: JobId,
        job_master_id: JobMasterId,
        partition_ids: tuple[ResultPartitionId, ...],
    ) -> None:
        self._jobs.refuse_stale(job_id, job_master_id)
        self._cluster_partitions.release_of_job(partition_ids)

    async def promote_partitions(
        self,
        job_id: JobId,
        job_master_id: JobMasterId,
        partitions: tuple[ClusterPartition, ...],
    ) -> ClusterPartitionReport:
        self._jobs.refuse_stale(job_id, job_master_id)
        self._cluster_partitions.promote(partitions)
        report = self._cluster_partitions.report()
        await self._resource_manager.report_cluster_partitions(report)
        return report

    async def release_cluster_partitions(
        self, data_sets: tuple[ClusterDataSetId, ...]
    ) -> ClusterPartitionReport:
        self._cluster_partitions.release(data_sets)
        return self._cluster_partitions.report()

    async def send_operator_event(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        operator_id: OperatorId,
        sequence_number: int,
        payload: bytes,
    ) -> Acknowledge:
        entry = self._find(attempt_id, job_master_id)
        if entry is not None:
            entry.deliver_event(operator_id, sequence_number, payload)
        return Acknowledge()

    def trigger_checkpoint(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        checkpoint_id: int,
        timestamp_ms: int,
        options: CheckpointOptions,
    ) -> None:
        entry = self._find(attempt_id, job_master_id)
        if entry is not None:
            entry.task.trigger_checkpoint(checkpoint_id, timestamp_ms, options)

    def notify_checkpoint_complete(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, checkpoint_id: int
    ) -> None:
        entry = self._find(attempt_id, job_master_id)
        if entry is not None:
            entry.task.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        checkpoint_id: int,
        latest_completed_id: int,
    ) -> None:
        entry = self._find(attempt_id, job_master_id)
        if entry is not None:
            entry.task.notify_checkpoint_aborted(checkpoint_id, latest_completed_id)

    def _find(self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId) -> TaskEntry | None:
        """The attempt, if it is still here; StaleLeaderError where another JobMaster leads its job."""
        self._jobs.refuse_stale(attempt_id.job_id, job_master_id)
        return self._tasks.find(attempt_id)

    async def request_checkpoint_progress(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, checkpoint_id: int
    ) -> CheckpointProgress | None:
        self._jobs.refuse_stale(attempt_id.job_id, job_master_id)
        entry = self._tasks.find(attempt_id)
        return None if entry is None else entry.task.checkpoint_progress(checkpoint_id)

    async def read_state(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        operator_id: OperatorId,
        query: StateQuery,
    ) -> StateReadResult:
        entry = self._find(attempt_id, job_master_id)
        if entry is None:
            raise SubtaskNotReadableError(f"attempt {attempt_id}", "its TaskManager has it no more")
        return await self._reads.read(entry, operator_id, query)

    async def request_task_metrics(self, job_id: JobId) -> tuple[TaskMetrics, ...]:
        return tuple(entry.metrics() for entry in self._tasks.of_job(job_id))

    # Heartbeats and leaders

    async def heartbeat_from_resource_manager(
        self, resource_id: ResourceId
    ) -> TaskExecutorHeartbeatPayload:
        self._resource_manager.link.heartbeat_received(resource_id)
        return TaskExecutorHeartbeatPayload(
            self.slot_report(), self._setup.measure_memory(), self._cluster_partitions.report()
        )

    async def heartbeat_from_job_master(
        self, job_master_id: JobMasterId, slots: AllocatedSlotReport
    ) -> ExecutionDeploymentReport:
        self._jobs.refuse_stale(slots.job_id, job_master_id)
        connection = self._jobs.find(slots.job_id)
        if connection is not None and connection.is_connected:
            self._jobs.heartbeat_received(connection)
            self._slots.reconcile(connection, slots)
        entries = self._tasks.of_job(slots.job_id)
        return ExecutionDeploymentReport(
            self._setup.resource_id,
            tuple(entry.attempt_id for entry in entries),
            tuple(entry.metrics() for entry in entries),
        )

    def disconnect_job_master(
        self, job_id: JobId, job_master_id: JobMasterId, cause: ErrorInfo | None
    ) -> None:
        """End the job if there is no `cause`; with one, register at its JobMaster again."""
        if self._jobs.find(job_id) is None:
            return
        self._jobs.refuse_stale(job_id, job_master_id)
        if cause is not None:
            self._jobs.reconnect(job_id, cause.text)
        else:
            self._job_table.end_of_job(job_id)

    def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerId, cause: str
    ) -> None:
        if self._resource_manager.link.is_leader(resource_manager_id):
            self._resource_manager.link.lost(cause)

    async def can_be_released(self) -> bool:
        return not len(self._tasks) and not self._setup.partitions.partition_count

    async def shut_down(self, cause: str) -> Acknowledge:
        self.end(cause)
        return Acknowledge()

    def slot_report(self) -> SlotReport:
        """Every slot as it stands."""
        return self._slots.table.report(self._setup.resource_id)

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

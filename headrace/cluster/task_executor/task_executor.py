"""TaskExecutor: the endpoint of a TaskManager, with its slots, its tasks and its connections to leaders.

Tasks go on when the ResourceManager is lost. A job is present from its first slot to its last slot and task; when its
JobMaster is lost, its tasks fail and its slots wait for a new JobMaster. Because a TaskManager serves several leaders,
each call checks that its sender leads. Source: Flink TaskExecutor.
"""

import asyncio
import logging
from typing import Final

from headrace.checkpoint.errors import SubtaskNotReadableError
from headrace.checkpoint.handles import CheckpointProgress
from headrace.checkpoint.state_queries import StateQuery, StateReadResult
from headrace.cluster.blob.artifact_cache import ArtifactCache
from headrace.cluster.blob.blob_cache import BlobCache
from headrace.cluster.resource_manager.options import DECOMMISSION_GRACE
from headrace.cluster.task_executor.cluster_partitions import ClusterPartitions
from headrace.cluster.task_executor.job_connections import JobConnections
from headrace.cluster.task_executor.memory_limit import MemoryLimit
from headrace.cluster.task_executor.options import OWN_INTERPRETER
from headrace.cluster.task_executor.pending_state_reads import PendingStateReads
from headrace.cluster.task_executor.process_inspection import ProcessInspection
from headrace.cluster.task_executor.resource_manager_connection import (
    TaskExecutorToResourceManagerConnection,
)
from headrace.cluster.task_executor.task_manager_services import (
    JobMasterLostError,
    TaskManagerEndsError,
    TaskManagerServices,
)
from headrace.cluster.task_executor.task_metric_groups import TaskMetricGroups
from headrace.cluster.task_executor.task_outbox import TaskOutbox
from headrace.cluster.task_executor.task_reporter import TaskReporter
from headrace.cluster.task_executor.task_slot_table import FreedSlot, TaskSlots, TaskSlotTable
from headrace.cluster.task_executor.task_table import PayloadLoader, TaskEntry, TaskTable
from headrace.core.barriers import CheckpointOptions
from headrace.core.errors import HeadraceError
from headrace.core.ids import (
    AllocationId,
    ClusterDataSetId,
    ExecutionAttemptId,
    JobId,
    JobMasterId,
    JobVertexId,
    OperatorId,
    ResourceId,
    ResourceManagerId,
    ResultPartitionId,
    SlotId,
)
from headrace.core.process.failpoints import Failpoint, reach
from headrace.core.process.flame_graph import FlameGraphNode
from headrace.core.process.log_files import LogFile, LogPiece
from headrace.core.process.process_profiler import ProfilingInfo, ProfilingMode
from headrace.core.process.stack_sampler import StackSamples
from headrace.core.process.thread_dump import ThreadInfo
from headrace.core.resource_profile import JOB_ENVIRONMENT
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
_FAREWELL_MS: Final = 100.0


class TaskExecutor(RpcEndpoint, TaskExecutorGateway):
    """Endpoint of one TaskManager."""

    def __init__(self, rpc_service: RpcService, services: TaskManagerServices) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("taskmanager"))
        self._services: Final = services
        self._tasks: Final = TaskTable(self, services.exit_process)
        self._cluster_partitions: Final = ClusterPartitions(services.partitions)
        slots = TaskSlotTable(
            services.slot_count, services.slot_profile, services.external_resources
        )
        self._slots: Final = TaskSlots(self, slots, self._tasks, self._slot_freed)
        self._jobs: Final = JobConnections(
            self,
            services.resource_id,
            services.location,
            services.local_copies,
            offers_for=slots.offers_for,
            on_answered=self._slots.answered,
            on_lost=self._job_master_lost,
            on_rejected=self._job_master_rejected,
        )
        self._metric_groups: Final = TaskMetricGroups(services)
        self._reporter: Final = TaskReporter(
            self, self._tasks, self._jobs, self._task_gone, self._metric_groups
        )
        self._blobs: Final = BlobCache(self, services.run_blocking, services.scratch)
        self._artifacts: Final = ArtifactCache(
            self,
            services.run_blocking,
            self._blobs,
            has_requirements=self.settings.get_option(OWN_INTERPRETER).startswith(JOB_ENVIRONMENT),
        )
        self._payloads: Final = PayloadLoader(
            self, self._tasks, self._jobs, self._blobs, self._artifacts
        )
        self._reads: Final = PendingStateReads(self)
        self._inspection: Final = ProcessInspection(
            services, self._tasks, self.clock, self.settings
        )
        self._resource_manager: Final = TaskExecutorToResourceManagerConnection(
            self,
            services.resource_id,
            services.leader_retrieval_address,
            registration=self._registration,
            slot_report=self.slot_report,
            cluster_partitions=self._cluster_partitions.report,
            on_end=self.end,
        )
        self._end_reason: str | None = None
        self._is_decommissioned = False
        self.termination.add_done_callback(self._terminated)

    async def on_start(self) -> None:
        """Start to register at the ResourceManager, delete old files of jobs, and start the MemoryLimit."""
        self._resource_manager.connect()
        self._artifacts.open()
        MemoryLimit(
            self.settings,
            self.clock,
            self.schedule_run_async,
            is_own=self._services.owns_process,
            stop_tasks=self._stop_tasks,
            end=self.end,
            exit_now=self._exit_now,
        ).start()

    async def on_stop(self) -> None:
        """Stop every task, then disconnect from all leaders."""
        reason = self._end_reason or "the TaskManager is being closed"
        self._stop_tasks(reason)
        await self._tasks.await_end()
        self.say_goodbye(reason)
        for entry in self._tasks:
            entry.outbox.close()
        await self._artifacts.close()
        await self._blobs.close()

    def _stop_tasks(self, reason: str) -> bool:
        """Fail the running tasks; return whether there are any."""
        running = self._tasks.running
        for entry in running:
            entry.fail(TaskManagerEndsError(f"its TaskManager ends: {reason}"))
        return bool(running)

    def say_goodbye(self, reason: str) -> None:
        """Tell all leaders that this TaskManager ends, without waiting for its tasks. Main thread."""
        self._jobs.close_all(reason)
        self._resource_manager.close(reason)

    def _exit_now(self, reason: str) -> None:
        """End the process although tasks go on, once the disconnect messages have been sent."""
        _LOG.error("TaskManager %s ends at once: %s", self._services.resource_id, reason)
        self.say_goodbye(reason)
        self.schedule_run_async(_FAREWELL_MS, lambda: self._services.exit_process(reason))

    def _terminated(self, termination: asyncio.Future[None]) -> None:
        """Report the end, for whatever reason, even if the endpoint never started, so that the process may end."""
        error = termination.exception()
        reason = self._end_reason or "the TaskManager was closed"
        self._services.on_terminated(
            reason if error is None else f"{reason}: {type(error).__name__}: {error}"
        )

    def end(self, reason: str) -> None:
        """Start the graceful end. Any thread; idempotent."""

        def begin() -> None:
            if self._end_reason is None:
                self._end_reason = reason
                _LOG.info("TaskManager %s ends: %s", self._services.resource_id, reason)
                self.close_async()

        self.run_async(begin)

    def decommission(self, cause: str) -> None:
        """Let its jobs leave this TaskManager, and the ResourceManager stop it then. Any thread.

        It ends at once on a second call, or without a ResourceManager.
        """

        def begin() -> None:
            if self._is_decommissioned or not self._resource_manager.decommission(cause):
                self.end(cause)
                return
            self._is_decommissioned = True
            # In case the ResourceManager does not stop it in time.
            grace_ms = self.settings.duration_ms(DECOMMISSION_GRACE)
            self.schedule_run_async(grace_ms, lambda: self.end(cause))

        self.run_async(begin)

    def on_fatal_error(self, error: BaseException) -> None:
        """Exit the process, because a coroutine of this endpoint failed and its state can no longer be trusted."""
        self._services.exit_process(f"fatal error: {type(error).__name__}: {error}")

    @property
    def resource_id(self) -> ResourceId:
        """Name of the TaskManager."""
        return self._services.resource_id

    @property
    def attempt_ids(self) -> tuple[ExecutionAttemptId, ...]:
        """Attempts that run here, or whose end their JobMaster does not know yet."""
        return tuple(entry.attempt_id for entry in self._tasks)

    # Slots

    async def request_slot(self, request: SlotRequest) -> Acknowledge:
        if not self._resource_manager.link.is_leader(request.resource_manager_id):
            raise StaleLeaderError(
                f"slot request of ResourceManager {request.resource_manager_id}, "
                f"which does not lead TaskManager {self._services.resource_id}"
            )
        job_id = request.job_id
        self._slots.allocate(request)
        self._blobs.retain_job(job_id)
        self._jobs.follow(job_id, request.job_master_address, request.job_master_id)
        self._jobs.offer_slots(job_id)
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
        """Return whether this TaskManager is connected to a JobMaster of the job."""
        connection = self._jobs.find(job_id)
        return connection is not None and connection.is_connected

    def _slot_freed(self, freed: FreedSlot) -> None:
        slot_id = SlotId(self._services.resource_id, freed.slot_index)
        self._resource_manager.notify_slot_available(slot_id, freed.allocation_id)
        self._close_if_over(freed.job_id)

    def _free_slots_of(self, job_id: JobId, cause: str) -> None:
        self._slots.free_all(job_id, cause)
        self._close_if_over(job_id)

    def _leave_slot(self, attempt_id: ExecutionAttemptId) -> None:
        """Take a task out of its slot, which may have been released meanwhile."""
        freed = self._slots.table.remove_task(attempt_id)
        if freed is not None:
            self._slot_freed(freed)
        else:
            self._close_if_over(attempt_id.job_id)

    def _close_if_over(self, job_id: JobId) -> None:
        if not self._slots.table.has_slots_of(job_id) and not self._tasks.of_job(job_id):
            self._cluster_partitions.release_job(job_id)
            self._jobs.close(job_id, "no slots of the job are left here")
            self._blobs.release_job(job_id)
            self._artifacts.release_job(job_id)

    # Tasks

    async def submit_task(
        self, descriptor: TaskDeploymentDescriptor, job_master_id: JobMasterId
    ) -> Acknowledge:
        """Build and start a task in its slot. A HeadraceError of the build is raised unchanged."""
        reach(Failpoint.TASK_RECEIVED)
        attempt_id = descriptor.attempt_id
        connection = self._jobs.find(attempt_id.job_id)
        if connection is None or not connection.leads(job_master_id):
            raise TaskSubmissionError(
                f"TaskManager {self._services.resource_id} does not follow JobMaster {job_master_id}"
            )
        if self._tasks.find(attempt_id) is not None:
            return Acknowledge()
        if not self._slots.enter(descriptor.allocation_id, attempt_id):
            raise TaskSubmissionError(
                f"TaskManager {self._services.resource_id} has no slot {descriptor.allocation_id} "
                f"for job {attempt_id.job_id}"
            )
        name = descriptor.vertex.subtask_name(attempt_id.subtask_index)
        descriptor = self._artifacts.located(descriptor)
        try:
            addresses = self._slots.table.addresses_of(descriptor.allocation_id)
            task = self._services.task_factory.create(descriptor, self._reporter, addresses)
        except Exception as error:
            self._leave_slot(attempt_id)
            _LOG.info("could not build task '%s'", name, exc_info=True)
            if isinstance(error, HeadraceError):
                raise
            raise TaskBuildError(f"{type(error).__name__}: {error} (in task '{name}')") from error
        settings = self.settings.with_values(descriptor.settings)
        outbox = TaskOutbox(attempt_id)
        entry = TaskEntry(attempt_id, descriptor.allocation_id, name, settings, outbox, task)
        self._tasks.add(entry)
        self._metric_groups.open(descriptor, task)
        task.start()
        self._payloads.load(entry, descriptor)
        return Acknowledge()

    def _task_gone(self, entry: TaskEntry) -> None:
        """Forget a task that has ended; its JobMaster knows of the end, or never will."""
        self._tasks.remove(entry)
        self._metric_groups.close(entry.attempt_id)
        self._reads.task_gone(entry.attempt_id)
        self._leave_slot(entry.attempt_id)

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
        """Return the attempt, if it is still here. StaleLeaderError if another JobMaster leads its job."""
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
            raise SubtaskNotReadableError(
                f"attempt {attempt_id}", "it is no longer on its TaskManager"
            )
        return await self._reads.read(entry, operator_id, query)

    async def request_task_metrics(self, job_id: JobId) -> tuple[TaskMetrics, ...]:
        return tuple(entry.metrics() for entry in self._tasks.of_job(job_id))

    # What people ask

    async def request_log_files(self) -> tuple[LogFile, ...]:
        return await self._inspection.log_files()

    async def read_log_file(self, name: str, offset: int, max_bytes: int) -> LogPiece:
        return await self._inspection.read_log_file(name, offset, max_bytes)

    async def request_thread_dump(self) -> tuple[ThreadInfo, ...]:
        return await self._inspection.thread_dump()

    async def request_profiling(self, mode: ProfilingMode, duration_s: int) -> ProfilingInfo:
        return self._inspection.start_profile(mode, duration_s)

    async def request_profiling_list(self) -> tuple[ProfilingInfo, ...]:
        return self._inspection.profiles()

    async def request_profile(self, file_name: str) -> FlameGraphNode:
        return self._inspection.profile(file_name)

    async def request_stack_samples(
        self,
        job_id: JobId,
        vertex_id: JobVertexId,
        subtask_index: int | None,
        sample_count: int,
        delay_ms: int,
        depth_max: int,
    ) -> StackSamples:
        return await self._inspection.sample_stacks(
            job_id, vertex_id, subtask_index, sample_count, delay_ms, depth_max
        )

    def task_metrics(self) -> dict[str, float]:
        """Return the totals of all tasks, by the names of process metrics. Any thread."""
        return self._tasks.metrics()

    async def request_process_metrics(self) -> dict[str, float]:
        return self._services.process_metrics()

    # Heartbeats and leaders

    async def heartbeat_from_resource_manager(
        self, resource_id: ResourceId
    ) -> TaskExecutorHeartbeatPayload:
        self._resource_manager.link.heartbeat_received(resource_id)
        return TaskExecutorHeartbeatPayload(
            self.slot_report(),
            self._services.measure_memory(),
            self._cluster_partitions.report(),
            self._services.lock_watcher_address(),
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
            self._services.resource_id,
            tuple(entry.attempt_id for entry in entries),
            tuple(entry.metrics() for entry in entries),
            self._services.lock_watcher_address(),
        )

    def disconnect_job_master(
        self, job_id: JobId, job_master_id: JobMasterId, cause: ErrorInfo | None
    ) -> None:
        """End the job if there is no `cause`; otherwise register at its JobMaster again."""
        if self._jobs.find(job_id) is None:
            return
        self._jobs.refuse_stale(job_id, job_master_id)
        if cause is not None:
            self._jobs.reconnect(job_id, cause.text)
        else:
            self._jobs.end_of_job(job_id)
            # The JobMaster closes: unsent reports of tasks would keep their slots until heartbeats are missed.
            self._stop_telling(job_id)
            self._free_slots_of(job_id, "the job has ended")

    def _job_master_lost(self, job_id: JobId, cause: str) -> None:
        for entry in self._stop_telling(job_id):
            self._tasks.fail_task(entry, JobMasterLostError(f"the JobMaster was lost: {cause}"))
        self._slots.await_job_master(job_id)

    def _stop_telling(self, job_id: JobId) -> tuple[TaskEntry, ...]:
        """Drop the reports for a JobMaster that no longer listens; return the tasks that have not ended."""
        entries = self._tasks.of_job(job_id)
        for entry in entries:
            entry.outbox.close()
            if entry.has_ended:
                self._task_gone(entry)
        return tuple(entry for entry in entries if not entry.has_ended)

    def _job_master_rejected(self, job_id: JobId, reason: str) -> None:
        self._free_slots_of(job_id, f"the JobMaster rejected the TaskManager: {reason}")

    def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerId, cause: str
    ) -> None:
        if self._resource_manager.link.is_leader(resource_manager_id):
            self._resource_manager.link.lost(cause)

    async def can_be_released(self) -> bool:
        return not len(self._tasks) and not self._services.partitions.partition_count

    async def shut_down(self, cause: str) -> Acknowledge:
        self.end(cause)
        return Acknowledge()

    def slot_report(self) -> SlotReport:
        """Return the current state of every slot."""
        return self._slots.table.report(self._services.resource_id)

    def _registration(self) -> TaskExecutorRegistration:
        services = self._services
        return TaskExecutorRegistration(
            self.address,
            services.location,
            services.slot_count,
            services.slot_profile,
            services.versions,
            services.pid,
            services.attempt_number,
            services.hardware,
            "" if services.log_folder is None else str(services.log_folder),
        )

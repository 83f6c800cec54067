"""JobMaster: the endpoint that leads one job, from its slots to its last report.

Decisions are the Scheduler's; this is what it does to the world and hears from it. Source: Flink JobMaster.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from headrace.cluster.dispatcher.archive import ArchivedJob
from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.deployment_plan import PartitionRegistration
from headrace.cluster.job_master.executions import Execution, ReportVerdict
from headrace.cluster.job_master.failover import Failure
from headrace.cluster.job_master.job_details import describe_job, result_of
from headrace.cluster.job_master.operator_coordinator import CoordinatorFactories
from headrace.cluster.job_master.operator_coordinators import OperatorCoordinators
from headrace.cluster.job_master.options import (
    METRICS_UPDATE_INTERVAL,
    SLOT_IDLE_TIMEOUT,
    SLOT_REQUEST_TIMEOUT,
)
from headrace.cluster.job_master.partition_registrar import PartitionRegistrar
from headrace.cluster.job_master.partition_tracker import RELEASE_DURING_JOB, PartitionTracker
from headrace.cluster.job_master.resource_manager_connection import ResourceManagerConnection
from headrace.cluster.job_master.restart_strategies import create_restart_strategy
from headrace.cluster.job_master.scheduling import Scheduler
from headrace.cluster.job_master.task_managers import TaskManagers
from headrace.cluster.shuffle.shuffle_master import ShuffleMaster
from headrace.core.errors import HeadraceError, NoResourceAvailableError
from headrace.core.ids import (
    AllocationId,
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobMasterId,
    JobVertexId,
    OperatorId,
    ResourceId,
    ResourceManagerId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.shuffle_descriptors import ShuffleDescriptor, TaskManagerLocation
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.errors import (
    NothingCollectedError,
    StaleLeaderError,
    UnknownAttemptError,
)
from headrace.gateways.job_master import (
    CollectedResults,
    JobDetails,
    JobMasterGateway,
    TaskManagerRegistration,
    TaskManagerRegistrationResponse,
)
from headrace.gateways.messages import (
    Acknowledge,
    ErrorInfo,
    ExecutionReport,
    RegistrationRejected,
    SlotOffer,
)
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import JobGraph
from headrace.graph.payloads import blob_keys
from headrace.rpc.fencing import FencedRpcEndpoint
from headrace.rpc.proxies import gateway_address
from headrace.rpc.service import RpcService

_LOG = logging.getLogger(__name__)


class JobMaster(FencedRpcEndpoint[JobMasterId], JobMasterGateway):
    """One per job. `on_ended` is called once, when the job has its last status.

    Implements SchedulerShell and TaskManagersOwner.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        job_master_id: JobMasterId,
        graph: JobGraph,
        *,
        resource_manager_address: str,
        resource_manager_id: ResourceManagerId,
        coordinator_factories: CoordinatorFactories,
        blob_server: BlobServerGateway,
        shuffle_master: ShuffleMaster,
        on_ended: Callable[[ArchivedJob], None],
    ) -> None:
        name = rpc_service.create_endpoint_name("jobmanager")
        super().__init__(rpc_service, name, job_master_id)
        self._graph: Final = graph
        self._job_settings: Final = rpc_service.settings.with_values(graph.settings)
        self._blob_server: Final = blob_server
        self._on_ended: Final = on_ended
        resource_id = ResourceId(f"jobmanager-{graph.job_id}")
        strategy = create_restart_strategy(self._job_settings, rpc_service.random)
        self._scheduler: Final = Scheduler(
            graph,
            strategy,
            self,
            rpc_service.clock,
            PartitionTracker(self._job_settings.get_option(RELEASE_DURING_JOB)),
        )
        self._partitions: Final = PartitionRegistrar(
            self,
            shuffle_master,
            graph.job_id,
            self._job_settings,
            on_lost=lambda error: self._scheduler.fail_job(Failure.of_error(error)),
        )
        self._coordinators: Final = OperatorCoordinators(
            graph,
            coordinator_factories,
            settings=self._job_settings,
            send_event=self._send_event,
            run_async=self.run_async,
            fail_job=self._coordinator_failed,
        )
        self._task_managers: Final = TaskManagers(
            self,
            self,
            job_id=graph.job_id,
            job_master_id=job_master_id,
            resource_id=resource_id,
            settings=self._job_settings,
            executions=lambda: self._scheduler.executions,
            pool=self._scheduler.pool,
            blob_server_address=gateway_address(blob_server),
        )
        self._resource_manager: Final = ResourceManagerConnection(
            self,
            resource_id,
            graph.job_id,
            job_master_id,
            address=resource_manager_address,
            resource_manager_id=resource_manager_id,
            requirements=lambda: self._scheduler.pool.requirements,
            on_rejected=lambda reason: self._fail(
                f"the ResourceManager rejected the job: {reason}"
            ),
        )
        self._slot_timer_number = 0
        self._metrics_time_ns = -(1 << 62)
        self._metrics_refresh: asyncio.Task[None] | None = None
        self._has_ended = False

    async def on_start(self) -> None:
        """Begin: coordinators first, since they must know of the job before any task does."""
        try:
            self._coordinators.start()
        except Exception as error:
            self._scheduler.fail_job(Failure.of_error(error))
            return
        self._partitions.start()
        self._resource_manager.link.connect()
        self._scheduler.start()
        self._return_idle_slots()

    async def on_stop(self) -> None:
        """Let go of everybody. A job that has not ended is given up here."""
        self._resource_manager.close("the JobMaster is being closed")
        if not self._has_ended:
            await self._close_coordinators()
            self._partitions.close()
        await self._task_managers.dismiss_all()

    # TaskManagers and their slots

    async def register_task_manager(
        self, job_id: JobId, registration: TaskManagerRegistration
    ) -> TaskManagerRegistrationResponse:
        """See JobMasterGateway."""
        if job_id != self._graph.job_id:
            return RegistrationRejected(f"this JobMaster leads job {self._graph.job_id}")
        if self._scheduler.has_ended:
            return RegistrationRejected("the job has ended")
        return await self._task_managers.register(registration)

    async def offer_slots(
        self, resource_id: ResourceId, offers: tuple[SlotOffer, ...]
    ) -> tuple[AllocationId, ...]:
        """See JobMasterGateway."""
        if not self._task_managers.is_registered(resource_id):
            raise StaleLeaderError(f"TaskManager {resource_id} is not registered at this JobMaster")
        accepted = self._scheduler.pool.offer(resource_id, offers, self.clock.monotonic_ms())
        self._scheduler.slots_changed()
        return accepted

    def fail_slot(self, resource_id: ResourceId, allocation_id: AllocationId, cause: str) -> None:
        """See JobMasterGateway."""
        lost = self._scheduler.executions.in_slot(allocation_id)
        self._scheduler.pool.fail_slot(allocation_id)
        text = f"a slot of TaskManager {resource_id} was lost: {cause}"
        error = ErrorInfo("SlotLostError", text, "INTERNAL", recoverable=True)
        for execution in lost:
            self._scheduler.lose(execution, error)

    def disconnect_task_manager(self, resource_id: ResourceId, cause: str) -> None:
        """See JobMasterGateway."""
        self._task_managers.lose(resource_id, cause)

    def task_manager_lost(self, resource_id: ResourceId, error: ErrorInfo) -> None:
        """See TaskManagersOwner."""
        self._scheduler.lose_task_manager(resource_id, error)

    def _return_idle_slots(self) -> None:
        timeout_ms = self._job_settings.duration_ms(SLOT_IDLE_TIMEOUT)
        for slot in self._scheduler.pool.take_idle(self.clock.monotonic_ms(), timeout_ms):
            self._task_managers.free_slot(slot, "the job does not need it")
        self.schedule_run_async(timeout_ms, self._return_idle_slots)

    # Tasks

    async def update_task_execution_state(self, report: ExecutionReport) -> Acknowledge:
        """See JobMasterGateway."""
        if self._scheduler.report(report) is ReportVerdict.UNKNOWN_ATTEMPT:
            raise UnknownAttemptError(str(report.attempt_id))
        return Acknowledge()

    async def request_partition_state(
        self, partition_id: ResultPartitionId
    ) -> ExecutionState | None:
        """See JobMasterGateway."""
        execution = self._scheduler.executions.find(partition_id.producer)
        return None if execution is None else execution.state

    def execution_missing(self, execution: Execution, error: ErrorInfo) -> None:
        """See TaskManagersOwner."""
        self._scheduler.lose(execution, error)

    def submit_answered(self, attempt_id: ExecutionAttemptId, error: ErrorInfo | None) -> None:
        """See TaskManagersOwner."""
        self._scheduler.submit_answered(attempt_id, error)

    # Coordinators

    async def send_operator_event_to_coordinator(
        self,
        attempt_id: ExecutionAttemptId,
        operator_id: OperatorId,
        sequence_number: int,
        payload: bytes,
    ) -> Acknowledge:
        """See JobMasterGateway."""
        execution = self._scheduler.executions.find(attempt_id)
        if execution is None or execution.state.is_terminal:
            raise UnknownAttemptError(str(attempt_id))
        self._coordinators.handle_event(attempt_id, operator_id, sequence_number, payload)
        return Acknowledge()

    async def fetch_collected_results(
        self, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        """See JobMasterGateway."""
        coordinator = self._coordinators.collect_coordinators().get(operator_id)
        if coordinator is None:
            raise NothingCollectedError(str(self._graph.job_id), str(operator_id))
        return coordinator.fetch(offset, max_piece_count)

    def _send_event(
        self, vertex_id: JobVertexId, subtask_index: int, operator_id: OperatorId, payload: bytes
    ) -> None:
        subtask = ExecutionVertexId(vertex_id, subtask_index)
        execution = self._scheduler.executions.current(subtask)
        if execution.slot is not None:
            resource_id = execution.slot.resource_id
            self._task_managers.send_event(resource_id, execution.attempt_id, operator_id, payload)

    def _coordinator_failed(self, error: BaseException) -> None:
        self.run_async(lambda: self._scheduler.fail_job(Failure.of_error(error)))

    async def _close_coordinators(self) -> None:
        for error in await self._coordinators.close():
            _LOG.warning("a coordinator of job %s did not close: %s", self._graph.job_id, error)

    # The ResourceManager

    def notify_not_enough_resources(self, explanation: str) -> None:
        """See JobMasterGateway."""
        error = ErrorInfo("NoResourceAvailableError", explanation, "EXTERNAL", recoverable=False)
        self._scheduler.fail_waiting_for_slots(Failure(error))

    def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerId, cause: str
    ) -> None:
        """See JobMasterGateway."""
        if self._resource_manager.link.is_leader(resource_manager_id):
            self._resource_manager.link.lost(cause)

    async def heartbeat_from_resource_manager(self, resource_id: ResourceId) -> Acknowledge:
        """See JobMasterGateway."""
        self._resource_manager.link.heartbeat_received(resource_id)
        return Acknowledge()

    async def _slots_did_not_come(self, timeout_ms: float) -> None:
        explanation = await self._resource_manager.explain()
        missing_count = self._scheduler.pool.missing_count
        error = NoResourceAvailableError(missing_count, round(timeout_ms), explanation)
        self._scheduler.fail_waiting_for_slots(Failure(error_info_of(error)))

    # Clients

    async def request_job_details(self) -> JobDetails:
        """See JobMasterGateway."""
        await self._refresh_metrics()
        explanation = ""
        if self._scheduler.is_waiting_for_slots:
            explanation = await self._resource_manager.explain()
        return describe_job(self._scheduler, explanation)

    async def cancel(self, is_forced: bool = False) -> Acknowledge:
        """See JobMasterGateway."""
        if is_forced:
            self._task_managers.force_cancelled_tasks()
        self._scheduler.cancel()
        return Acknowledge()

    def fail_for_good(self, error: BaseException) -> None:
        """For the Dispatcher: the job cannot run on this cluster any more."""
        self._scheduler.fail_job(Failure.of_error(error).as_final())

    def cancel_by_dispatcher(self) -> None:
        """For the Dispatcher, which runs on the same thread: the cluster ends."""
        self.run_async(self._scheduler.cancel)

    @property
    def status(self) -> JobStatus:
        """For the Dispatcher, which runs on the same thread."""
        return self._scheduler.status

    async def _refresh_metrics(self) -> None:
        """Everybody who asks while an answer is on its way shares it."""
        interval_ns = self._job_settings.duration_ms(METRICS_UPDATE_INTERVAL) * 1e6
        now_ns = self.clock.monotonic_ns()
        if self._metrics_refresh is None and now_ns - self._metrics_time_ns < interval_ns:
            return
        if self._metrics_refresh is None:
            self._metrics_refresh = self.spawn(self._task_managers.refresh_metrics(), "metrics")
        try:
            await asyncio.shield(self._metrics_refresh)
        finally:
            self._metrics_refresh = None
            self._metrics_time_ns = self.clock.monotonic_ns()

    # SchedulerShell

    def declare_requirements(self) -> None:
        """See SchedulerShell."""
        self._resource_manager.declare()

    def start_slot_timer(self) -> None:
        """See SchedulerShell."""
        self._slot_timer_number += 1
        number = self._slot_timer_number
        timeout_ms = self._job_settings.duration_ms(SLOT_REQUEST_TIMEOUT)

        def timed_out() -> None:
            if number == self._slot_timer_number and self._scheduler.is_waiting_for_slots:
                self.spawn(self._slots_did_not_come(timeout_ms), "slot request timeout")

        self.schedule_run_async(timeout_ms, timed_out)

    def location_of(self, resource_id: ResourceId) -> TaskManagerLocation:
        """See SchedulerShell."""
        return self._task_managers.location_of(resource_id)

    def register_partitions(
        self, registrations: Sequence[PartitionRegistration], version: int
    ) -> None:
        """See SchedulerShell."""
        scheduler = self._scheduler
        self._partitions.register(
            registrations, version, scheduler.partitions_registered, scheduler.registration_failed
        )

    def release_externally(self, descriptors: Sequence[ShuffleDescriptor]) -> None:
        """See SchedulerShell."""
        self._partitions.release(descriptors)

    def submit_task(self, execution: Execution, descriptor: TaskDeploymentDescriptor) -> None:
        """See SchedulerShell."""
        self._task_managers.submit_task(execution, descriptor)

    def cancel_task(self, execution: Execution) -> None:
        """See SchedulerShell."""
        self._task_managers.cancel_task(execution)

    def release_partitions(
        self, resource_id: ResourceId, partition_ids: tuple[ResultPartitionId, ...]
    ) -> None:
        """See SchedulerShell."""
        self._task_managers.release_partitions(resource_id, partition_ids)

    def run_later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """See SchedulerShell."""
        self.schedule_run_async(delay_ms, action)

    def commit(self) -> None:
        """See SchedulerShell."""
        self.spawn(self._commit(), "commit")

    async def _commit(self) -> None:
        try:
            await self._coordinators.commit()
        except Exception as error:
            self._scheduler.fail_job(Failure.of_error(error))
        else:
            self._scheduler.committed()

    def execution_changed(self, execution: Execution) -> None:
        """See SchedulerShell."""
        attempt_id, slot = execution.attempt_id, execution.slot
        try:
            if execution.state is ExecutionState.RUNNING and slot is not None:
                location = self._task_managers.location_of(slot.resource_id)
                self._coordinators.subtask_ready(attempt_id, location)
            elif execution.state in (ExecutionState.FAILED, ExecutionState.CANCELED):
                self._coordinators.subtask_failed(attempt_id)
        except Exception as error:
            self._scheduler.fail_job(Failure.of_error(error))

    def status_changed(self, status: JobStatus) -> None:
        """See SchedulerShell."""
        _LOG.info("job %s (%s) is %s", self._graph.name, self._graph.job_id, status.name)
        if status in (JobStatus.FAILING, JobStatus.CANCELLING):
            # Nothing will be deployed any more: what is lost need not be replaced.
            self._scheduler.pool.require(())
            self._resource_manager.declare()
        if status.is_globally_terminal_state():
            self.spawn(self._end(), "end of the job")

    async def _end(self) -> None:
        """Close what may still change the result, then tell; `on_stop` gives the slots back."""
        await self._close_coordinators()
        self._resource_manager.close("the job has ended")
        self._has_ended = True
        self._partitions.close()
        await self._release_blobs()
        collected = self._coordinators.collect_coordinators()
        self._on_ended(
            ArchivedJob(describe_job(self._scheduler), result_of(self._scheduler), collected)
        )

    async def _release_blobs(self) -> None:
        if not blob_keys(self._graph):
            return
        try:
            await self._blob_server.release_job(self._graph.job_id)
        except HeadraceError as error:
            # They go with the cluster, at the latest.
            _LOG.warning("the blobs of job %s are not deleted: %s", self._graph.job_id, error)

    def _fail(self, text: str) -> None:
        error = ErrorInfo("NoResourceAvailableError", text, "INTERNAL", recoverable=False)
        self._scheduler.fail_job(Failure(error))

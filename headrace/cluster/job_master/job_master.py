"""JobMaster: the endpoint that leads one job, from its slots to its last report.

It makes the job's Scheduler, which decides, and the services through which the Scheduler acts, and serves TaskManagers,
the ResourceManager, clients and the Dispatcher with both. Source: Flink JobMaster.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.blob.blob_client import release_blobs
from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.cluster.job_master.checkpointing.checkpoint_coordinator import CheckpointCoordinator
from headrace.cluster.job_master.checkpointing.checkpointing_factory import open_checkpointing
from headrace.cluster.job_master.checkpointing.job_restore import JobRestore
from headrace.cluster.job_master.checkpointing.savepoints import Savepoints
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import DeletionLeft
from headrace.cluster.job_master.connections.cached_results import DataSetLookup
from headrace.cluster.job_master.connections.decommissioning import Decommissioning
from headrace.cluster.job_master.connections.partition_registrar import PartitionRegistrar
from headrace.cluster.job_master.connections.resource_manager_connection import (
    ResourceManagerConnection,
)
from headrace.cluster.job_master.connections.slot_requests import SlotRequests
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.coordinators.operator_coordinator_handler import (
    OperatorCoordinatorHandler,
)
from headrace.cluster.job_master.executions import Execution, ReportVerdict
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.failover.restart_strategies import create_restart_strategy
from headrace.cluster.job_master.job_details import failure_of
from headrace.cluster.job_master.job_information import JobInformation
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.job_status_listener import JobStatusListener
from headrace.cluster.job_master.results.partition_tracker import (
    RELEASE_DURING_JOB,
    PartitionTracker,
)
from headrace.cluster.job_master.scheduler.scheduler import Scheduler, SchedulerServices
from headrace.cluster.job_master.shared_services import JobManagerSharedServices, OnTerminal
from headrace.cluster.job_master.state_locator import StateLocator
from headrace.core.barriers import SavepointFormatType
from headrace.core.config import Settings
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
)
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.resource_profile import ResourceProfile
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import JobOverview
from headrace.gateways.errors import JobAlreadyEndedError, StaleLeaderError, UnknownAttemptError
from headrace.gateways.job_master import (
    CollectedResults,
    JobConfiguration,
    JobDetails,
    JobMasterGateway,
    TaskManagerRegistration,
    TaskManagerRegistrationResponse,
)
from headrace.gateways.job_metrics import JobMetrics
from headrace.gateways.messages import (
    Acknowledge,
    ErrorInfo,
    ExecutionReport,
    OperatorDescription,
    RegistrationRejected,
    SlotOffer,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_plan import JobPlan
from headrace.rpc.endpoint import FencedRpcEndpoint
from headrace.rpc.proxies import gateway_address
from headrace.rpc.service import RpcService

_LOG = logging.getLogger(__name__)

_ENDING: Final = (JobStatus.CANCELLING, JobStatus.CANCELED, JobStatus.FINISHED)
"""Job statuses from which a job ends by itself or by its user's request, even if the cluster ends first."""


class JobMaster(FencedRpcEndpoint[JobMasterId], JobMasterGateway):
    """Leads one job. `on_ended` is called once, when the job has its last status and all work is done.

    `on_terminal` is called before it, when all output that can be is committed, and before any checkpoint is deleted.
    `first_attempt_number`: larger than those of attempts under earlier leaders of this job. `submitted_ms`: time at
    which the first leader accepted it, wall clock; None: now.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        job_master_id: JobMasterId,
        graph: JobGraph,
        services: JobManagerSharedServices,
        *,
        on_ended: Callable[[ArchivedJob], None],
        on_terminal: OnTerminal | None = None,
        first_attempt_number: int = 0,
        submitted_ms: int | None = None,
    ) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("jobmanager"), job_master_id)
        self._on_terminal: Final = on_terminal
        self._graph: Final = graph
        self._blob_server: Final = services.blob_server
        self._on_ended: Final = on_ended
        settings = rpc_service.settings.with_values(graph.settings)
        self._resource_id: Final = ResourceId(f"jobmanager-{graph.job_id}")
        self._notices: Final = JobNotices(self.clock, self.schedule_run_async)
        self._scheduler: Final = self._create_scheduler(
            settings, first_attempt_number, submitted_ms
        )
        scheduler = self._scheduler
        self._listener: Final = JobStatusListener(
            graph,
            scheduler.executions.subtasks,
            self._notices,
            self.clock,
            services.report_span,
            services.on_attempt,
        )
        self.task_managers: Final = self._open_task_managers(scheduler, settings, services)
        """TaskManagers that work for the job; used on the main thread only."""
        self._resource_manager: Final = self._open_resource_manager(scheduler, services)
        self._slots: Final = self._open_slots(scheduler, settings)
        self._registrar: Final = PartitionRegistrar(
            self, services.shuffle_master, graph.job_id, settings, self._fail_job
        )
        self._coordination: Final = OperatorCoordinatorHandler(
            self,
            scheduler,
            self.task_managers,
            services.coordinator_factories,
            settings,
            services.run_blocking,
        )
        self._checkpointing: Final = self._open_checkpointing(scheduler, settings, services)
        scheduler.connect(self._services_for(scheduler, settings))
        self._state_locator: Final = StateLocator(
            scheduler, self.task_managers, self._checkpointing.lineage.newest, settings
        )
        self._information: Final = JobInformation(
            scheduler,
            self._checkpointing,
            self._notices,
            rpc_service.settings,
            self._coordination.coordinators,
        )
        self._ended: Final[asyncio.Future[JobStatus]] = rpc_service.loop.create_future()
        self._savepoints: Final = Savepoints(scheduler, self._checkpointing, self._ended)
        self._decommissioning: Final = Decommissioning(
            self, scheduler.pool, self.task_managers, self._savepoints.take_before_restart
        )
        self._has_ended = False
        self._is_given_up = False

    def _create_scheduler(
        self, settings: Settings, first_attempt_number: int, submitted_ms: int | None
    ) -> Scheduler:
        return Scheduler(
            self._graph,
            create_restart_strategy(settings, self.rpc_service.random),
            self.clock,
            PartitionTracker(settings.get_option(RELEASE_DURING_JOB)),
            settings,
            first_attempt_number,
            submitted_ms,
        )

    def _open_task_managers(
        self, scheduler: Scheduler, settings: Settings, services: JobManagerSharedServices
    ) -> TaskManagers:
        return TaskManagers(
            self,
            scheduler.executions,
            scheduler.pool,
            job_id=self._graph.job_id,
            job_master_id=self.fencing_token,
            resource_id=self._resource_id,
            settings=settings,
            blob_server_address=gateway_address(services.blob_server),
            on_lost=scheduler.lose_task_manager,
            on_task_lost=scheduler.lose,
        )

    def _open_resource_manager(
        self, scheduler: Scheduler, services: JobManagerSharedServices
    ) -> ResourceManagerConnection:
        return ResourceManagerConnection(
            self,
            self._resource_id,
            self._graph.job_id,
            self.fencing_token,
            leader_retrieval_address=services.leader_retrieval_address,
            requirements=lambda: scheduler.pool.requirements,
            on_rejected=self._rejected,
        )

    def _open_slots(self, scheduler: Scheduler, settings: Settings) -> SlotRequests:
        return SlotRequests(
            self,
            self._graph,
            scheduler.pool,
            self.task_managers,
            self._resource_manager,
            settings,
            is_waiting=lambda: scheduler.is_waiting_for_slots,
            on_unavailable=scheduler.slots_cannot_come,
        )

    def _open_checkpointing(
        self, scheduler: Scheduler, settings: Settings, services: JobManagerSharedServices
    ) -> CheckpointCoordinator:
        return open_checkpointing(
            self,
            scheduler,
            self.task_managers,
            self._coordination,
            settings,
            services.run_blocking,
            services.start_blocking,
            self._notices,
            self._listener.checkpoint_ended,
            services.fence,
        )

    def _services_for(self, scheduler: Scheduler, settings: Settings) -> SchedulerServices:
        coordination, checkpointing = self._coordination, self._checkpointing
        restore = JobRestore(
            self, scheduler, coordination, checkpointing.lineage, settings, self._notices
        )
        return SchedulerServices(
            task_managers=self.task_managers,
            slots=self._slots,
            registrar=self._registrar,
            data_sets=DataSetLookup(self, self._resource_manager, settings),
            restore=restore.restore,
            commit=functools.partial(coordination.commit, checkpointing.commits.await_all),
            execution_changed=self._execution_changed,
            status_changed=self._status_changed,
            restarts=lambda cause, delay_ms, restart_count: self._listener.restarts(
                cause, delay_ms, restart_count, checkpointing.newest_id
            ),
            schedule_run_async=self.schedule_run_async,
        )

    async def on_start(self) -> None:
        """Start the job."""
        self._listener.attempt_begins(1)
        self._registrar.start()
        self._resource_manager.link.connect()
        self._scheduler.start()
        self._slots.return_idle()

    async def on_stop(self) -> None:
        """Disconnect from TaskManagers and ResourceManager. A job that has not ended is abandoned here."""
        self._resource_manager.close("the JobMaster is being closed")
        if not self._has_ended:
            try:
                await self._checkpointing.lineage.close(JobStatus.SUSPENDED)
            except LeadershipLostError as error:
                # The next leader has taken the job over, or is about to.
                _LOG.info(
                    "the checkpoints of job %s are left unchanged: %s", self._graph.job_id, error
                )
            await self._coordination.close()
            self._registrar.close()
        await self.task_managers.dismiss_all()

    # TaskManagers and their slots

    async def register_task_manager(
        self, job_id: JobId, registration: TaskManagerRegistration
    ) -> TaskManagerRegistrationResponse:
        if job_id != self._graph.job_id:
            return RegistrationRejected(f"this JobMaster leads job {self._graph.job_id}")
        if self._scheduler.has_ended:
            return RegistrationRejected("the job has ended")
        if self._scheduler.pool.is_left(registration.location.resource_id):
            return RegistrationRejected(
                "the job has left this TaskManager, which is decommissioned"
            )
        return await self.task_managers.register(registration)

    async def offer_slots(
        self, resource_id: ResourceId, offers: tuple[SlotOffer, ...]
    ) -> tuple[AllocationId, ...]:
        if not self.task_managers.is_registered(resource_id):
            raise StaleLeaderError(f"TaskManager {resource_id} is not registered at this JobMaster")
        host = self.task_managers.location_of(resource_id).host
        accepted = self._scheduler.pool.offer(resource_id, offers, self.clock.monotonic_ms(), host)
        self._scheduler.slots_changed()
        self._decommissioning.slots_changed()
        return accepted

    def fail_slot(self, resource_id: ResourceId, allocation_id: AllocationId, cause: str) -> None:
        lost = self._scheduler.executions.in_slot(allocation_id)
        self._scheduler.pool.fail_slot(allocation_id)
        text = f"a slot of TaskManager {resource_id} was lost: {cause}"
        error = ErrorInfo("SlotLostError", text, "INTERNAL", recoverable=True)
        for execution in lost:
            self._scheduler.lose(execution, error)

    def disconnect_task_manager(self, resource_id: ResourceId, cause: str) -> None:
        self.task_managers.lose(resource_id, cause)

    # Tasks

    async def update_task_execution_state(self, report: ExecutionReport) -> Acknowledge:
        if self._scheduler.report(report) is ReportVerdict.UNKNOWN_ATTEMPT:
            raise UnknownAttemptError(str(report.attempt_id))
        return Acknowledge()

    async def request_partition_state(
        self, partition_id: ResultPartitionId
    ) -> ExecutionState | None:
        if self._scheduler.cached_inputs.reads(partition_id):
            # No task of this job will write it: another request is useless.
            return ExecutionState.CREATED
        execution = self._scheduler.executions.find(partition_id.producer)
        return None if execution is None else execution.state

    # Coordinators

    async def send_operator_event_to_coordinator(
        self,
        attempt_id: ExecutionAttemptId,
        operator_id: OperatorId,
        sequence_number: int,
        payload: bytes,
    ) -> Acknowledge:
        self._coordination.handle_event(attempt_id, operator_id, sequence_number, payload)
        return Acknowledge()

    async def acknowledge_checkpoint(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> Acknowledge:
        self._checkpointing.acknowledge(attempt_id, checkpoint_id, snapshot, metrics)
        return Acknowledge()

    async def decline_checkpoint(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        text: str,
    ) -> Acknowledge:
        self._checkpointing.decline(attempt_id, checkpoint_id, reason, text)
        return Acknowledge()

    async def notify_end_of_data(self, attempt_id: ExecutionAttemptId) -> Acknowledge:
        if self._scheduler.data_ended(attempt_id):
            self._checkpointing.final.data_ended(is_stopping=self._savepoints.is_stopping)
        return Acknowledge()

    async def fetch_collected_results(
        self, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        return self._coordination.fetch_collected(operator_id, offset, max_piece_count)

    # The ResourceManager

    def notify_not_enough_resources(self, explanation: str, recoverable: bool) -> None:
        self._slots.cannot_come(explanation, recoverable=recoverable)

    def notify_task_manager_decommissioned(
        self, resource_id: ResourceId, cause: str, grace_ms: int
    ) -> None:
        self._decommissioning.announced(resource_id, cause, grace_ms)

    async def request_slots_back(self, reason: str) -> bool:
        if self._scheduler.is_waiting_with_nothing_deployed:
            self._slots.give_back(reason)
        return not self._scheduler.is_any_part_running

    def notify_impossible_profile(self, profile: ResourceProfile, explanation: str) -> None:
        self._slots.cannot_be(profile, explanation)

    def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerId, cause: str
    ) -> None:
        if self._resource_manager.link.is_leader(resource_manager_id):
            self._resource_manager.link.lost(cause)

    async def heartbeat_from_resource_manager(self, resource_id: ResourceId) -> Acknowledge:
        self._resource_manager.link.heartbeat_received(resource_id)
        return Acknowledge()

    # Clients

    async def request_job_details(self, metrics_age_max_ms: int = 0) -> JobDetails:
        await self.task_managers.refresh_metrics(metrics_age_max_ms)
        explanation = ""
        if self._scheduler.is_waiting_for_slots:
            explanation = await self._resource_manager.explain()
        return self._information.details(explanation)

    async def request_job_plan(self) -> JobPlan:
        return self._information.plan

    async def request_job_configuration(self) -> JobConfiguration:
        return self._information.configuration

    async def request_accumulators(self) -> dict[str, float]:
        await self.task_managers.refresh_metrics()
        return self._information.accumulators

    async def request_checkpoint_statistics(self) -> CheckpointStatistics:
        return self._information.checkpoint_statistics

    async def request_checkpoint_details(self, checkpoint_id: int) -> CheckpointDetails | None:
        return self._information.checkpoint_details(checkpoint_id)

    async def request_checkpoint_configuration(self) -> CheckpointConfiguration:
        return self._information.checkpoint_configuration

    async def request_operators(self) -> tuple[OperatorDescription, ...]:
        return self._state_locator.operators()

    async def request_operator(self, named: str) -> OperatorDescription:
        return self._state_locator.operator(named)

    async def request_latest_checkpoint(self) -> StoredCheckpoint | None:
        return await self._state_locator.latest_checkpoint()

    async def read_state(self, request: StateReadRequest) -> SubtaskState:
        return await self._state_locator.read(request)

    async def trigger_checkpoint(self, is_full: bool = False) -> int:
        return await self._savepoints.trigger_checkpoint(is_full=is_full)

    async def trigger_savepoint(
        self,
        target_directory: str,
        format_type: SavepointFormatType,
    ) -> str:
        return await self._savepoints.trigger(target_directory, format_type)

    async def stop_with_savepoint(
        self,
        target_directory: str,
        is_drained: bool,
        format_type: SavepointFormatType,
    ) -> str:
        return await self._savepoints.stop(target_directory, format_type, is_drained=is_drained)

    async def cancel(self, is_forced: bool = False) -> Acknowledge:
        status = self._scheduler.status
        if status in (JobStatus.FAILED, JobStatus.FINISHED):
            # The Dispatcher does not know of the end yet, and would refuse it then.
            raise JobAlreadyEndedError(str(self._graph.job_id), status.name)
        if is_forced:
            self.task_managers.force_cancelled_tasks()
        self._scheduler.cancel()
        return Acknowledge()

    def fail_for_good(self, error: BaseException) -> None:
        """Fail the job without a restart, because it can no longer run on this cluster. Called by the Dispatcher."""
        self._scheduler.fail_job(Failure.of_error(error).as_final())

    def cancel_by_dispatcher(self) -> None:
        """End the job because the cluster ends.

        Called by the Dispatcher on the same thread; repeated calls have no effect.
        """
        self._is_given_up = self._is_given_up or self._scheduler.status not in _ENDING
        self.run_async(self._end_with_cluster)

    def _end_with_cluster(self) -> None:
        # A failing job ends anyway, and keeps its cause.
        if self._scheduler.status is not JobStatus.FAILING:
            self._scheduler.cancel()

    @property
    def status(self) -> JobStatus:
        """Status of the job, for the Dispatcher, which runs on the same thread."""
        return self._scheduler.status

    @property
    def overview(self) -> JobOverview:
        """Line of the job in a list, for the Dispatcher, which runs on the same thread."""
        return self._information.overview

    @property
    def metrics(self) -> JobMetrics:
        """Return metrics of the job and its coordinators, without its tasks; for the Dispatcher on the same thread."""
        return self._information.metrics(self.clock.now_ms())

    # What the scheduler tells, and what fails the job

    def _execution_changed(self, execution: Execution) -> None:
        self._coordination.execution_changed(execution)
        self._listener.execution_changed(execution)
        if execution.state.is_terminal:
            is_failure = execution.state is not ExecutionState.FINISHED
            self._checkpointing.task_gone(execution.attempt_id, is_failure=is_failure)

    def _status_changed(self, status: JobStatus) -> None:
        self._listener.status_changed(status, failure_of(self._scheduler))
        self._checkpointing.status_changed(status)
        if status.is_globally_terminal_state():
            self.spawn(self._end(), "end of the job")

    def _rejected(self, reason: str) -> None:
        text = f"the ResourceManager rejected the job: {reason}"
        error = ErrorInfo("NoResourceAvailableError", text, "INTERNAL", recoverable=False)
        self._scheduler.fail_job(Failure(error))

    def _fail_job(self, error: HeadraceError) -> None:
        self._scheduler.fail_job(Failure.of_error(error))

    # The end

    async def _end(self) -> None:
        """Close everything that may change the result, then report the end; `on_stop` returns the slots."""
        await self._checkpointing.lineage.close(
            self._scheduler.status,
            is_given_up=self._is_given_up,
            before_deletion=self._tell_terminal,
        )
        await self._coordination.close()
        if self._scheduler.status is JobStatus.FINISHED:
            await self.task_managers.promote_partitions(self._scheduler.partitions.promote())
        self._resource_manager.close("the job has ended")
        self._notices.close()
        self._has_ended = True
        self._ended.set_result(self._scheduler.status)
        self._registrar.close()
        await release_blobs(self._graph, self._blob_server)
        collected = self._coordination.coordinators.collect_coordinators()
        self._on_ended(self._information.archive(collected))

    @property
    def deletion_left(self) -> DeletionLeft | None:
        """Files that the storage has not deleted at the job's end, or None if all are deleted."""
        return self._checkpointing.lineage.deletion_left

    async def _tell_terminal(self, is_committed: bool) -> None:
        if self._on_terminal is not None:
            keeps_latest = self._is_given_up or not is_committed
            await self._on_terminal(self._information.result, keeps_latest)

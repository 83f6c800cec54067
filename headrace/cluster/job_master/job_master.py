"""JobMaster: the endpoint that leads one job, from its slots to its last report.

Decisions are the Scheduler's; this is what it does to the world and hears from it. Source: Flink JobMaster.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from headrace.checkpoint.failure_reasons import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.dispatcher.archive import ArchivedJob
from headrace.cluster.job_master.checkpointing.assembly import open_checkpointing
from headrace.cluster.job_master.checkpointing.job_restore import JobRestore
from headrace.cluster.job_master.checkpointing.savepoints import Savepoints
from headrace.cluster.job_master.data_set_lookup import DataSetLookup
from headrace.cluster.job_master.deployment_plan import PartitionRegistration
from headrace.cluster.job_master.executions import Execution, ReportVerdict
from headrace.cluster.job_master.failover import Failure
from headrace.cluster.job_master.job_coordination import JobCoordination
from headrace.cluster.job_master.job_details import describe_job, result_of
from headrace.cluster.job_master.job_slots import JobSlots
from headrace.cluster.job_master.operator_coordinator import CoordinatorFactories
from headrace.cluster.job_master.partition_registrar import PartitionRegistrar
from headrace.cluster.job_master.partition_tracker import RELEASE_DURING_JOB, PartitionTracker
from headrace.cluster.job_master.resource_manager_connection import ResourceManagerConnection
from headrace.cluster.job_master.restart_strategies import create_restart_strategy
from headrace.cluster.job_master.scheduling import Scheduler
from headrace.cluster.job_master.state_locator import StateLocator
from headrace.cluster.job_master.task_managers import TaskManagers
from headrace.cluster.shuffle.shuffle_master import ShuffleMaster
from headrace.core.errors import HeadraceError
from headrace.core.ids import (
    AllocationId,
    ClusterDataSetId,
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobMasterId,
    OperatorId,
    ResourceId,
    ResourceManagerId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.core.threads import BlockingRunner, run_in_thread
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.errors import StaleLeaderError, UnknownAttemptError
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
from headrace.gateways.state_requests import (
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_graph import JobGraph
from headrace.graph.payloads import blob_keys
from headrace.rpc.fencing import FencedRpcEndpoint
from headrace.rpc.proxies import gateway_address
from headrace.rpc.service import RpcService

_LOG = logging.getLogger(__name__)


class JobMaster(FencedRpcEndpoint[JobMasterId], JobMasterGateway):
    """One per job. `on_ended` is called once, when the job has its last status.

    Implements SchedulerShell.
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
        run_blocking: BlockingRunner = run_in_thread,
    ) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("jobmanager"), job_master_id)
        self._graph: Final = graph
        self._blob_server: Final = blob_server
        self._on_ended: Final = on_ended
        resource_id = ResourceId(f"jobmanager-{graph.job_id}")
        settings = rpc_service.settings.with_values(graph.settings)
        self._scheduler: Final = Scheduler(
            graph,
            create_restart_strategy(settings, rpc_service.random),
            self,
            rpc_service.clock,
            PartitionTracker(settings.get_option(RELEASE_DURING_JOB)),
            settings,
        )
        self._partitions: Final = PartitionRegistrar(
            self, shuffle_master, graph.job_id, settings, on_lost=self._partitions_lost
        )
        self.task_managers: Final = TaskManagers(
            self,
            self._scheduler,
            job_id=graph.job_id,
            job_master_id=job_master_id,
            resource_id=resource_id,
            settings=settings,
            blob_server_address=gateway_address(blob_server),
        )
        """For the scheduler."""
        self._coordination: Final = JobCoordination(
            self,
            self._scheduler,
            self.task_managers,
            coordinator_factories,
            settings,
            run_blocking,
        )
        self._checkpointing: Final = open_checkpointing(
            self, self._scheduler, self.task_managers, self._coordination, settings, run_blocking
        )
        self._state_locator: Final = StateLocator(
            self._scheduler, self.task_managers, self._checkpointing.newest, settings
        )
        self._ended: Final[asyncio.Future[JobStatus]] = rpc_service.loop.create_future()
        self._savepoints: Final = Savepoints(self._scheduler, self._checkpointing, self._ended)
        self._restore: Final = JobRestore(
            self, self._scheduler, self._coordination, self._checkpointing, settings
        )
        self._resource_manager: Final = ResourceManagerConnection(
            self,
            resource_id,
            graph.job_id,
            job_master_id,
            address=resource_manager_address,
            resource_manager_id=resource_manager_id,
            requirements=lambda: self._scheduler.pool.requirements,
            on_rejected=self._rejected,
        )
        self._data_sets: Final = DataSetLookup(
            self, self._scheduler, self._resource_manager, settings
        )
        self._slots: Final = JobSlots(
            self, self._scheduler, self.task_managers, self._resource_manager, settings
        )
        self._has_ended = False

    async def on_start(self) -> None:
        """Begin."""
        self._partitions.start()
        self._resource_manager.link.connect()
        self._scheduler.start()
        self._slots.return_idle()

    async def on_stop(self) -> None:
        """Let go of everybody. A job that has not ended is given up here."""
        self._resource_manager.close("the JobMaster is being closed")
        if not self._has_ended:
            await self._checkpointing.close(JobStatus.SUSPENDED)
            await self._coordination.close()
            self._partitions.close()
        await self.task_managers.dismiss_all()

    # TaskManagers and their slots

    async def register_task_manager(
        self, job_id: JobId, registration: TaskManagerRegistration
    ) -> TaskManagerRegistrationResponse:
        """See JobMasterGateway."""
        if job_id != self._graph.job_id:
            return RegistrationRejected(f"this JobMaster leads job {self._graph.job_id}")
        if self._scheduler.has_ended:
            return RegistrationRejected("the job has ended")
        return await self.task_managers.register(registration)

    async def offer_slots(
        self, resource_id: ResourceId, offers: tuple[SlotOffer, ...]
    ) -> tuple[AllocationId, ...]:
        """See JobMasterGateway."""
        if not self.task_managers.is_registered(resource_id):
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
        self.task_managers.lose(resource_id, cause)

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
        if self._scheduler.cluster_inputs.reads(partition_id):
            # Nobody in this job is about to write it: to ask for it again is of no use.
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
        """See JobMasterGateway."""
        self._coordination.handle_event(attempt_id, operator_id, sequence_number, payload)
        return Acknowledge()

    async def acknowledge_checkpoint(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> Acknowledge:
        """See JobMasterGateway."""
        self._checkpointing.acknowledge(attempt_id, checkpoint_id, snapshot, metrics)
        return Acknowledge()

    async def decline_checkpoint(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        text: str,
    ) -> Acknowledge:
        """See JobMasterGateway."""
        self._checkpointing.decline(attempt_id, checkpoint_id, reason, text)
        return Acknowledge()

    async def notify_end_of_data(self, attempt_id: ExecutionAttemptId) -> Acknowledge:
        """See JobMasterGateway."""
        if self._scheduler.data_ended(attempt_id):
            self._checkpointing.final.data_ended(is_stopping=self._savepoints.is_stopping)
        return Acknowledge()

    async def fetch_collected_results(
        self, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        """See JobMasterGateway."""
        return self._coordination.fetch_collected(operator_id, offset, max_piece_count)

    # The ResourceManager

    def notify_not_enough_resources(self, explanation: str) -> None:
        """See JobMasterGateway."""
        self._slots.cannot_come(explanation)

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

    # Clients

    async def request_job_details(self) -> JobDetails:
        """See JobMasterGateway."""
        await self.task_managers.refresh_metrics()
        explanation = ""
        if self._scheduler.is_waiting_for_slots:
            explanation = await self._resource_manager.explain()
        return describe_job(self._scheduler, self._checkpointing.overview, explanation)

    async def request_operators(self) -> tuple[OperatorDescription, ...]:
        """See JobMasterGateway."""
        return self._state_locator.operators()

    async def request_operator(self, named: str) -> OperatorDescription:
        """See JobMasterGateway."""
        return self._state_locator.operator(named)

    async def request_latest_checkpoint(self) -> StoredCheckpoint | None:
        """See JobMasterGateway."""
        return await self._state_locator.latest_checkpoint()

    async def read_state(self, request: StateReadRequest) -> SubtaskState:
        """See JobMasterGateway."""
        return await self._state_locator.read(request)

    async def trigger_checkpoint(self) -> int:
        """See JobMasterGateway."""
        return await self._savepoints.trigger_checkpoint()

    async def trigger_savepoint(self, target_directory: str) -> str:
        """See JobMasterGateway."""
        return await self._savepoints.trigger(target_directory)

    async def stop_with_savepoint(self, target_directory: str, is_drained: bool) -> str:
        """See JobMasterGateway."""
        return await self._savepoints.stop(target_directory, is_drained=is_drained)

    async def cancel(self, is_forced: bool = False) -> Acknowledge:
        """See JobMasterGateway."""
        if is_forced:
            self.task_managers.force_cancelled_tasks()
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

    # SchedulerShell

    def restore(self, scope: frozenset[ExecutionVertexId], version: int) -> None:
        """See SchedulerShell."""
        self._restore.restore(scope, version)

    def request_slots(self) -> None:
        """See SchedulerShell."""
        self._slots.request()

    def find_inputs(self, data_sets: Sequence[ClusterDataSetId], version: int) -> None:
        """See SchedulerShell."""
        self._data_sets.find(data_sets, version)

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        """See SchedulerShell."""
        self._data_sets.release(data_set)

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

    def commit(self) -> None:
        """See SchedulerShell."""
        self._coordination.commit(self._checkpointing.commits.await_all)

    def execution_changed(self, execution: Execution) -> None:
        """See SchedulerShell."""
        self._coordination.execution_changed(execution)
        if execution.state.is_terminal:
            is_failure = execution.state is not ExecutionState.FINISHED
            self._checkpointing.task_gone(execution.attempt_id, is_failure=is_failure)

    def status_changed(self, status: JobStatus) -> None:
        """See SchedulerShell."""
        _LOG.info("job %s (%s) is %s", self._graph.name, self._graph.job_id, status.name)
        self._checkpointing.status_changed(status)
        if status in (JobStatus.FAILING, JobStatus.CANCELLING):
            # Nothing will be deployed any more: what is lost need not be replaced.
            self._scheduler.pool.require(())
            self._resource_manager.declare()
        if status.is_globally_terminal_state():
            self.spawn(self._end(), "end of the job")

    async def _end(self) -> None:
        """Close what may still change the result, then tell; `on_stop` gives the slots back."""
        await self._checkpointing.close(self._scheduler.status)
        await self._coordination.close()
        if self._scheduler.status is JobStatus.FINISHED:
            await self.task_managers.promote_partitions(self._scheduler.partitions.promote())
        self._resource_manager.close("the job has ended")
        self._has_ended = True
        self._ended.set_result(self._scheduler.status)
        self._partitions.close()
        await self._release_blobs()
        collected = self._coordination.collect_coordinators()
        self._on_ended(
            ArchivedJob(
                describe_job(self._scheduler, self._checkpointing.overview),
                result_of(self._scheduler),
                collected,
            )
        )

    async def _release_blobs(self) -> None:
        if not blob_keys(self._graph):
            return
        try:
            await self._blob_server.release_job(self._graph.job_id)
        except HeadraceError as error:
            # They go with the cluster, at the latest.
            _LOG.warning("the blobs of job %s are not deleted: %s", self._graph.job_id, error)

    def _partitions_lost(self, error: HeadraceError) -> None:
        self._scheduler.fail_job(Failure.of_error(error))

    def _rejected(self, reason: str) -> None:
        text = f"the ResourceManager rejected the job: {reason}"
        error = ErrorInfo("NoResourceAvailableError", text, "INTERNAL", recoverable=False)
        self._scheduler.fail_job(Failure(error))

"""JobShell: puts together the scheduler of one job and all parts that carry out its decisions.

Here the parts of a job are put together: its TaskManagers, coordinators and checkpoints, its dealings with the
ResourceManager and with the shuffle master. Main thread of the JobMaster.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from headrace.cluster.error_reports import first_line
from headrace.cluster.job_master.checkpointing.checkpoint_coordinator import open_checkpointing
from headrace.cluster.job_master.checkpointing.job_restore import JobRestore
from headrace.cluster.job_master.connections.cached_results import DataSetLookup
from headrace.cluster.job_master.connections.partition_registrar import PartitionRegistrar
from headrace.cluster.job_master.connections.resource_manager_connection import (
    ResourceManagerConnection,
)
from headrace.cluster.job_master.connections.slot_requests import SlotRequests
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.coordinators.operator_coordinator_handler import (
    OperatorCoordinatorHandler,
)
from headrace.cluster.job_master.executions.executions import Execution
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.failover.restart_strategies import create_restart_strategy
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.results.partition_tracker import (
    RELEASE_DURING_JOB,
    PartitionTracker,
)
from headrace.cluster.job_master.scheduler.deployment_plan import PartitionRegistration
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.cluster.job_master.shared_services import JobManagerSharedServices
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import ClusterDataSetId, ExecutionVertexId, JobId, JobMasterId, ResourceId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import JobGraph
from headrace.rpc.endpoint import FencedRpcEndpoint
from headrace.rpc.proxies import gateway_address

_LOG = logging.getLogger(__name__)


class JobShell:
    """One per JobMaster, its endpoint. `on_terminal` is called once, when the job has its last status.

    Implements SchedulerShell.
    """

    def __init__(
        self,
        endpoint: FencedRpcEndpoint[JobMasterId],
        graph: JobGraph,
        settings: Settings,
        services: JobManagerSharedServices,
        on_terminal: Callable[[], None],
    ) -> None:
        """`settings` are the job's over the cluster's."""
        self._endpoint: Final = endpoint
        self._on_terminal: Final = on_terminal
        run_blocking = services.run_blocking
        self.notices: Final = JobNotices(endpoint.clock, endpoint.schedule_run_async)
        self.scheduler: Final = Scheduler(
            graph,
            create_restart_strategy(settings, endpoint.rpc_service.random),
            self,
            endpoint.clock,
            PartitionTracker(settings.get_option(RELEASE_DURING_JOB)),
            settings,
        )
        scheduler = self.scheduler
        self.task_managers: Final = _open_task_managers(endpoint, scheduler, settings, services)
        self.coordination: Final = OperatorCoordinatorHandler(
            endpoint,
            scheduler,
            self.task_managers,
            services.coordinator_factories,
            settings,
            run_blocking,
        )
        self.checkpointing: Final = open_checkpointing(
            endpoint,
            scheduler,
            self.task_managers,
            self.coordination,
            settings,
            run_blocking,
            self.notices,
        )
        self._restore: Final = JobRestore(
            endpoint,
            scheduler,
            self.coordination,
            self.checkpointing.lineage,
            settings,
            self.notices,
        )
        self.resource_manager: Final = _open_resource_manager(endpoint, scheduler, services)
        self._data_sets: Final = DataSetLookup(endpoint, scheduler, self.resource_manager, settings)
        self.slots: Final = SlotRequests(
            endpoint, scheduler, self.task_managers, self.resource_manager, settings
        )
        self.partitions: Final = PartitionRegistrar(
            endpoint, services.shuffle_master, graph.job_id, settings, self._partitions_lost
        )

    def start(self) -> None:
        """Begin."""
        self.partitions.start()
        self.resource_manager.link.connect()
        self.scheduler.start()
        self.slots.return_idle()

    def restore(self, scope: frozenset[ExecutionVertexId], version: int) -> None:
        self._restore.restore(scope, version)

    def declare_slots(self) -> None:
        self.resource_manager.declare()

    def await_slots(self) -> None:
        self.slots.request()

    def find_inputs(self, data_sets: Sequence[ClusterDataSetId], version: int) -> None:
        self._data_sets.find(data_sets, version)

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        self._data_sets.release(data_set)

    def register_partitions(
        self, registrations: Sequence[PartitionRegistration], version: int
    ) -> None:
        scheduler = self.scheduler
        self.partitions.register(
            registrations, version, scheduler.partitions_registered, scheduler.registration_failed
        )

    def release_externally(self, descriptors: Sequence[ShuffleDescriptor]) -> None:
        self.partitions.release(descriptors)

    def schedule_run_async(self, delay_ms: float, action: Callable[[], None]) -> object:
        return self._endpoint.schedule_run_async(delay_ms, action)

    def commit(self) -> None:
        self.coordination.commit(self.checkpointing.commits.await_all)

    def restarts(self, cause: Failure, delay_ms: float, restart_count: int) -> None:
        newest_id = self.checkpointing.newest_id
        self.notices.tell(
            "restarts",
            f"job '{self.scheduler.graph.name}' restarts "
            f"{f'in {delay_ms / 1000:.1f} s' if delay_ms else 'now'} "
            f"{f'from checkpoint {newest_id}' if newest_id else 'from the start'} "
            f"(restart {restart_count}): {first_line(cause.error)}",
        )

    def execution_changed(self, execution: Execution) -> None:
        self.coordination.execution_changed(execution)
        if execution.state.is_terminal:
            is_failure = execution.state is not ExecutionState.FINISHED
            self.checkpointing.task_gone(execution.attempt_id, is_failure=is_failure)

    def status_changed(self, status: JobStatus) -> None:
        graph = self.scheduler.graph
        _LOG.info("job %s (%s) is %s", graph.name, graph.job_id, status.name)
        self.checkpointing.status_changed(status)
        if status in (JobStatus.FAILING, JobStatus.CANCELLING):
            # Nothing will be deployed any more: what is lost need not be replaced.
            self.scheduler.pool.require(())
            self.resource_manager.declare()
        if status.is_globally_terminal_state():
            self._on_terminal()

    def _partitions_lost(self, error: HeadraceError) -> None:
        self.scheduler.fail_job(Failure.of_error(error))


def _open_task_managers(
    endpoint: FencedRpcEndpoint[JobMasterId],
    scheduler: Scheduler,
    settings: Settings,
    services: JobManagerSharedServices,
) -> TaskManagers:
    job_id = scheduler.graph.job_id
    return TaskManagers(
        endpoint,
        scheduler,
        job_id=job_id,
        job_master_id=endpoint.fencing_token,
        resource_id=_resource_id_of(job_id),
        settings=settings,
        blob_server_address=gateway_address(services.blob_server),
    )


def _open_resource_manager(
    endpoint: FencedRpcEndpoint[JobMasterId],
    scheduler: Scheduler,
    services: JobManagerSharedServices,
) -> ResourceManagerConnection:
    def rejected(reason: str) -> None:
        text = f"the ResourceManager rejected the job: {reason}"
        error = ErrorInfo("NoResourceAvailableError", text, "INTERNAL", recoverable=False)
        scheduler.fail_job(Failure(error))

    job_id = scheduler.graph.job_id
    return ResourceManagerConnection(
        endpoint,
        _resource_id_of(job_id),
        job_id,
        endpoint.fencing_token,
        address=services.resource_manager_address,
        resource_manager_id=services.resource_manager_id,
        requirements=lambda: scheduler.pool.requirements,
        on_rejected=rejected,
    )


def _resource_id_of(job_id: JobId) -> ResourceId:
    """Under this name a JobMaster exchanges heartbeats."""
    return ResourceId(f"jobmanager-{job_id}")

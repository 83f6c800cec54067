"""Cluster: the control plane of one cluster on one event loop: ResourceManager, Dispatcher, BlobServer and leaders.

Source: Flink DispatcherResourceManagerComponent.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.cluster.blob.blob_server import BlobServer
from headrace.cluster.cluster_metrics import ClusterMetrics
from headrace.cluster.dispatcher.dispatcher import Dispatcher
from headrace.cluster.dispatcher.dispatcher_runner import DispatcherRunner
from headrace.cluster.dispatcher.job_archive import ArchiveLimits, JobArchive
from headrace.cluster.dispatcher.running_jobs import RunningJobs
from headrace.cluster.dispatcher.stored_jobs import StoredJobs
from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.cluster.high_availability.leader_election_service import Leadership
from headrace.cluster.host_services import NO_HOST_SERVICES, HostServices
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorFactories
from headrace.cluster.job_master.shared_services import JobManagerSharedServices
from headrace.cluster.leader_replacements import LeaderReplacements
from headrace.cluster.leadership import (
    DISPATCHER,
    RESOURCE_MANAGER,
    EmbeddedLeaderElection,
    LeaderDirectory,
    always_leads,
    tell_end,
)
from headrace.cluster.resource_manager.driver import ResourceManagerDriver, WorkerHost
from headrace.cluster.resource_manager.options import REPLACEMENTS_MAX
from headrace.cluster.resource_manager.resource_manager import ResourceManager
from headrace.cluster.shuffle_master import ShuffleMaster, ShuffleMasterContext
from headrace.cluster.task_executor.shuffle_service_loader import load_shuffle_service_factory
from headrace.cluster.versions import software_versions
from headrace.core.errors import ErrorDomain, HostError
from headrace.core.ids import DispatcherId, ResourceId, ResourceManagerId
from headrace.core.security.tls import TlsIdentity
from headrace.core.threads import BlockingRunner, BlockingStarter, run_in_thread, start_thread
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.resource_manager import ResourceManagerGateway
from headrace.metrics.reporters.registry import MetricRegistry
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import EndpointFailedError, EndpointStartError
from headrace.rpc.proxies import NO_TIMEOUT_MS, redirect, with_timeout
from headrace.rpc.service import RpcService

_LOG = logging.getLogger(__name__)

WorkerNames = Callable[[int], str]


class ClusterFailedError(HostError):
    """A part of the control plane failed: its state cannot be trusted, and the cluster runs no more jobs."""

    domain = ErrorDomain.INTERNAL

    def __init__(self, cause: BaseException, *, is_followed: bool = False) -> None:
        """Set `is_followed` if the cluster has high availability, so that another process leads it next."""
        is_named = isinstance(cause, EndpointFailedError)
        text = str(cause) if is_named else f"{type(cause).__name__}: {cause}"
        what = (
            "its jobs go on under the next leader; see the log for the traceback, and start this process again as a "
            "standby"
            if is_followed
            else "all its jobs fail; see the log for the traceback, and start the program again from its last "
            "checkpoint with -s"
        )
        super().__init__(f"the control plane of the cluster has failed: {text}; {what}")
        self.__cause__ = cause


class Cluster:
    """ResourceManager, Dispatcher, BlobServer and LeaderDirectory on one RpcService; made and used on its loop.

    Blobs are kept below `scratch`, or in the system's temporary directory. `secret` and `tls` are for the shuffle
    master that the settings name, which `start_shuffle_master` starts.

    Where the ResourceManager or the Dispatcher fails, another one follows it, and no task notices. Where it fails again
    and again, or another one of the four fails, the cluster fails: jobs end with the cause and none is taken any more.
    What still runs answers questions until the owner closes the cluster.

    `registry` has the reporters of the driver, if there are any; the cluster starts them. `host` is told with metrics.

    With `high_availability`, whose leadership was granted, jobs do not end with the cluster: where it fails, ends, or
    does not lead any more, the next leader goes on with them, which may be this cluster once it leads again.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        driver: ResourceManagerDriver,
        coordinator_factories: CoordinatorFactories,
        *,
        worker_name: WorkerNames,
        on_shut_down: Callable[[], None],
        run_blocking: BlockingRunner = run_in_thread,
        start_blocking: BlockingStarter = start_thread,
        scratch: Path | None = None,
        secret: bytes = b"",
        tls: TlsIdentity | None = None,
        host_services: HostServices = NO_HOST_SERVICES,
        registry: MetricRegistry | None = None,
        host: str = "",
        high_availability: HighAvailabilityServices | None = None,
    ) -> None:
        self._high_availability: Final = high_availability
        self._rpc_service: Final = rpc_service
        self._host_services: Final = host_services
        self._on_shut_down: Final = on_shut_down
        self._is_closing = False
        self.failure: BaseException | None = None
        """Error that ended the cluster before its owner did, or None."""
        rpc_service.on_fatal_error = self.failed
        settings, clock = rpc_service.settings, rpc_service.clock
        self._registry: Final = registry or MetricRegistry(settings, clock)
        self._shuffle_master: Final = self._create_shuffle_master(secret, tls)
        ha = high_availability
        self.blob_server: Final = BlobServer(
            rpc_service, run_blocking, scratch, None if ha is None else ha.job_graph_store
        )
        self._leader_election: Final = EmbeddedLeaderElection(rpc_service.random)
        self._run_blocking: Final = run_blocking
        self._start_blocking: Final = start_blocking
        self._worker_host: Final = WorkerHost(
            driver,
            worker_name,
            # The next leader would fail in the same way, and the one after it.
            ends_with_first_worker=high_availability is None,
        )
        self._replacements: Final = LeaderReplacements(REPLACEMENTS_MAX, settings, clock)
        self.leaders: Final = LeaderDirectory(rpc_service)
        self.resource_manager = self._create_resource_manager()
        """Current ResourceManager."""
        self.resource_manager_gateway: Final = self.resource_manager.self_gateway(
            ResourceManagerGateway
        )
        """Gateway to the ResourceManager that leads at the time of the call."""
        tell_end(self.resource_manager_gateway, "ResourceManager")
        self._archive: Final = JobArchive(ArchiveLimits.from_settings(settings), clock)
        self._coordinator_factories: Final = coordinator_factories
        election = None if ha is None else ha.election
        self._dispatchers: Final = DispatcherRunner(
            rpc_service, election, self._create_jobs, self._create_dispatcher, self.failed
        )
        self.dispatcher_gateway: Final = self._dispatchers.gateway
        """Gateway to the Dispatcher that leads at the time of the call. NotLeadingError while none leads."""
        self._metrics: Final = self._create_metrics(host)

    def _create_shuffle_master(self, secret: bytes, tls: TlsIdentity | None) -> ShuffleMaster:
        rpc = self._rpc_service
        return load_shuffle_service_factory(rpc.settings).create_shuffle_master(
            ShuffleMasterContext(
                rpc.settings, secret, rpc.clock, rpc.random, tls, self._shuffle_master_failed
            )
        )

    def _create_metrics(self, host: str) -> ClusterMetrics:
        return ClusterMetrics(
            self._registry,
            lambda: self.dispatcher.job_metrics(),
            self.resource_manager_gateway,
            host,
        )

    async def start_shuffle_master(self) -> None:
        """Start the shuffle master, before `start`; the built-in one needs no start."""
        await self._shuffle_master.start()

    def start(self) -> None:
        """Start all endpoints."""
        for endpoint in (self.leaders, self.blob_server, self.resource_manager):
            self._start(endpoint)
        self._dispatchers.start()
        self._registry.start()
        self._metrics.start()

    @property
    def log_folder(self) -> Path | None:
        """Return the folder to which the processes of this host write their logs, if they do."""
        return self._host_services.log_folder

    @property
    def dispatcher(self) -> Dispatcher:
        """Dispatcher that leads, or led last."""
        return self._dispatchers.dispatcher

    def _create_jobs(
        self, leadership: Leadership | None, on_leaving: Callable[[], None]
    ) -> RunningJobs:
        rpc_service, ha = self._rpc_service, self._high_availability
        settings, clock, random = rpc_service.settings, rpc_service.clock, rpc_service.random
        blob_server = self.blob_server.self_gateway(BlobServerGateway)
        stored_jobs = None
        if ha is not None:
            assert leadership is not None, "a cluster is only created in a leading process"
            # Copies to and from the storage have no time limit.
            blob_server = with_timeout(blob_server, NO_TIMEOUT_MS)
            stored_jobs = StoredJobs(
                ha, leadership, blob_server, settings, clock, random, self._run_blocking
            )
        return RunningJobs(
            rpc_service,
            JobManagerSharedServices(
                leader_retrieval_address=self.leaders.address,
                coordinator_factories=self._coordinator_factories,
                blob_server=blob_server,
                shuffle_master=self._shuffle_master,
                run_blocking=self._run_blocking,
                start_blocking=self._start_blocking,
                report_span=self._registry.report_span if self._registry.is_read else None,
                fence=always_leads if leadership is None else leadership.validate,
                on_attempt=self._host_services.on_attempt,
            ),
            leader_election=self._leader_election,
            archive=self._archive,
            on_leaving=on_leaving,
            on_job_ended=self._host_services.on_job_ended,
            batch_job_masters=self._host_services.batch_job_masters,
            stored_jobs=stored_jobs,
        )

    def _create_dispatcher(self, jobs: RunningJobs, is_followed: Callable[[], bool]) -> Dispatcher:
        return Dispatcher(
            self._rpc_service,
            self._leader_election.grant(DISPATCHER, DispatcherId),
            jobs,
            on_shut_down=self._on_shut_down,
            is_followed=is_followed,
        )

    def _start(self, endpoint: RpcEndpoint) -> None:
        endpoint.termination.add_done_callback(functools.partial(self._ended, endpoint))
        endpoint.start()

    @property
    def leading_epoch(self) -> int:
        """Number of the leadership that holds now; 0 if none does."""
        ha = self._high_availability
        return 0 if ha is None else ha.election.leading_epoch

    def announce(self, address: str) -> None:
        """Publish to standbys the address at which this cluster serves clients."""
        if self._high_availability is not None:
            self._high_availability.election.announce(address)

    def release_leadership(self) -> None:
        """Release the leadership to the next leader, after everything is closed. May block, so not on the loop.

        Idempotent.
        """
        if self._high_availability is not None:
            self._high_availability.close()

    async def leave_host(self, error: BaseException) -> None:
        """Fail all jobs with `error`, then stop all workers, because the host is about to go.

        Requests are still answered.
        """
        self._is_closing = True
        self._dispatchers.stop_following()
        await self._dispatchers.jobs.fail_jobs_and_wait(error)
        await self.resource_manager.shut_down()
        await self._worker_host.close()

    async def close(self) -> None:
        """Cancel all jobs, then stop all workers. An error of one part does not keep the others from ending."""
        self._is_closing = True
        self._dispatchers.stop_following()
        await self._metrics.close()
        for end in (
            self._dispatchers.close,
            self.resource_manager.shut_down,
            self._worker_host.close,
            self.blob_server.close,
            self.leaders.close,
            self._shuffle_master.close,
        ):
            try:
                await end()
            except Exception:
                _LOG.exception("%s failed while the cluster was closed", end.__qualname__)
        self._metrics.refresh_jobs()

    def failed(self, error: BaseException) -> None:
        """End every job with `error`, because an essential part of the cluster has failed. The first failure counts."""
        if self._is_closing or self.failure is not None:
            return
        is_followed = self._high_availability is not None
        self._fail(ClusterFailedError(error, is_followed=is_followed))

    def close_reporters(self) -> None:
        """Report metrics for the last time. May take seconds, so not on the loop."""
        self._registry.close()

    def _ended(self, endpoint: RpcEndpoint, termination: asyncio.Future[None]) -> None:
        """Handle the end of an endpoint that its owner did not close."""
        cause = termination.exception() or RuntimeError("it was closed")
        is_replaceable = endpoint is self.resource_manager and self._may_replace()
        if is_replaceable and not isinstance(cause, EndpointStartError):
            self._replace_resource_manager(cause)
        else:
            self.failed(EndpointFailedError(endpoint.address, cause))

    def _create_resource_manager(self) -> ResourceManager:
        resource_manager = ResourceManager(
            self._rpc_service,
            self._leader_election.grant(RESOURCE_MANAGER, ResourceManagerId),
            self._worker_host,
            resource_id=ResourceId("resourcemanager"),
            versions=software_versions(),
            on_host_failed=self._host_failed,
            is_followed=self._may_replace,
            run_blocking=self._run_blocking,
            log_folder=self.log_folder,
        )
        self.leaders.confirm(resource_manager.address, resource_manager.fencing_token)
        return resource_manager

    def _may_replace(self) -> bool:
        return not self._is_closing and self.failure is None and self._replacements.are_left

    def _replace_resource_manager(self, cause: BaseException) -> None:
        """Replace a failed ResourceManager, which has ended completely, so that none of its calls is running."""
        _LOG.error(
            "%s; another one replaces it, and all tasks go on: %s",
            EndpointFailedError(self.resource_manager.address, cause),
            self._replacements.count(),
        )
        self.resource_manager = self._create_resource_manager()
        redirect(
            self.resource_manager_gateway,
            self.resource_manager.address,
            self.resource_manager.fencing_token,
        )
        self._start(self.resource_manager)

    def _shuffle_master_failed(self, error: BaseException) -> None:
        """Fail the cluster because its shuffle master has failed: no job can run without it."""
        _LOG.critical("the shuffle master of the cluster has failed: %s", error)
        if not self._is_closing and self.failure is None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._dispatchers.stop_following()
        _LOG.critical("%s", error)
        self._dispatchers.jobs.fail(error)
        self._on_shut_down()

    def _host_failed(self, error: BaseException) -> None:
        _LOG.error("the host of the cluster has failed: %s", error)
        if self._high_availability is None:
            self._dispatchers.jobs.fail_jobs(error)
        elif not self._is_closing and self.failure is None:
            # A leader that cannot run jobs would keep others from leading.
            self._fail(error)

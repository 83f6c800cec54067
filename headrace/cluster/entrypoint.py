"""ClusterEntrypoint: starts the control plane of one cluster in this process, with its thread, services and endpoints.

Source: Flink ClusterEntrypoint.
"""

import asyncio
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from headrace.cluster.blob.blob_client import prepare, upload_blobs
from headrace.cluster.blob.blob_server import BlobServer
from headrace.cluster.cluster_metrics import ClusterMetrics
from headrace.cluster.dispatcher.dispatcher import Dispatcher
from headrace.cluster.dispatcher.dispatcher_runner import DispatcherRunner
from headrace.cluster.dispatcher.job_archive import ArchiveLimits, JobArchive
from headrace.cluster.dispatcher.job_leader import BatchJobMasters
from headrace.cluster.dispatcher.running_jobs import RunningJobs
from headrace.cluster.dispatcher.stored_jobs import StoredJobs
from headrace.cluster.high_availability.high_availability_services import (
    HighAvailabilityServices,
    open_high_availability,
)
from headrace.cluster.high_availability.leader_election_service import (
    Leadership,
    OnStandby,
)
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorFactories
from headrace.cluster.job_master.job_master import JobManagerSharedServices
from headrace.cluster.leadership import (
    DISPATCHER,
    RESOURCE_MANAGER,
    EmbeddedLeaderElection,
    LeaderDirectory,
    always_leads,
    tell_end,
)
from headrace.cluster.printed_output import OutputReceiver
from headrace.cluster.replacements import Replacements
from headrace.cluster.resource_manager.driver import ResourceManagerDriver, WorkerHost
from headrace.cluster.resource_manager.options import REPLACEMENTS_MAX
from headrace.cluster.resource_manager.resource_manager import ResourceManager
from headrace.cluster.resource_manager.workers import worker_names
from headrace.cluster.shuffle_master import ShuffleMasterContext
from headrace.cluster.task_executor.shuffle_service_loader import load_shuffle_service_factory
from headrace.cluster.versions import software_versions
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HostError
from headrace.core.ids import ClusterDataSetId, DispatcherId, ResourceId, ResourceManagerId
from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity, client_context, server_context
from headrace.core.threads import BlockingRunner, EventLoopThread, run_in_thread
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.ended_job import OnJobEnded
from headrace.gateways.messages import DataSetInfo
from headrace.gateways.resource_manager import ResourceManagerGateway
from headrace.graph.job_graph import JobGraph
from headrace.metrics.process_metrics import ProcessWatcher
from headrace.metrics.reporters.registry import MetricRegistry
from headrace.metrics.reporters.reporter_setup import create_metric_registry
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import EndpointFailedError, EndpointStartError
from headrace.rpc.options import JOB_MANAGER_RPC_PORT
from headrace.rpc.proxies import redirect, with_timeout
from headrace.rpc.service import RpcService
from headrace.rpc.tcp import TcpRpcService

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

NO_TIMEOUT_MS: Final = 21_474_835_000.0
"""Timeout of callers in this process, who wait for a job's result as long as it takes."""
_CLOSE_TIMEOUT_S: Final = 60.0
_ASK_TIMEOUT_S: Final = 30.0

DRIVER_NAME: Final = "jobmanager"
"""The driver's name in its metrics."""

WorkerNames = Callable[[int], str]
OnGranted = Callable[[HighAvailabilityServices], None]
"""Called once this process leads for the first time, in the thread that starts the cluster; it may block."""


class ClusterFailedError(HostError):
    """A part of the control plane failed: its state cannot be trusted, and no job can run on this cluster any more."""

    domain = ErrorDomain.INTERNAL

    def __init__(self, cause: BaseException, *, is_followed: bool = False) -> None:
        """`is_followed`: the cluster has high availability, and another process leads it next."""
        is_named = isinstance(cause, EndpointFailedError)
        text = str(cause) if is_named else f"{type(cause).__name__}: {cause}"
        what = (
            "its jobs go on under the next leader, and the log has the traceback; start this process again as a standby"
            if is_followed
            else "all its jobs fail, and the log has the traceback; start the program again, from its last checkpoint "
            "with -s"
        )
        super().__init__(f"the control plane of the cluster has failed: {text}; {what}")
        self.__cause__ = cause


class Cluster:
    """ResourceManager, Dispatcher, BlobServer and LeaderDirectory on one RpcService; made and used on its loop.

    Blobs are kept below `scratch`, or in the system's temporary directory. `secret` and `tls` are for the shuffle
    master that the settings name, which `start_shuffle_master` starts. `log_folder` is where the processes of this
    host write their logs, if they do.

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
        scratch: Path | None = None,
        secret: bytes = b"",
        tls: TlsIdentity | None = None,
        on_job_ended: OnJobEnded | None = None,
        log_folder: Path | None = None,
        registry: MetricRegistry | None = None,
        host: str = "",
        high_availability: HighAvailabilityServices | None = None,
        batch_job_masters: BatchJobMasters | None = None,
    ) -> None:
        self._high_availability: Final = high_availability
        self._rpc_service: Final = rpc_service
        self.log_folder: Final = log_folder
        self._on_shut_down: Final = on_shut_down
        self._is_closing = False
        self.failure: BaseException | None = None
        """The error that ended the cluster before its owner did, or None."""
        rpc_service.on_fatal_error = self.failed
        settings, clock, random = rpc_service.settings, rpc_service.clock, rpc_service.random
        self._registry: Final = registry or MetricRegistry(settings, clock)
        self._shuffle_master: Final = load_shuffle_service_factory(settings).create_shuffle_master(
            ShuffleMasterContext(settings, secret, clock, random, tls, self._shuffle_master_failed)
        )
        ha = high_availability
        self.blob_server: Final = BlobServer(
            rpc_service, run_blocking, scratch, None if ha is None else ha.job_graph_store
        )
        blob_server = self.blob_server.self_gateway(BlobServerGateway)
        if ha is not None:
            # Copies to and from the storage take as long as they take.
            blob_server = with_timeout(blob_server, NO_TIMEOUT_MS)
        self._leader_election: Final = EmbeddedLeaderElection(rpc_service.random)
        self._run_blocking: Final = run_blocking
        self._worker_host: Final = WorkerHost(driver, worker_name)
        self._replacements: Final = Replacements(REPLACEMENTS_MAX, settings, clock)
        self.leaders: Final = LeaderDirectory(rpc_service)
        self.resource_manager = self._create_resource_manager()
        """The one that leads."""
        self.resource_manager_gateway: Final = self.resource_manager.self_gateway(
            ResourceManagerGateway
        )
        """The way to whichever leads when it is called."""
        tell_end(self.resource_manager_gateway, "ResourceManager")
        self._archive: Final = JobArchive(ArchiveLimits.from_settings(settings), clock)
        self._coordinator_factories: Final = coordinator_factories
        self._blob_server_gateway: Final = blob_server
        self._on_job_ended: Final = on_job_ended
        self._batch_job_masters: Final = batch_job_masters
        self._dispatchers: Final = DispatcherRunner(
            rpc_service,
            None if ha is None else ha.election,
            self._create_jobs,
            self._create_dispatcher,
            self.failed,
        )
        self.dispatcher_gateway: Final = self._dispatchers.gateway
        """The way to whichever leads when it is called. NotLeadingError while none does."""
        self._metrics: Final = ClusterMetrics(
            self._registry,
            lambda: self.dispatcher.job_metrics(),
            self.resource_manager_gateway,
            host,
        )

    async def start_shuffle_master(self) -> None:
        """Start the half of the shuffle service that is here; before `start`. The built-in one needs no start."""
        await self._shuffle_master.start()

    def start(self) -> None:
        """Begin to serve."""
        for endpoint in (self.leaders, self.blob_server, self.resource_manager):
            self._start(endpoint)
        self._dispatchers.start()
        self._registry.start()
        self._metrics.start()

    @property
    def dispatcher(self) -> Dispatcher:
        """The one that leads, or led last."""
        return self._dispatchers.dispatcher

    def _create_jobs(
        self, leadership: Leadership | None, on_leaving: Callable[[], None]
    ) -> RunningJobs:
        rpc_service, ha = self._rpc_service, self._high_availability
        settings, clock, random = rpc_service.settings, rpc_service.clock, rpc_service.random
        stored_jobs = None
        if ha is not None:
            assert leadership is not None, "a cluster is made once its process leads"
            stored_jobs = StoredJobs(
                ha,
                leadership,
                self._blob_server_gateway,
                settings,
                clock,
                random,
                self._run_blocking,
            )
        return RunningJobs(
            rpc_service,
            JobManagerSharedServices(
                leader_retrieval_address=self.leaders.address,
                coordinator_factories=self._coordinator_factories,
                blob_server=self._blob_server_gateway,
                shuffle_master=self._shuffle_master,
                run_blocking=self._run_blocking,
                report_span=self._registry.report_span if self._registry.is_read else None,
                fence=always_leads if leadership is None else leadership.validate,
            ),
            leader_election=self._leader_election,
            archive=self._archive,
            on_leaving=on_leaving,
            on_job_ended=self._on_job_ended,
            batch_job_masters=self._batch_job_masters,
            stored_jobs=stored_jobs,
        )

    def _create_dispatcher(self, jobs: RunningJobs, is_followed: Callable[[], bool]) -> Dispatcher:
        return Dispatcher(
            self._rpc_service,
            self._leader_election.grant(DISPATCHER, DispatcherId),
            jobs,
            self._blob_server_gateway,
            on_shut_down=self._on_shut_down,
            is_followed=is_followed,
        )

    def _start(self, endpoint: RpcEndpoint) -> None:
        endpoint.termination.add_done_callback(functools.partial(self._ended, endpoint))
        endpoint.start()

    @property
    def leading_epoch(self) -> int:
        """Return the number of the leadership that holds at this moment; 0 where none does."""
        ha = self._high_availability
        return 0 if ha is None else ha.election.leading_epoch

    def announce(self, address: str) -> None:
        """Let standbys know where this cluster serves its clients."""
        if self._high_availability is not None:
            self._high_availability.election.announce(address)

    def release_leadership(self) -> None:
        """Let the next leader follow, once everything is closed. May block: not on the loop. Idempotent."""
        if self._high_availability is not None:
            self._high_availability.close()

    async def leave_host(self, error: BaseException) -> None:
        """The host is about to go: fail all jobs with `error`, then stop all workers; questions are answered still."""
        self._is_closing = True
        self._dispatchers.stop_following()
        await self._dispatchers.jobs.fail_jobs_and_wait(error)
        await self.resource_manager.shut_down()
        await self._worker_host.close()

    async def close(self) -> None:
        """Cancel all jobs, then stop all workers. What does not end in order keeps nothing else from its end."""
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
        """Something that the cluster cannot do without has failed: end every job with it. The first failure counts."""
        if self._is_closing or self.failure is not None:
            return
        is_followed = self._high_availability is not None
        self._fail(ClusterFailedError(error, is_followed=is_followed))

    def close_reporters(self) -> None:
        """Report metrics for the last time. May take seconds: not on the loop."""
        self._registry.close()

    def _ended(self, endpoint: RpcEndpoint, termination: asyncio.Future[None]) -> None:
        """An endpoint is gone, which only its owner should cause."""
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
        """Let another one follow. The one before has ended whole: none of its calls is under way any more."""
        _LOG.error(
            "%s; another one follows it, and all tasks go on: %s",
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
        """The shuffle master cannot go on: no job can run without it, and the holder of the cluster is to end it."""
        _LOG.critical("the shuffle service of the cluster is gone: %s", error)
        if not self._is_closing and self.failure is None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._dispatchers.stop_following()
        _LOG.critical("%s", error)
        self._dispatchers.jobs.fail(error)
        self._on_shut_down()

    def _host_failed(self, error: BaseException) -> None:
        _LOG.error("the host of the cluster is gone: %s", error)
        if self._high_availability is None:
            self._dispatchers.jobs.fail_jobs(error)
        elif not self._is_closing and self.failure is None:
            # A leader that cannot run anything would keep others from it.
            self._fail(error)


class ClusterHandle:
    """A running cluster, for other threads of its process.

    `dispatcher` and `resource_manager`, whichever leads, are called on `loop`. `leader_retrieval_address` is where
    TaskManagers ask who leads. `output_address` is where TaskManagers send what
    is printed there, empty where nobody shows it. `is_shutting_down` is set when a client has asked for the end of
    the cluster: whoever holds the handle closes it. `log_folder` is the folder with the log files of the driver and of
    TaskManagers of its host, or None where nobody writes any.
    """

    def __init__(
        self,
        control: EventLoopThread,
        rpc_service: RpcService,
        cluster: Cluster,
        output: OutputReceiver | None = None,
    ) -> None:
        self._control: Final = control
        self._output: Final = output
        self.output_address: Final = "" if output is None else output.address
        self.log_folder: Final = cluster.log_folder
        self._rpc_service: Final = rpc_service
        self._cluster: Final = cluster
        self._is_closed = False
        # Guards `_is_closed`: two threads may close, one of them in an exit hook.
        self._lock: Final = threading.Lock()
        self._watcher: Final = ProcessWatcher(
            rpc_service.clock, control.loop.call_soon_threadsafe
        ).start()
        self.is_shutting_down: Final = threading.Event()
        control.on_fatal_error = rpc_service.fatal_error
        self.loop: Final[asyncio.AbstractEventLoop] = control.loop
        self.leader_retrieval_address: Final = cluster.leaders.address
        self.dispatcher: Final[DispatcherGateway] = with_timeout(
            cluster.dispatcher_gateway, NO_TIMEOUT_MS
        )
        self.blob_server: Final[BlobServerGateway] = cluster.blob_server.self_gateway(
            BlobServerGateway
        )
        self.resource_manager: Final[ResourceManagerGateway] = with_timeout(
            cluster.resource_manager_gateway, NO_TIMEOUT_MS
        )

    async def start(self) -> None:
        """Begin to serve; on the control thread, once."""
        await self._cluster.start_shuffle_master()
        if self._output is not None:
            self._output.start()
        self._cluster.start()

    @property
    def failure(self) -> BaseException | None:
        """Return the error that ended the cluster before its owner did, or None."""
        return self._cluster.failure

    @property
    def leading_epoch(self) -> int:
        """Return the number of the leadership that this process has at this moment; 0 where it has none."""
        return self._cluster.leading_epoch

    def announce(self, address: str) -> None:
        """Let standbys of the cluster know where this one serves its clients."""
        self._cluster.announce(address)

    def submit(self, graph: JobGraph, timeout_s: float | None = None) -> None:
        """Bring a job's big payloads to the blob server, then submit it; BlobError, or what the Dispatcher raises.

        `timeout_s` bounds the Dispatcher's part: the payloads are bounded by their own retries.
        """
        settings = self._rpc_service.settings
        job = prepare(graph, settings.with_values(graph.settings))
        self.call(upload_blobs(job, self.blob_server, settings))
        self.call(self.dispatcher.submit_job(job.graph), timeout_s)

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return what jobs left to the cluster; RpcError, TimeoutError."""
        return self.call(self.resource_manager.list_data_sets(), _ASK_TIMEOUT_S)

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        """Have the cluster drop what a job left, or is going to leave; RpcError, TimeoutError."""
        self.call(self.resource_manager.release_cluster_partitions(data_set), _ASK_TIMEOUT_S)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a call of one of the gateways on the control thread and wait for its answer."""
        return self._control.run(coroutine, timeout_s)

    def leave_host(self, error: BaseException) -> None:
        """Fail all jobs with `error` and stop all workers, while the host still is there; jobs can be asked after.

        From any thread but the control thread, before `close`; no effect after it.
        """
        with self._lock:
            if self._is_closed:
                return
        try:
            self._control.run(self._cluster.leave_host(error), _CLOSE_TIMEOUT_S)
        except TimeoutError:
            _LOG.error("the workers of the cluster did not end within %g s", _CLOSE_TIMEOUT_S)

    def close(self) -> None:
        """Cancel all jobs, stop all workers, end the thread; idempotent, from any thread but the control thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._control.run(self._close(), _CLOSE_TIMEOUT_S)
        except TimeoutError:
            _LOG.error("the cluster did not end within %g s", _CLOSE_TIMEOUT_S)
        finally:
            self._watcher.stop()
            self._control.stop()
            # Not before: the next leader begins when nothing of this one is left.
            self._cluster.release_leadership()
            self._cluster.close_reporters()

    async def _close(self) -> None:
        await self._cluster.close()
        if self._output is not None:
            # The last of all: TaskManagers send what was printed as they end.
            await self._output.close()
        await self._rpc_service.stop()


class ClusterEntrypoint:
    """Starts a cluster whose workers come from `driver`; its processes share `secret` and, if any, `tls`.

    Big payloads are kept below `scratch`, or in the system's temporary directory. `show_output` writes lines that are
    printed in TaskManagers, on a thread of its own. `log_folder` is where the processes of this host write their logs.
    `on_job_ended` is told of each job that has ended, on the control thread.
    """

    def __init__(
        self,
        settings: Settings,
        driver: ResourceManagerDriver,
        coordinator_factories: CoordinatorFactories,
        secret: bytes,
        bind_host: str,
        advertised_host: str,
        clock: Clock,
        random: SeededRandom,
        *,
        worker_name: WorkerNames | None = None,
        tls: TlsIdentity | None = None,
        scratch: Path | None = None,
        show_output: Callable[[bytes], None] | None = None,
        log_folder: Path | None = None,
        on_job_ended: OnJobEnded | None = None,
        batch_job_masters: BatchJobMasters | None = None,
    ) -> None:
        self._batch_job_masters: Final = batch_job_masters
        self._on_job_ended: Final = on_job_ended
        self._log_folder: Final = log_folder
        self._show_output: Final = show_output
        self._settings: Final = settings
        self._driver: Final = driver
        self._coordinator_factories: Final = coordinator_factories
        self._secret: Final = secret
        self._tls: Final = tls
        self._scratch: Final = scratch
        self._bind_host: Final = bind_host
        self._advertised_host: Final = advertised_host
        self._clock: Final = clock
        self._random: Final = random
        # The random part keeps a worker of an earlier cluster from being taken for one of this.
        prefix = f"headrace-{os.getpid()}-{random.getrandbits(32):08x}"
        self._worker_name: Final = worker_name or worker_names(prefix)

    def start(
        self,
        on_standby: OnStandby | None = None,
        on_granted: OnGranted | None = None,
        check_host: Callable[[], object] = lambda: None,
    ) -> ClusterHandle:
        """Start the control thread and the endpoints; PortInUseError where the port is taken.

        With high availability this waits, as a standby, until no other process leads the cluster: nothing is bound and
        nobody is served before. `check_host` is called meanwhile, and raises where no worker could run any more;
        `on_granted` is called then, before any job goes on. Errors of
        HighAvailabilityServices and LeaderElectionService.
        """
        high_availability = open_high_availability(self._settings, self._clock, self._random)
        with contextlib.ExitStack() as on_failure:
            if high_availability is not None:
                on_failure.callback(high_availability.close)
                high_availability.election.on_standby = on_standby
                high_availability.election.await_leadership(check_host)
                if on_granted is not None:
                    on_granted(high_availability)
            control = EventLoopThread("headrace-control")
            on_failure.callback(control.stop)
            handle = control.run(self._start(control, high_availability))
            on_failure.pop_all()
            return handle

    async def _start(
        self, control: EventLoopThread, high_availability: HighAvailabilityServices | None
    ) -> ClusterHandle:
        rpc_service = TcpRpcService(
            self._settings,
            bind_host=self._bind_host,
            advertised_host=self._advertised_host,
            port_option=JOB_MANAGER_RPC_PORT,
            secret=self._secret,
            clock=self._clock,
            random=self._random,
            server_ssl=None if self._tls is None else server_context(self._tls),
            client_ssl=None if self._tls is None else client_context(self._tls),
        )
        registry = create_metric_registry(self._settings, self._clock, DRIVER_NAME)
        await rpc_service.start()
        cluster = Cluster(
            rpc_service,
            self._driver,
            self._coordinator_factories,
            worker_name=self._worker_name,
            on_shut_down=lambda: handle.is_shutting_down.set(),
            scratch=self._scratch,
            secret=self._secret,
            tls=self._tls,
            on_job_ended=self._on_job_ended,
            batch_job_masters=self._batch_job_masters,
            log_folder=self._log_folder,
            registry=registry,
            host=self._advertised_host,
            high_availability=high_availability,
        )
        show = self._show_output
        output = None if show is None else OutputReceiver(rpc_service, run_in_thread, show)
        handle = ClusterHandle(control, rpc_service, cluster, output)
        await handle.start()
        return handle

"""SparkHost: the control plane in the driver's process, and TaskManagers in the workers of its Spark application."""

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyspark import InheritableThread

from headrace.api.executors import default_settings
from headrace.api.settings.job_artifacts import python_files
from headrace.cluster.blob.blob_client import content_of
from headrace.cluster.blob.options import storage_parent
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.entrypoint import ClusterEntrypoint, OnGranted
from headrace.cluster.high_availability.coordination import storage_folder
from headrace.cluster.high_availability.leader_election_service import OnStandby
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.cluster.high_availability.options import is_highly_available
from headrace.cluster.host_services import HostServices
from headrace.cluster.resource_manager.workers import worker_profile
from headrace.cluster.task_executor.external_resources import (
    EXTERNAL_RESOURCES,
    external_resource_amounts,
)
from headrace.cluster.task_executor.options import (
    CPU_CORES,
    NUMBER_OF_TASK_SLOTS,
    TaskManagerConfiguration,
)
from headrace.connectors.dataframe.messages import (
    LOG_COORDINATOR,
    SINK_COORDINATOR,
    SOURCE_COORDINATOR,
)
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.host_port import join_host_port
from headrace.core.ids import ResourceId
from headrace.core.process.log_files import JOB_MANAGER, LOG_DIR, named_log_folder, private_folder
from headrace.core.process.logger_tap import HEADRACE_TAP
from headrace.core.process.memory_parts import PROCESS_MEMORY
from headrace.core.process.process_log import ProcessLog
from headrace.core.process.scratch_folder import make_scratch_folder, remove_scratch_folder
from headrace.core.randomness import system_random
from headrace.core.resource_profile import JOB_ENVIRONMENT
from headrace.core.security.cluster_secret import (
    cluster_identity,
    cluster_secret,
    given_identity,
)
from headrace.core.security.tls import TlsIdentity, is_loopback, needs_tls
from headrace.gateways.ended_job import EndedJob
from headrace.graph.job_graph import JobGraph
from headrace.rest.cluster_view import ControlPlane, SparkPage
from headrace.rest.rest_server import RestServer, refuse_impossible_settings
from headrace.rest.web_monitor import WebMonitor
from headrace.rpc.proxies import gateway_address
from headrace.spark.dataframes.dataframes import source_coordinator_factory
from headrace.spark.dataframes.sink_coordinator import sink_coordinator_factory
from headrace.spark.job_descriptions import attempt_text, worker_description
from headrace.spark.master import MasterKind, parse_master
from headrace.spark.options import EXECUTOR_TIMEOUT, MASTER, STOP_GRACE
from headrace.spark.session.authentication import PAGE_KEY, TaskSecrets
from headrace.spark.session.jvm import (
    delete_at_jvm_exit,
    is_stopped,
    registered_executor_count,
    silence_py4j,
)
from headrace.spark.session.program_sessions import asked_of_session, refuse_unobeyed
from headrace.spark.session.python_files import ShippedFiles, ship
from headrace.spark.session.session import HostSession, before_stop, host_session
from headrace.spark.session.session_configuration import (
    LOOPBACK,
    driver_addresses,
    settings_in_pod,
)
from headrace.spark.shown_queries import ShownQueries, SparkQueryLog
from headrace.spark.workers.job_environment import JobEnvironment
from headrace.spark.workers.resource_driver import SparkResourceDriver
from headrace.spark.workers.worker import WorkerSpec, run_worker
from headrace.spark.workers.worker_jobs import SparkWorkerJobs, WorkerBody
from headrace.spark.workers.worker_output import OutputPipe, StandardOutput
from headrace.spark.workers.worker_process import program_log_levels
from headrace.spark.workers.worker_settings import (
    refuse_missing_image,
    refuse_unknown_resources,
    worker_settings,
)
from headrace.spark.workers.worker_sizes import WorkerSizes

if TYPE_CHECKING:
    from headrace.spark.batch.batch_jobs import BatchJobs

_LOG: Final = logging.getLogger(__name__)
_POLL_S: Final = 0.1
_METRICS_TIMEOUT_S: Final = 1.0


class NoExecutorError(HostError):
    """Spark's cluster gave this application no executor."""

    def __init__(self, master: str, timeout_s: float) -> None:
        super().__init__(
            f"no Spark executor registered within {timeout_s:g} s at master {master} "
            "(headrace.spark.executor-timeout): check that the cluster is up, and has free cores and memory"
        )


class SessionStoppedError(HostError):
    """The program stopped the SparkSession that its jobs run on."""

    def __init__(self) -> None:
        super().__init__(
            "the SparkSession that jobs run on was stopped: await a job's end before spark.stop()"
        )


class SparkHost:
    """One Headrace cluster inside one Spark application; it ends with the application, or with `close`.

    A session cluster has no program: it accepts jobs of any client. `name` is the cluster's name for clients; by
    default the program's. `log_folder` is a folder that the caller keeps.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        name: str = "",
        is_session: bool = False,
        log_folder: Path | None = None,
    ) -> None:
        slots = settings.get_option(NUMBER_OF_TASK_SLOTS)
        if slots < 1:
            raise ConfigurationError(
                NUMBER_OF_TASK_SLOTS.key, slots, "a TaskManager needs at least one slot"
            )
        cores = settings.get_option(CPU_CORES)
        if not 0 <= cores < inf:
            raise ConfigurationError(CPU_CORES.key, cores, "a TaskManager takes 0 cores or more")
        self._settings = settings
        self._name = name
        self._is_session = is_session
        self._clock = SystemClock()
        # Before Spark is started, which takes long.
        refuse_impossible_settings(settings)
        log_folder = log_folder or named_log_folder(settings, self._clock.now_ms())
        self.session: HostSession = host_session(settings)
        conf = dict(self.session.context.getConf().getAll())
        self.master = conf["spark.master"]
        refuse_missing_image(conf)
        self._kind: MasterKind = parse_master(self.master, os.cpu_count() or 1)
        self._worker_settings = worker_settings(settings, conf, self._kind)
        self.sizes: Final = WorkerSizes(self._worker_settings, conf, self._kind)
        if not self._kind.is_single_process:
            refuse_unknown_resources(settings, conf)
        self._addresses = driver_addresses(conf, is_local=self._kind.is_local)
        self._secret = cluster_secret(settings)
        self._tls: TlsIdentity | None = None
        self._scratch = make_scratch_folder("headrace-host-", self.session.scratch)
        # Whichever of the two processes ends in order removes it, should the other be killed.
        delete_at_jvm_exit(self.session.context, self._scratch)
        self._shipped = ShippedFiles(are_seen=self._kind.is_local)
        self._log_folder = log_folder or private_folder(self._scratch / "logs")
        self._log = ProcessLog(self._log_folder, JOB_MANAGER, settings)
        self._output: OutputPipe | None = None
        self._standard_output = StandardOutput(self._log.write_printed)
        self._handle: ClusterHandle | None = None
        self._batch_jobs: BatchJobs | None = None
        self._web_monitor: WebMonitor | None = None
        self._driver: SparkResourceDriver | None = None
        self._queries: ShownQueries | None = None
        self._stay: Callable[[], None] | None = None
        self._has_left = False
        self._last_begun = ""
        self._environments: dict[str, JobEnvironment] = {}

    @property
    def handle(self) -> ClusterHandle:
        """Return the handle of the running cluster."""
        assert self._handle is not None, "the host has not been started"
        return self._handle

    @property
    def batch_jobs(self) -> "BatchJobs":
        """Return the part that runs jobs in BATCH mode."""
        if self._batch_jobs is None:
            # Imported late: it brings the data plane, which a driver of TaskManagers never needs.
            from headrace.spark.batch.batch_host import BatchHost
            from headrace.spark.batch.batch_jobs import BatchJobs
            from headrace.spark.batch.stage_memory import memory_settings
            from headrace.spark.batch.stage_resources import StageResources

            # Workers on other hosts have no pipe to write to.
            output = self._output
            pipes = ("", "") if output is None else (str(output.path), str(self._scratch))
            handle, settings = self.handle, self._settings
            blobs = handle.blob_server
            self._batch_jobs = BatchJobs(
                BatchHost(
                    self.session.spark,
                    *pipes,
                    blobs,
                    lambda job, key: handle.call(content_of(blobs, job, key, settings)),
                    StageResources(self.sizes, external_resource_amounts(settings)),
                    storage_parent(settings, None),
                    memory_settings(self._worker_settings),
                    dashboard=lambda: self._dashboard,
                    secrets=TaskSecrets(self._secret, self._tls) if output is None else None,
                )
            )
        return self._batch_jobs

    @property
    def rest(self) -> RestServer | None:
        """Return the REST endpoint of the running cluster, or None if it has none."""
        return None if self._web_monitor is None else self._web_monitor.server

    @property
    def has_lost_session(self) -> bool:
        """Return whether the SparkSession was stopped, so that jobs need another host."""
        return is_stopped(self.session.context)

    @property
    def failure(self) -> BaseException | None:
        """Return the error that keeps any further job from running here, or None."""
        if self._has_left:
            return SessionStoppedError()
        if self._handle is not None and self._handle.failure is not None:
            return self._handle.failure
        return None if self._driver is None else self._driver.failure

    @property
    def is_fixed(self) -> bool:
        """Return whether the number of slots is fixed, because everything runs on this machine."""
        return self._kind.is_local

    @property
    def slots_per_worker(self) -> int:
        """Return the number of slots of one TaskManager."""
        return self._settings.get_option(NUMBER_OF_TASK_SLOTS)

    @property
    def slot_count(self) -> int | None:
        """Return the number of slots that the application has room for now, or None if executors start on demand."""
        assert self._driver is not None
        workers = self._driver.max_worker_count
        return None if workers is None else workers * self.slots_per_worker

    def start(
        self, on_standby: OnStandby | None = None, on_granted: OnGranted | None = None
    ) -> None:
        """Start the control plane; TaskManagers start when a job needs them.

        With high availability this waits, as a standby with a session, until no other driver leads the cluster.
        `on_granted` is called then, before any job continues. SparkHostLostError if the session ends meanwhile.
        """
        silence_py4j()
        HEADRACE_TAP.add(self._log.handler, self._log.level)
        _LOG.info("log files of the cluster are in %s", self._log_folder)
        if needs_tls(self._settings, self._addresses.advertised):
            self._tls = cluster_identity(self._settings, self._clock.now_ms())
        self._wait_for_executors()
        self.provide(python_files(self._settings))
        if self._kind.is_local:
            self._output = OutputPipe(self._scratch / "output", self._log.write_printed)
        jobs = self._worker_jobs()
        stop_grace_ms = self._settings.duration_ms(STOP_GRACE)
        self._driver = SparkResourceDriver(jobs, self._clock, stop_grace_ms=stop_grace_ms)
        # Whoever looks at the settings of the cluster sees the master that it really has.
        settings = settings_in_pod(
            self._settings.with_values({MASTER.key: self.master}),
            dict(self.session.context.getConf().getAll()),
            self.session.given,
            self._addresses,
        )
        self._web_monitor = web_monitor = WebMonitor(settings, self._clock, system_random())
        entrypoint = self._entrypoint(settings, self._driver, web_monitor)
        cluster_id = storage_folder(settings) if is_highly_available(settings) else ""
        executor_count = 0 if self.sizes.grows_on_demand else self._kind.executor_count or 1
        warm_up = InheritableThread(
            target=jobs.warm_up, args=(executor_count,), name="headrace-warm-up", daemon=True
        )

        def stands_by(leader: LeaderRecord | None) -> None:
            # Now that there is time for it: the next leader's first worker is waited for. Executors that come on demand
            # would come for this alone.
            if leader is not None and self._handle is None and executor_count and not warm_up.ident:
                warm_up.start()
            if (handle := self._handle) is not None:
                web_monitor.show_leadership(cluster_id, lambda: handle.leading_epoch)
            if on_standby is not None:
                on_standby(leader)

        self._handle = handle = entrypoint.start(stands_by, on_granted, self._driver.check)
        self._serve_clients(handle, web_monitor)
        if self.rest is not None:
            # It may have been frozen since it was granted the leadership: then it stands by.
            web_monitor.show_leadership(cluster_id, lambda: handle.leading_epoch)
            handle.announce(self.rest.address)
        self._queries = queries = self._shown_queries(handle)
        queries.start()
        # By the program, or at the interpreter's exit by the session itself: it was made last, and is stopped first.
        self._stay = before_stop(self.session.context, self._leave_session)
        if self._kind.is_single_process:
            self._tell_ignored()

    def _shown_queries(self, handle: ClusterHandle) -> ShownQueries:
        resources = handle.resource_manager

        def registered() -> tuple[ResourceId, ...]:
            overview = handle.call(resources.request_resource_overview(), _METRICS_TIMEOUT_S)
            return tuple(info.resource_id for info in overview.task_managers)

        def metrics_of(worker_id: ResourceId) -> Mapping[str, float]:
            asked = resources.request_task_manager_metrics(worker_id)
            return handle.call(asked, _METRICS_TIMEOUT_S)

        log = SparkQueryLog(self.session.spark)
        return ShownQueries(log, registered, metrics_of, self._description_of, self._clock)

    def _worker_jobs(self) -> SparkWorkerJobs:
        return SparkWorkerJobs(
            self.session.context,
            self._body_of,
            sizes=self.sizes,
            secrets=TaskSecrets(self._secret, self._tls, self._worker_settings.to_dict()),
            counted=worker_profile(self._settings),
            description_of=self._description_of,
            environments=self._environments,
        )

    def _entrypoint(
        self, settings: Settings, driver: SparkResourceDriver, web_monitor: WebMonitor
    ) -> ClusterEntrypoint:
        sinks = sink_coordinator_factory(lambda: self.session.spark)
        return ClusterEntrypoint(
            self._cluster_settings(settings),
            driver,
            {
                SOURCE_COORDINATOR: source_coordinator_factory(
                    TaskSecrets(self._secret, self._tls)
                ),
                SINK_COORDINATOR: sinks,
                LOG_COORDINATOR: sinks,
            },
            self._secret,
            self._addresses.bound,
            self._addresses.advertised,
            self._clock,
            system_random(),
            tls=self._tls,
            scratch=self._scratch,
            show_output=None if self._kind.is_local else self._standard_output.show,
            host_services=HostServices(
                log_folder=self._log_folder,
                on_job_ended=lambda job: self._job_ended(job, web_monitor),
                on_attempt=self._attempt_begins,
                batch_job_masters=lambda *given: self.batch_jobs.job_master(*given),
            ),
        )

    def _serve_clients(self, handle: ClusterHandle, web_monitor: WebMonitor) -> None:
        web_monitor.start(
            ControlPlane(
                handle.dispatcher,
                handle.resource_manager,
                handle.loop,
                blob_server=handle.blob_server,
                log_folder=handle.log_folder,
                spark_page=self._spark_page(),
                fail=handle.fail,
            ),
            name=self._name or Path(sys.argv[0]).stem or self.session.context.appName or "",
            identity=self._tls or given_identity(self._settings),
            is_session=self._is_session,
        )

    def _tell_ignored(self) -> None:
        """Warn about settings that need resource profiles, if Spark has none."""
        if self._settings.get_option(CPU_CORES) > 1:
            _LOG.warning(
                "%s is ignored on %s: Spark has no resource profiles there",
                CPU_CORES.key,
                self.master,
            )
        if external_resource_amounts(self._settings):
            _LOG.warning(
                "%s is ignored on %s, where functions find no addresses: Spark has no resource profiles there",
                EXTERNAL_RESOURCES.key,
                self.master,
            )

    def _spark_page(self) -> SparkPage | None:
        """Return the address of Spark's web page if REST can show it: ours, or one on loopback with a known filter key.

        `uiWebUrl` names the driver's host, where another process may listen at the same port: only its port is used.
        """
        page, context = self.session.page, self.session.context
        if page is not None:
            return SparkPage(page.address, page.key)
        address, key = context.uiWebUrl, context.getConf().get(PAGE_KEY)
        port = urlsplit(address or "").port
        bound = os.environ.get("SPARK_LOCAL_IP", "")
        if not key or not port or not is_loopback(bound) or not str(address).startswith("http://"):
            return None
        found = f"http://{join_host_port(bound, port)}"
        return SparkPage(lambda: found, key)

    def _cluster_settings(self, settings: Settings) -> Settings:
        """Return the settings of the control plane, with the memory that Spark grants to a TaskManager."""
        memory = self._worker_settings.get(PROCESS_MEMORY.key)
        return settings if memory is None else settings.with_values({PROCESS_MEMORY.key: memory})

    def refuse_unobeyed(self, settings: Mapping[str, str]) -> None:
        """Raise UnobeyedSettingError if a job needs a Spark setting that its session was not created with."""
        conf = self.session.spark.conf
        asked = asked_of_session(settings)
        found = {key: conf.get(key, None) for key in asked}
        known = {key: value for key, value in found.items() if value is not None}
        # What the command line says was handed to the session that the program made, if it made it.
        handed = asked_of_session(default_settings())
        refuse_unobeyed(asked, {**self.session.given, **handed}, known)

    def provide(self, files: tuple[Path, ...]) -> None:
        """Ship the files that a job's functions import; LateFilesError if running TaskManagers lack them."""
        ship(self.session.context, self._shipped.add(files), self._scratch)

    def _attempt_begins(self, graph: JobGraph, number: int) -> None:
        """Name the job in Spark's descriptions of TaskManagers that start from now on, as they probably start for it.

        TaskManagers of a job with its own Python environment get that environment from here.
        """
        self._last_begun = attempt_text(graph, number)
        if graph.python_executable.startswith(JOB_ENVIRONMENT):
            self._environments[graph.python_executable] = JobEnvironment.of(graph)

    def _job_ended(self, job: EndedJob, web_monitor: WebMonitor) -> None:
        for name, environment in tuple(self._environments.items()):
            if environment.job_id == job.result.job_id:
                del self._environments[name]
        web_monitor.job_ended(job)
        if self._queries is not None:
            self._queries.job_ended(job)

    def close(self) -> None:
        """End jobs, TaskManagers and control plane, then the session if it is ours. Idempotent."""
        try:
            self._close_cluster()
        finally:
            if self._stay is not None:
                self._stay()
            self.session.stop()

    def _leave_session(self) -> None:
        """End jobs and TaskManagers while the session runs, as Spark would kill them with many messages."""
        self._has_left = True
        self._end_queries()
        if self._handle is not None:
            self._handle.leave_host(SessionStoppedError())
        if self._output is not None:
            self._output.close()

    def _end_queries(self) -> None:
        if self._queries is not None:
            self._queries.close()

    def _close_cluster(self) -> None:
        self._end_queries()
        handle, self._handle = self._handle, None
        web_monitor, self._web_monitor = self._web_monitor, None
        self._standard_output.close()
        try:
            if web_monitor is not None:
                web_monitor.leave()
            if handle is not None:
                handle.close()
        finally:
            try:
                if web_monitor is not None:
                    web_monitor.close()
                if self._output is not None:
                    self._output.close()
            finally:
                HEADRACE_TAP.remove(self._log.handler)
                self._log.close()
                remove_scratch_folder(self._scratch)

    def _wait_for_executors(self) -> None:
        """Wait until the application has an executor; the number of slots is read again whenever it matters."""
        if self._kind.is_single_process or self.sizes.grows_on_demand:
            return
        wanted = self._kind.executor_count or 1
        timeout_s = self._settings.get_option(EXECUTOR_TIMEOUT).total_seconds()
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        while registered_executor_count(self.session.context) < wanted:
            if self._clock.monotonic_ns() > deadline_ns:
                raise NoExecutorError(self.master, timeout_s)
            threading.Event().wait(_POLL_S)

    def _description_of(self, worker_id: ResourceId) -> str:
        return worker_description(
            worker_id,
            self._name,
            self._last_begun,
            self._dashboard,
        )

    @property
    def _dashboard(self) -> str:
        return "" if self.rest is None else self.rest.address

    def _body_of(self, worker_id: ResourceId, environment: JobEnvironment | None) -> WorkerBody:
        self._shipped.workers_start()
        handle = self.handle
        configuration = TaskManagerConfiguration(
            resource_id=worker_id,
            leader_retrieval_address=handle.leader_retrieval_address,
            secret=b"",
            settings={},
            bind_host=LOOPBACK if self._kind.is_local else "",
            advertised_host=LOOPBACK if self._kind.is_local else "",
        )
        spec = WorkerSpec(
            configuration,
            self._addresses.advertised,
            HEADRACE_TAP.shown_level("headrace"),
            str(self._output.path) if self._output is not None else "",
            handle.output_address,
            program_log_levels(),
            self._worker_log_folder(),
            gateway_address(handle.blob_server),
        )
        return functools.partial(run_worker, spec, environment)

    def _worker_log_folder(self) -> str:
        """Return the driver's log folder if workers see it, else a folder of that name on their hosts, or empty."""
        is_named = bool(self._settings.get_option(LOG_DIR))
        return str(self._log_folder) if self._kind.is_local or is_named else ""

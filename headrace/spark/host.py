"""SparkHost: the control plane in the driver's process, and TaskManagers in the workers of its Spark application."""

import functools
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Final

from headrace.api.executors import default_settings
from headrace.api.settings.python_files import python_files
from headrace.cluster.entrypoint import ClusterEntrypoint, ClusterHandle
from headrace.cluster.resource_manager.workers import worker_profile
from headrace.cluster.task_executor.options import CPU_CORES, NUMBER_OF_TASK_SLOTS
from headrace.cluster.task_executor.task_manager_runner import TaskManagerConfiguration
from headrace.connectors.dataframe.messages import SINK_COORDINATOR, SOURCE_COORDINATOR
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.ids import ResourceId
from headrace.core.process.log_files import JOB_MANAGER, named_log_folder, private_folder
from headrace.core.process.log_options import LOG_DIR
from headrace.core.process.logger_tap import HEADRACE_TAP
from headrace.core.process.process_log import ProcessLog
from headrace.core.process.process_memory import PROCESS_MEMORY
from headrace.core.randomness import system_random
from headrace.core.security.cluster_secret import (
    cluster_identity,
    cluster_secret,
    given_identity,
)
from headrace.core.security.tls import TlsIdentity, needs_tls
from headrace.rest.history.job_history import JobHistory
from headrace.rest.server import ControlPlane, RestServer, start_rest_server
from headrace.spark.dataframes.dataframes import source_coordinator_factory
from headrace.spark.dataframes.sink_coordinator import sink_coordinator_factory
from headrace.spark.options import EXECUTOR_TIMEOUT, MASTER, STOP_GRACE
from headrace.spark.session.authentication import TaskSecrets
from headrace.spark.session.jvm import (
    delete_at_jvm_exit,
    is_stopped,
    registered_executor_count,
    silence_py4j,
)
from headrace.spark.session.master import MasterKind, parse_master
from headrace.spark.session.program_sessions import asked_of_session, refuse_unobeyed
from headrace.spark.session.python_files import ShippedFiles, ship
from headrace.spark.session.session import HostSession, before_stop, host_session
from headrace.spark.session.session_configuration import LOOPBACK, driver_addresses
from headrace.spark.workers.resource_driver import SparkResourceDriver
from headrace.spark.workers.worker import WorkerSpec, run_worker
from headrace.spark.workers.worker_jobs import SparkWorkerJobs, WorkerBody
from headrace.spark.workers.worker_output import OutputPipe, StandardOutput
from headrace.spark.workers.worker_process import program_log_levels, worker_memory_bytes

_LOG: Final = logging.getLogger(__name__)
_POLL_S: Final = 0.1


class NoExecutorError(HostError):
    """Spark's cluster gave this application nothing to run on."""

    def __init__(self, master: str, timeout_s: float) -> None:
        super().__init__(
            f"no Spark executor registered within {timeout_s:g} s at master {master} "
            "(headrace.spark.executor-timeout): is the cluster up, and has it free cores and memory?"
        )


class SessionStoppedError(HostError):
    """The program stopped its SparkSession."""

    def __init__(self) -> None:
        super().__init__(
            "the SparkSession that jobs run on was stopped: await a job's end before spark.stop()"
        )


class SparkHost:
    """One Headrace cluster inside one Spark application, for as long as that lives; `close` ends it sooner.

    A session is a cluster without a program: it takes jobs of any client. `name` is what clients call it, unset: the
    program. `log_folder` is a folder that its owner keeps.
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
        log_folder = log_folder or named_log_folder(settings, self._clock.now_ms())
        self.session: HostSession = host_session(settings)
        conf = dict(self.session.context.getConf().getAll())
        self.master = conf["spark.master"]
        self._kind: MasterKind = parse_master(self.master, os.cpu_count() or 1)
        self._worker_settings = _worker_settings(settings, conf)
        self._addresses = driver_addresses(conf, is_local=self._kind.is_local)
        self._secret = cluster_secret(settings)
        self._tls: TlsIdentity | None = None
        self._scratch = Path(tempfile.mkdtemp(prefix="headrace-host-", dir=self.session.scratch))
        # Whichever of the two processes ends in order removes it, should the other be killed.
        delete_at_jvm_exit(self.session.context, self._scratch)
        self._shipped = ShippedFiles(are_seen=self._kind.is_local)
        self._log_folder = log_folder or private_folder(self._scratch / "logs")
        self._log = ProcessLog(self._log_folder, JOB_MANAGER, settings)
        self._output: OutputPipe | None = None
        self._standard_output = StandardOutput(self._log.write_printed)
        self._handle: ClusterHandle | None = None
        self._rest: RestServer | None = None
        self._history: JobHistory | None = None
        self._driver: SparkResourceDriver | None = None
        self._stay: Callable[[], None] | None = None
        self._has_left = False

    @property
    def handle(self) -> ClusterHandle:
        """The running cluster."""
        assert self._handle is not None, "the host has not been started"
        return self._handle

    @property
    def rest(self) -> RestServer | None:
        """The REST endpoint of the running cluster, or None where it has none."""
        return self._rest

    @property
    def has_lost_session(self) -> bool:
        """Return whether its session was stopped: jobs need another host."""
        return is_stopped(self.session.context)

    @property
    def failure(self) -> BaseException | None:
        """Return the error because of which no job can run here any more, or None."""
        if self._has_left:
            return SessionStoppedError()
        if self._handle is not None and self._handle.failure is not None:
            return self._handle.failure
        return None if self._driver is None else self._driver.failure

    @property
    def is_fixed(self) -> bool:
        """Return whether the number of slots cannot change: everything runs on this machine."""
        return self._kind.is_local

    @property
    def slots_per_worker(self) -> int:
        """Slots of one TaskManager."""
        return self._settings.get_option(NUMBER_OF_TASK_SLOTS)

    @property
    def slot_count(self) -> int | None:
        """Slots of the TaskManagers that the application has room for now, or None where executors come on demand."""
        assert self._driver is not None
        workers = self._driver.max_worker_count
        return None if workers is None else workers * self.slots_per_worker

    def start(self) -> None:
        """Start the control plane; TaskManagers come when a job needs them.

        With high availability this waits, as a standby with a session, until no other driver leads the cluster.
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
        jobs = SparkWorkerJobs(
            self.session.context,
            self._body_of,
            honours_profiles=not self._kind.is_single_process,
            secrets=TaskSecrets(self._secret, self._tls, self._worker_settings.to_dict()),
            counted=worker_profile(self._settings),
        )
        stop_grace_ms = self._settings.duration_ms(STOP_GRACE)
        self._driver = SparkResourceDriver(jobs, self._clock, stop_grace_ms=stop_grace_ms)
        self._history = history = JobHistory(self._settings, self._clock, system_random())
        # Whoever looks at the settings of the cluster sees the master that it really has.
        settings = self._settings.with_values({MASTER.key: self.master})
        entrypoint = ClusterEntrypoint(
            settings,
            self._driver,
            {
                SOURCE_COORDINATOR: source_coordinator_factory(
                    TaskSecrets(self._secret, self._tls)
                ),
                SINK_COORDINATOR: sink_coordinator_factory(lambda: self.session.spark),
            },
            self._secret,
            self._addresses.bound,
            self._addresses.advertised,
            self._clock,
            system_random(),
            tls=self._tls,
            scratch=self._scratch,
            show_output=None if self._kind.is_local else self._standard_output.show,
            on_job_ended=history.job_ended,
            log_folder=self._log_folder,
        )
        self._handle = handle = entrypoint.start()
        history.watch(handle.dispatcher, handle.loop)
        self._rest = start_rest_server(
            ControlPlane(
                handle.dispatcher,
                handle.resource_manager,
                handle.loop,
                history.metrics_of,
                handle.blob_server,
            ),
            settings,
            self._clock,
            name=self._name or Path(sys.argv[0]).stem or self.session.context.appName or "",
            identity=self._tls or given_identity(self._settings),
            log_folder=handle.log_folder,
            is_session=self._is_session,
        )
        if self._rest is not None:
            handle.announce(self._rest.address)
        # By the program, or at the interpreter's exit by the session itself: it was made last, and is stopped first.
        self._stay = before_stop(self.session.context, self._leave_session)
        if self._kind.is_single_process and self._settings.get_option(CPU_CORES) > 1:
            _LOG.warning(
                "%s is ignored on %s: Spark has no profiles there", CPU_CORES.key, self.master
            )

    def refuse_unobeyed(self, settings: Mapping[str, str]) -> None:
        """Raise UnobeyedSettingError where a job asks for a setting of Spark's that its session was not made with."""
        conf = self.session.spark.conf
        asked = asked_of_session(settings)
        found = {key: conf.get(key, None) for key in asked}
        known = {key: value for key, value in found.items() if value is not None}
        # What the command line says was handed to the session that the program made, if it made it.
        handed = asked_of_session(default_settings())
        refuse_unobeyed(asked, {**self.session.given, **handed}, known)

    def provide(self, files: tuple[Path, ...]) -> None:
        """Ship the files that a job's functions import; LateFilesError where running TaskManagers lack them."""
        ship(self.session.context, self._shipped.add(files), self._scratch)

    def close(self) -> None:
        """End jobs, TaskManagers and control plane, then the session if it is ours. Idempotent."""
        try:
            self._close_cluster()
        finally:
            if self._stay is not None:
                self._stay()
            self.session.stop()

    def _leave_session(self) -> None:
        """End jobs and TaskManagers while there is a session; Spark would kill them, with many words."""
        self._has_left = True
        if self._handle is not None:
            self._handle.leave_host(SessionStoppedError())
        if self._output is not None:
            self._output.close()

    def _close_cluster(self) -> None:
        handle, self._handle = self._handle, None
        rest, self._rest = self._rest, None
        history, self._history = self._history, None
        self._standard_output.close()
        if rest is not None:
            rest.close()
        try:
            if history is not None:
                history.stop_watching()
            if handle is not None:
                handle.close()
        finally:
            try:
                if history is not None:
                    # Jobs that ended with the cluster are archived too.
                    history.close()
                if self._output is not None:
                    self._output.close()
            finally:
                HEADRACE_TAP.remove(self._log.handler)
                self._log.close()
                shutil.rmtree(self._scratch, ignore_errors=True)

    def _wait_for_executors(self) -> None:
        """Wait until the application can run something; how much is asked again whenever it matters."""
        if self._kind.is_single_process:
            return
        wanted = self._kind.executor_count or 1
        timeout_s = self._settings.get_option(EXECUTOR_TIMEOUT).total_seconds()
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * 1e9)
        while registered_executor_count(self.session.context) < wanted:
            if self._clock.monotonic_ns() > deadline_ns:
                raise NoExecutorError(self.master, timeout_s)
            threading.Event().wait(_POLL_S)

    def _body_of(self, worker_id: ResourceId) -> WorkerBody:
        self._shipped.workers_start()
        handle = self.handle
        configuration = TaskManagerConfiguration(
            resource_id=worker_id,
            resource_manager_address=handle.resource_manager_address,
            resource_manager_id=handle.resource_manager_id,
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
        )
        return functools.partial(run_worker, spec)

    def _worker_log_folder(self) -> str:
        """The driver's folder where workers see it, or one of that name on their hosts; else empty: their own."""
        is_named = bool(self._settings.get_option(LOG_DIR))
        return str(self._log_folder) if self._kind.is_local or is_named else ""


def _worker_settings(settings: Settings, conf: Mapping[str, str]) -> Settings:
    """Return the settings of TaskManagers: `settings`, and the memory that Spark lets each of them have."""
    memory_bytes = worker_memory_bytes(conf)
    if memory_bytes is None or settings.get_option(PROCESS_MEMORY) is not None:
        return settings
    return settings.with_values({PROCESS_MEMORY.key: str(memory_bytes)})

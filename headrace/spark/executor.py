"""SparkExecutor: runs jobs on a Headrace cluster in the program's Spark application, from the first job on."""

import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.api.client.job_client import JobClient
from headrace.api.client.program_end import end_in_order_when_terminated, ignore_termination
from headrace.api.executors import settings_for_cluster
from headrace.api.settings.job_artifacts import python_files, with_environment, with_python_files
from headrace.cluster.high_availability.leader_election_service import OnStandby
from headrace.cluster.high_availability.options import (
    DELETE_ON_COMMIT,
    HIGH_AVAILABILITY_TYPE,
    high_availability_type,
    is_highly_available,
)
from headrace.core.config import Settings, check_values, unknown_settings, unobeyed_settings
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.ids import ClusterDataSetId
from headrace.core.resource_profile import ResourceProfile
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.messages import DataSetInfo
from headrace.graph.execution_graph import expand
from headrace.graph.job_graph import JobGraph
from headrace.graph.pipeline_options import FREE_PREFIXES, runs_in_batch
from headrace.spark.batch.batch_support import refuse_unsupported
from headrace.spark.master import embedded_slot_count, given_master, parse_master
from headrace.spark.options import SLOT_COUNT

if TYPE_CHECKING:
    from headrace.rest.rest_server import RestServer
    from headrace.spark.application import Application
    from headrace.spark.host import SparkHost

_LOG: Final = logging.getLogger(__name__)
_SUBMIT_TIMEOUT_S: Final = 60.0
_SESSION_VARIABLES: Final = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Environment variables that are set if spark-submit or a similar launcher has started Spark for the program."""


class ExternalResourcesError(HostError):
    """The slots of a job need more of an external resource than all executors have together."""

    def __init__(self, lacking: str, master: str) -> None:
        super().__init__(
            f"{lacking} on {master}: lower the parallelism of the groups that need it, or give each executor more"
        )


class NotEnoughSlotsError(HostError):
    """The job needs more TaskManagers than the Spark application can ever run."""

    def __init__(
        self,
        needed: int,
        available: int,
        master: str,
        slots_per_worker: int = 1,
        group_count: int = 1,
    ) -> None:
        threads = -(-needed // slots_per_worker) + 1
        parallelism = available // group_count
        lower = (
            f"run it with '-p {parallelism}' where the program sets none higher, or "
            if parallelism
            else ""
        )
        super().__init__(
            f"the job needs {needed} slot(s) and Spark's master {master} has room for {available}, with one kept free "
            f"for Spark's own jobs: {lower}start with --master 'local[{threads}]'"
        )
        self.needed, self.available = needed, available


def _slots_of(host: "SparkHost") -> int:
    return max(1, host.slot_count if host.slot_count is not None else 1)


class SparkExecutor:
    """Runs pipelines on Spark. Implements PipelineExecutor, under the name `spark`; thread-safe."""

    name: Final = "spark"

    def __init__(self, settings: Settings, *, log_folder: Path | None = None) -> None:
        """Create an executor; `log_folder` is a folder for log files that the caller keeps."""
        self._settings = settings
        self._log_folder = log_folder
        # Two threads of a program may submit their first jobs at once: the second waits for the first one's host.
        self._lock = threading.Lock()
        self._host: SparkHost | None = None
        self._application: Application | None = None
        self._handlers = ExitStack()
        self._is_closed = False
        self._warned_of: set[str] = set()

    def submit(self, job_graph: JobGraph) -> JobClient:
        """Submit a job, starting Spark and the cluster if necessary; returns once the Dispatcher has accepted it."""
        # Then every option is declared, which it was not yet where the program set them; Spark takes long to start.
        _host_class()
        check_values(job_graph.settings)
        self._warn_of_idle_settings(job_graph.settings)
        is_batch = runs_in_batch(Settings(job_graph.settings))
        if is_batch:
            refuse_unsupported(job_graph)
        job_graph = with_environment(job_graph)
        host = self._started_host(job_graph.settings)
        host.refuse_unobeyed(job_graph.settings)
        application = self._application
        if application is not None:
            _refuse_own_high_availability(job_graph.settings, self._settings)
        if not is_batch:
            _refuse_too_few_slots(job_graph, host)
        job_graph = self._with_files(job_graph, host)
        if application is not None:
            return application.submit(job_graph, host, _SUBMIT_TIMEOUT_S)
        handle = host.handle
        if is_batch:
            _LOG.info("job '%s' (%s) runs on Spark stages", job_graph.name, job_graph.job_id)
            return host.batch_jobs.submit(job_graph, handle)
        dispatcher: DispatcherGateway = handle.dispatcher
        handle.submit(job_graph, _SUBMIT_TIMEOUT_S)
        _LOG.info(
            "job '%s' (%s) is submitted; its TaskManagers start", job_graph.name, job_graph.job_id
        )
        return JobClient(job_graph.job_id, dispatcher, handle.loop)

    def start_application(self, name: str, on_standby: OnStandby) -> "Application":
        """Start the cluster of a program with high availability, before its main; wait until this driver leads.

        `on_standby` is called with the present leader meanwhile. On failure everything is closed again.
        """
        # Imported late: programs without high availability need none of it.
        from headrace.spark.application import Application

        application = Application(self._settings, on_standby)
        settings = self._settings.with_values({DELETE_ON_COMMIT.key: "false"})
        with self._lock:
            self._handlers.callback(end_in_order_when_terminated())
            host = _host_class()(settings, name=name, log_folder=self._log_folder)
            try:
                host.start(
                    application.stands_by,
                    lambda services: application.granted(services, host.provide),
                )
            except BaseException:
                host.close()
                raise
            self._host, self._application = host, application
        application.main_begins(host)
        return application

    def batch_dataframe(self, job_graph: JobGraph) -> Any:
        """Return the rows of a bounded job's one collect sink as a lazy Spark DataFrame.

        Nothing runs yet. ProgramError if the records have no columns, or the job uses a feature that BATCH mode lacks.
        """
        _host_class()
        check_values(job_graph.settings)
        host = self._started_host(job_graph.settings)
        host.refuse_unobeyed(job_graph.settings)
        return host.batch_jobs.dataframe(self._with_files(job_graph, host))

    def default_parallelism(self) -> int:
        """Return the number of slots for TaskManagers: on this machine one per processor, on a cluster all but one."""
        known = self.known_parallelism()
        return _slots_of(self._started_host()) if known is None else known

    def known_parallelism(self) -> int | None:
        """Return the number of slots; None if a cluster's Spark, which must be asked for it, does not run."""
        master = _planned_or_running_master(self._settings)
        if master is None:
            return embedded_slot_count(self._settings, os.cpu_count() or 1)
        kind = parse_master(master, os.cpu_count() or 1)
        if self._settings.get_option(SLOT_COUNT) > 0:
            return self._settings.get_option(SLOT_COUNT)
        if kind.thread_count is not None:
            return max(1, kind.thread_count - 1)
        host = self._live_host()
        return None if host is None else _slots_of(host)

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return the cluster's data sets; there are none after a program has stopped the session."""
        host = self._live_host()
        return () if host is None else host.handle.list_data_sets()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        host = self._live_host()
        if host is not None:
            host.handle.release_data_set(data_set)

    @property
    def rest(self) -> "RestServer | None":
        """Return the REST endpoint of the cluster; None if no cluster runs, or if it has none."""
        host = self._live_host()
        return None if host is None else host.rest

    def _live_host(self) -> "SparkHost | None":
        with self._lock:
            host = self._host
        is_lost = host is None or host.has_lost_session or host.failure is not None
        return None if is_lost else host

    def close(self) -> None:
        """Cancel jobs, stop TaskManagers, and stop Spark if this executor started it. Idempotent."""
        with self._lock:
            self._is_closed = True
            host, self._host = self._host, None
        if host is not None:
            resume = ignore_termination()
            try:
                host.close()
            finally:
                resume()
        self._handlers.close()

    @staticmethod
    def _with_files(job_graph: JobGraph, host: "SparkHost") -> JobGraph:
        """Ship the files that a job's functions import, and return the job with their absolute paths."""
        # A program may name files after the executor was made, as it is before a program begins.
        files = python_files(Settings(job_graph.settings))
        host.provide(files)
        return with_python_files(job_graph, files)

    def _warn_of_idle_settings(self, settings: Mapping[str, str]) -> None:
        """Warn once about keys of the program that have no effect: a ported program may set some of Flink's."""
        unread = unknown_settings(settings, FREE_PREFIXES) + unobeyed_settings(settings)
        for sentence in unread:
            if sentence not in self._warned_of:
                self._warned_of.add(sentence)
                _LOG.warning("%s", sentence)

    def _host_of_application(self) -> "SparkHost":
        host = self._host
        if host is None or host.has_lost_session:
            raise HostError(
                "the program has stopped its SparkSession, in which its cluster ran: with high availability all "
                "jobs run in the session that existed before main; remove spark.stop()"
            )
        if host.failure is not None:
            raise host.failure
        return host

    def _started_host(self, program: Mapping[str, str] | None = None) -> "SparkHost":
        """Return the started host; a host that is not started yet gets the settings of the `program` too."""
        with self._lock:
            if self._is_closed:
                raise HostError("the Spark executor has been closed")
            if self._application is not None:
                return self._host_of_application()
            if self._host is not None and self._host.has_lost_session:
                # The program stopped its session, and may have made another one.
                lost, self._host = self._host, None
                lost.close()
            if self._host is not None and self._host.failure is not None:
                raise self._host.failure
            if self._host is None:
                # Before Spark is started, which takes long; where a session was lost, this is in place already.
                self._handlers.callback(end_in_order_when_terminated())
                given = settings_for_cluster(program or {})
                settings = Settings({**given, **self._settings.to_dict()})
                _refuse_high_availability(settings)
                host = _host_class()(settings, log_folder=self._log_folder)
                try:
                    host.start()
                except BaseException:
                    host.close()
                    raise
                self._host = host
            return self._host


def _host_class() -> "type[SparkHost]":
    """Import and return the host class; it imports PySpark, which takes a second."""
    from headrace.spark.host import SparkHost

    return SparkHost


def _planned_or_running_master(settings: Settings) -> str | None:
    """Return the master of the session that jobs would run on, or None if an embedded session would be created."""
    is_started = any(name in os.environ for name in _SESSION_VARIABLES)
    if not is_started and "pyspark" not in sys.modules:
        # There is no session: whoever had made one would have imported PySpark.
        return given_master(settings, os.environ, {}) or None
    from headrace.spark.session.session import planned_or_running_master

    return planned_or_running_master(settings)


def _refuse_too_few_slots(job_graph: JobGraph, host: "SparkHost") -> None:
    expanded, available = expand(job_graph), host.slot_count
    needed, groups = expanded.slots_needed, len(expanded.slots_by_group)
    wanted: Counter[ResourceProfile] = Counter()
    for group, count in expanded.slots_by_group.items():
        wanted[job_graph.profile_of(group)] += count
    lacking = host.sizes.lacking(wanted)
    if lacking:
        raise ExternalResourcesError(lacking, host.master)
    slots_per_worker = host.slots_per_worker
    if available is not None and job_graph.python_executable:
        available, slots_per_worker = available // slots_per_worker, 1
    # Slots of groups with resources are cut: how many there will be is known to the ResourceManager.
    if job_graph.slot_resources and slots_per_worker > 1:
        return
    if available is not None and needed > available and host.is_fixed:
        raise NotEnoughSlotsError(needed, available, host.master, slots_per_worker, groups)


def _refuse_high_availability(settings: Settings) -> None:
    """Raise ConfigurationError: a driver must lead before the program begins, or its first part runs twice."""
    if is_highly_available(settings):
        raise ConfigurationError(
            HIGH_AVAILABILITY_TYPE.key,
            high_availability_type(settings),
            "a program with a cluster of its own must set it on the command line, which calls main once this driver "
            f"leads: 'headrace run -D {HIGH_AVAILABILITY_TYPE.key}=…'; or start a session cluster and submit the "
            "program to it",
        )


def _refuse_own_high_availability(program: Mapping[str, str], given: Settings) -> None:
    """Raise ConfigurationError for election settings in the program, which come after the election."""
    for key, value in program.items():
        if key.startswith("high-availability") and given.get(key) != value:
            raise ConfigurationError(
                key,
                value,
                "the program sets it after its driver was elected: set it on the command line",
            )

"""SessionCluster: a cluster without a program, which accepts jobs of any client over REST until it is stopped.

JobCluster: a cluster for a single job, which its client submits and with which it ends. Both run in a process of their
own, in the main thread. Functions of jobs are never imported here: jobs come as graphs, and their functions are
unpickled by TaskManagers alone. Source: Flink SessionClusterEntrypoint, YarnJobClusterEntrypoint, MiniDispatcher.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.api.executors import ATTACHED
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.high_availability.leader_election_service import OnStandby
from headrace.cluster.resource_manager.options import EXCLUSIVE_TASK_MANAGERS
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.errors import HostError
from headrace.core.lifecycle import JobStatus
from headrace.rest.options import REST_ENABLED, WEB_SUBMIT_ENABLE
from headrace.rest.rest_server import RestServer
from headrace.spark.host import SessionStoppedError, SparkHost

_LOG: Final = logging.getLogger(__name__)
_POLL_S: Final = 1.0
"""Interval at which the cluster is checked for failure; a request to end takes effect at once."""
_ASK_TIMEOUT_S: Final = 60.0
JOB_WAIT_MS: Final = 60_000
"""Time in which a client must submit its job; otherwise the client counts as gone."""
RESULT_WAIT_MS: Final = 60_000
"""Time in which an attached client may fetch its job's results, unless it ends the cluster before."""
_DETACHED_WAIT_MS: Final = 5_000


class SessionCluster:
    """One session cluster. Call `start`, `wait` for its end, then `close`."""

    is_session = True
    """True if clients that look for a session find this cluster."""

    def __init__(self, settings: Settings, name: str, log_folder: Path | None = None) -> None:
        self._settings: Final = session_settings(settings)
        self._name: Final = name
        self._log_folder: Final = log_folder
        self._host: SparkHost | None = None

    @property
    def master(self) -> str:
        """Return the Spark master on which the cluster runs."""
        assert self._host is not None, "the session has not been started"
        return self._host.master

    @property
    def rest(self) -> RestServer:
        """Return the cluster's REST endpoint."""
        assert self._host is not None and self._host.rest is not None, (
            "the cluster has not been started"
        )
        return self._host.rest

    def start(self, on_standby: OnStandby | None = None) -> None:
        """Start Spark and the control plane; TaskManagers start when a job needs them. HostError; ConfigurationError.

        With high availability this waits for the leadership; `on_standby` is called with the present leader.
        """
        self._host = SparkHost(
            self._settings,
            name=self._name,
            is_session=self.is_session,
            log_folder=self._log_folder,
        )
        self._host.start(on_standby)
        if self._host.rest is None:
            raise HostError(
                f"the cluster accepts jobs over REST, but its REST endpoint did not start: see its log, and "
                f"{REST_ENABLED.key}"
            )
        _LOG.info("session '%s' accepts jobs at %s", self._name, self.rest.address)

    def wait(self) -> None:
        """Wait until a client has requested the end of the cluster; raise the error that ends it before."""
        host = self._host
        assert host is not None, "the session has not been started"
        while True:
            is_ending = host.handle.is_shutting_down.wait(_POLL_S)
            if host.failure is not None:
                raise host.failure
            if is_ending:
                return
            if host.has_lost_session:
                raise SessionStoppedError
            if self.is_over(host.handle):
                return

    def is_over(self, handle: ClusterHandle) -> bool:
        """Return whether the cluster ends by itself now; a session never does."""
        return False

    def close(self) -> None:
        """Cancel the cluster's jobs, whose checkpoints stay, and end TaskManagers, control plane and Spark.

        Idempotent.
        """
        host, self._host = self._host, None
        if host is not None:
            host.close()


def session_settings(settings: Settings) -> Settings:
    """Return the settings of a session, in which by default a TaskManager serves only one job."""
    return Settings({EXCLUSIVE_TASK_MANAGERS.key: "true", **settings.to_dict()})


class JobCluster(SessionCluster):
    """Cluster of one job. Call `start`, `wait` for the end of the job, then `close`."""

    is_session = False

    def __init__(
        self,
        settings: Settings,
        name: str,
        log_folder: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(settings.with_values({WEB_SUBMIT_ENABLE.key: "true"}), name, log_folder)
        self._clock: Final = clock or SystemClock()
        self._end: Final = JobEnd(is_attached=settings.get_option(ATTACHED))

    def is_over(self, handle: ClusterHandle) -> bool:
        """Return whether the job has ended and its client is done with it, or no job was submitted in time."""
        jobs = handle.call(handle.dispatcher.list_jobs(), _ASK_TIMEOUT_S)
        is_over = self._end.is_over([job.status for job in jobs], self._clock.monotonic_ms())
        if is_over:
            _LOG.info(
                "the cluster ends: %s", "its job has ended" if jobs else "no client submitted a job"
            )
        return is_over


class JobEnd:
    """Decides when the cluster of one job ends. Pure.

    It ends if no job comes in time, or if the job has ended and an attached client has had time to fetch the result.
    """

    def __init__(self, *, is_attached: bool) -> None:
        self._result_wait_ms: Final = RESULT_WAIT_MS if is_attached else _DETACHED_WAIT_MS
        self._had_job = False
        self._idle_since_ms: float | None = None

    def is_over(self, jobs: Sequence[JobStatus], monotonic_ms: float) -> bool:
        """Return whether the cluster ends now; called periodically with the status of each job."""
        if any(not status.is_terminal_state() for status in jobs):
            self._had_job, self._idle_since_ms = True, None
            return False
        if self._idle_since_ms is None or bool(jobs) > self._had_job:
            self._had_job, self._idle_since_ms = bool(jobs), monotonic_ms
        wait_ms = self._result_wait_ms if jobs else JOB_WAIT_MS
        return monotonic_ms - self._idle_since_ms >= wait_ms

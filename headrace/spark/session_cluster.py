"""SessionCluster: a cluster without a program, which takes jobs of any client over REST until it is stopped.

JobCluster: one for a single job, which its client brings, and with which it ends. Either runs in a process of its own,
in the main thread. Functions of jobs are never imported here: jobs come as graphs, and their functions are unpickled by
TaskManagers alone.
Source: Flink SessionClusterEntrypoint, YarnJobClusterEntrypoint, MiniDispatcher.
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
"""Interval at which the cluster is asked whether it has failed; that it is told to end is heard at once."""
_ASK_TIMEOUT_S: Final = 60.0
JOB_WAIT_MS: Final = 60_000
"""Time for which a client may take to bring its job; longer and it is gone."""
RESULT_WAIT_MS: Final = 60_000
"""Time for which an attached client may take to fetch what its job has left, unless it ends the cluster before."""
_DETACHED_WAIT_MS: Final = 5_000


class SessionCluster:
    """One session. `start`, `wait` for its end, `close`."""

    is_session = True
    """Whether clients that look for a session find it."""

    def __init__(self, settings: Settings, name: str, log_folder: Path | None = None) -> None:
        self._settings: Final = session_settings(settings)
        self._name: Final = name
        self._log_folder: Final = log_folder
        self._host: SparkHost | None = None

    @property
    def master(self) -> str:
        """The Spark master on which it runs."""
        assert self._host is not None, "the session has not been started"
        return self._host.master

    @property
    def rest(self) -> RestServer:
        """Its REST endpoint."""
        assert self._host is not None and self._host.rest is not None, "it has not been started"
        return self._host.rest

    def start(self, on_standby: OnStandby | None = None) -> None:
        """Start Spark and the control plane; TaskManagers come when a job needs them. HostError; ConfigurationError.

        With high availability it waits for the leadership; `on_standby` hears of the leader.
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
                f"the cluster takes its jobs over REST, which did not start: see its log, and {REST_ENABLED.key}"
            )
        _LOG.info("session '%s' takes jobs at %s", self._name, self.rest.address)

    def wait(self) -> None:
        """Wait until a client has asked for the end of the cluster; raise the error that ends it before."""
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
        """Cancel its jobs, whose checkpoints stay, and end TaskManagers, control plane and Spark. Idempotent."""
        host, self._host = self._host, None
        if host is not None:
            host.close()


def session_settings(settings: Settings) -> Settings:
    """Return the settings of a session: a TaskManager serves one job alone, unless they say otherwise."""
    return Settings({EXCLUSIVE_TASK_MANAGERS.key: "true", **settings.to_dict()})


class JobCluster(SessionCluster):
    """One cluster. `start`, `wait` for the end of its job, `close`."""

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
        """Return whether the job has ended, and nobody is going to ask about it."""
        jobs = handle.call(handle.dispatcher.list_jobs(), _ASK_TIMEOUT_S)
        is_over = self._end.is_over([job.status for job in jobs], self._clock.monotonic_ms())
        if is_over:
            _LOG.info(
                "the cluster ends: %s", "its job has ended" if jobs else "nobody brought a job"
            )
        return is_over


class JobEnd:
    """Decides when the cluster of one job ends. Pure.

    No job comes in time, or the job has ended and its client, if it is attached, had the time to fetch the result.
    """

    def __init__(self, *, is_attached: bool) -> None:
        self._result_wait_ms: Final = RESULT_WAIT_MS if is_attached else _DETACHED_WAIT_MS
        self._had_job = False
        self._idle_since_ms: float | None = None

    def is_over(self, jobs: Sequence[JobStatus], monotonic_ms: float) -> bool:
        """Return whether it ends now; asked again and again, with the status of each job."""
        if any(not status.is_terminal_state() for status in jobs):
            self._had_job, self._idle_since_ms = True, None
            return False
        if self._idle_since_ms is None or bool(jobs) > self._had_job:
            self._had_job, self._idle_since_ms = bool(jobs), monotonic_ms
        wait_ms = self._result_wait_ms if jobs else JOB_WAIT_MS
        return monotonic_ms - self._idle_since_ms >= wait_ms

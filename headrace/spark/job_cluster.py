"""JobCluster: a cluster for one job, which its client brings over REST, and with which it ends.

Source: Flink MiniDispatcher, YarnJobClusterEntrypoint.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.api.executors import ATTACHED
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.lifecycle import JobStatus
from headrace.rest.options import WEB_SUBMIT_ENABLE
from headrace.spark.session_cluster import SessionCluster

_LOG: Final = logging.getLogger(__name__)
_ASK_TIMEOUT_S: Final = 60.0
JOB_WAIT_MS: Final = 60_000
"""Time for which a client may take to bring its job; longer and it is gone."""
RESULT_WAIT_MS: Final = 60_000
"""Time for which an attached client may take to fetch what its job has left, unless it ends the cluster before."""
_DETACHED_WAIT_MS: Final = 5_000


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

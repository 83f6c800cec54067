"""JobStatusReporter: tells of a job's attempts, restarts and states: the log, the user, traces and the host.

Runs on the JobMaster's main thread. Source: Flink JobStatusListener.
"""

import logging
from typing import Final

from headrace.cluster.error_reports import first_line
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.job_spans import JobSpans
from headrace.cluster.job_master.shared_services import OnAttempt
from headrace.core.lifecycle import JobStatus
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import JobGraph

_LOG = logging.getLogger(__name__)


class JobStatusReporter:
    """One per JobMaster. `on_attempt`: see JobManagerSharedServices."""

    def __init__(
        self, graph: JobGraph, notices: JobNotices, spans: JobSpans, on_attempt: OnAttempt | None
    ) -> None:
        self._graph: Final = graph
        self._notices: Final = notices
        self._spans: Final = spans
        self._on_attempt: Final = on_attempt

    def attempt_begins(self, number: int) -> None:
        """Tell of the first attempt, or of one after a restart."""
        if self._on_attempt is not None:
            self._on_attempt(self._graph, number)

    def restarts(
        self, cause: Failure, delay_ms: float, restart_count: int, newest_id: int | None
    ) -> None:
        """Tell of a restart; `newest_id`: of the checkpoint that it goes on from, if there is one."""
        self.attempt_begins(restart_count + 1)
        self._spans.restarts(first_line(cause.error), restart_count)
        self._notices.tell(
            "restarts",
            f"job '{self._graph.name}' restarts {f'in {delay_ms / 1000:.1f} s' if delay_ms else 'now'} "
            f"{f'from checkpoint {newest_id}' if newest_id else 'from the start'} "
            f"(restart {restart_count}): {first_line(cause.error)}",
        )

    def status_changed(self, status: JobStatus, cause: ErrorInfo | None) -> None:
        """Log a state, with all that is known of its cause: the log is read when nobody can ask any more."""
        why = "" if cause is None else f": {cause.text}\n{cause.remote_traceback}".rstrip()
        _LOG.info("job %s (%s) is %s%s", self._graph.name, self._graph.job_id, status.name, why)

"""JobStatusListener: reports a job's attempts, restarts, states and checkpoints to log, user, traces and host.

Traces have a span of each checkpoint, of the job's start and of each restart. A restart lasts from the failure until
all subtasks run again, including further failures meanwhile. Runs on the JobMaster's main thread.
Source: Flink JobStatusListener, CheckpointStatsTracker (span Checkpoint), JobInitialization.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.cluster.error_reports import first_line
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.core.clock import Clock
from headrace.core.ids import ExecutionVertexId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import JobGraph
from headrace.metrics.readings import Span, SpanValue

_LOG = logging.getLogger(__name__)

ReportSpan = Callable[[Span], None]
OnAttempt = Callable[[JobGraph, int], None]
"""Called with each start of a job, before its slots are requested, and its number: 1, plus 1 with each restart."""
CHECKPOINT_SPAN: Final = "Checkpoint"
INITIALIZATION_SPAN: Final = "JobInitialization"
_THERE: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)


class JobStatusListener:
    """One per JobMaster. `report_span` receives spans, and `on_attempt` is called with starts, unless they are None."""

    def __init__(
        self,
        graph: JobGraph,
        subtasks: Iterable[ExecutionVertexId],
        notices: JobNotices,
        clock: Clock,
        report_span: ReportSpan | None,
        on_attempt: OnAttempt | None,
    ) -> None:
        self._graph: Final = graph
        self._notices: Final = notices
        self._clock: Final = clock
        self._report_span: Final = report_span
        self._on_attempt: Final = on_attempt
        self._facts: Final[dict[str, SpanValue]] = {
            "jobId": str(graph.job_id),
            "jobName": graph.name,
        }
        self._begun_ms: int | None = clock.now_ms()
        self._restart_count = 0
        self._cause = ""
        self._waited_for: Final = set(subtasks)

    def attempt_begins(self, number: int) -> None:
        """Report the first attempt, or one after a restart."""
        if self._on_attempt is not None:
            self._on_attempt(self._graph, number)

    def restarts(
        self, cause: Failure, delay_ms: float, restart_count: int, newest_id: int | None
    ) -> None:
        """Report a restart, or a failure during one. `newest_id`: its checkpoint; 0 or None if none."""
        self.attempt_begins(restart_count + 1)
        if self._begun_ms is None:
            self._begun_ms = self._clock.now_ms()
        self._cause, self._restart_count = first_line(cause.error), restart_count
        self._notices.tell(
            "restarts",
            f"job '{self._graph.name}' restarts {f'in {delay_ms / 1000:.1f} s' if delay_ms else 'now'} "
            f"{f'from checkpoint {newest_id}' if newest_id else 'from the start'} "
            f"(restart {restart_count}): {self._cause}",
        )

    def status_changed(self, status: JobStatus, cause: ErrorInfo | None) -> None:
        """Log a state with the full cause, because the log may be read when no process can answer any more."""
        why = "" if cause is None else f": {cause.text}\n{cause.remote_traceback}".rstrip()
        _LOG.info("job %s (%s) is %s%s", self._graph.name, self._graph.job_id, status.name, why)

    def execution_changed(self, execution: Execution) -> None:
        """End the current start or restart once all subtasks run or have finished."""
        subtask = execution.attempt_id.execution_vertex_id
        if execution.state not in _THERE:
            self._waited_for.add(subtask)
            return
        self._waited_for.discard(subtask)
        if self._report_span is None or self._begun_ms is None or self._waited_for:
            return
        facts = self._facts | {"restart": self._restart_count, "cause": self._cause}
        self._report_span(Span(INITIALIZATION_SPAN, self._begun_ms, self._clock.now_ms(), facts))
        self._begun_ms = None

    def checkpoint_ended(
        self,
        checkpoint: PendingCheckpoint,
        outcome: CompletedCheckpoint | CheckpointFailureReason,
    ) -> None:
        """Report a checkpoint or savepoint that was published, or that failed."""
        if self._report_span is None:
            return
        facts = self._facts | {
            "checkpointId": checkpoint.checkpoint_id,
            "checkpointType": checkpoint.kind.name,
        }
        error = ""
        if isinstance(outcome, CheckpointFailureReason):
            error = outcome.name
        else:
            facts["fullSize"] = outcome.metadata.size_bytes
            facts["checkpointedSize"] = sum(
                metrics.written_bytes for metrics in checkpoint.metrics.values()
            )
        facts["checkpointStatus"] = "FAILED" if error else "COMPLETED"
        now_ms = self._clock.now_ms()
        self._report_span(Span(CHECKPOINT_SPAN, checkpoint.timestamp_ms, now_ms, facts, error))

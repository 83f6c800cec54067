"""JobSpans: spans of a job's checkpoints, and of its starts and restarts, for traces.

A restart lasts from the failure until all subtasks run again; one that fails meanwhile goes on. Runs on the JobMaster's
main thread.
Source: Flink CheckpointStatsTracker (span Checkpoint), JobInitialization.
"""

from collections.abc import Callable, Iterable
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.executions import Execution
from headrace.core.clock import Clock
from headrace.core.ids import ExecutionVertexId, JobId
from headrace.core.lifecycle import ExecutionState
from headrace.metrics.readings import Span, SpanValue

ReportSpan = Callable[[Span], None]
CHECKPOINT_SPAN: Final = "Checkpoint"
INITIALIZATION_SPAN: Final = "JobInitialization"
_THERE: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)


class JobSpans:
    """One per JobMaster."""

    def __init__(
        self,
        job_id: JobId,
        job_name: str,
        subtasks: Iterable[ExecutionVertexId],
        clock: Clock,
        report: ReportSpan | None,
    ) -> None:
        self._facts: Final[dict[str, SpanValue]] = {"jobId": str(job_id), "jobName": job_name}
        self._clock: Final = clock
        self._report: Final = report
        self._begun_ms: int | None = clock.now_ms()
        self._restart_count = 0
        self._cause = ""
        self._waited_for: Final = set(subtasks)

    def checkpoint_ended(
        self,
        checkpoint: PendingCheckpoint,
        outcome: CompletedCheckpoint | CheckpointFailureReason,
    ) -> None:
        """Report a checkpoint or savepoint that was published, or that failed."""
        if self._report is None:
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
        self._report(Span(CHECKPOINT_SPAN, checkpoint.timestamp_ms, now_ms, facts, error))

    def restarts(self, cause: str, restart_count: int) -> None:
        """Begin a restart, or go on with the one that is under way."""
        if self._begun_ms is None:
            self._begun_ms = self._clock.now_ms()
        self._cause, self._restart_count = cause, restart_count

    def execution_changed(self, execution: Execution) -> None:
        """End the start or restart under way once all subtasks run or have finished."""
        subtask = execution.attempt_id.execution_vertex_id
        if execution.state not in _THERE:
            self._waited_for.add(subtask)
            return
        self._waited_for.discard(subtask)
        if self._report is None or self._begun_ms is None or self._waited_for:
            return
        facts = self._facts | {"restart": self._restart_count, "cause": self._cause}
        self._report(Span(INITIALIZATION_SPAN, self._begun_ms, self._clock.now_ms(), facts))
        self._begun_ms = None

"""CheckpointStatistics: what people are told of a job's checkpoints. Pure; durations are monotonic.

Source: Flink CheckpointStatsTracker.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.checkpoint.failure_reasons import CheckpointFailureReason
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.pending_checkpoint import PendingCheckpoint
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId
from headrace.gateways.checkpoints import (
    CheckpointCounts,
    CheckpointInfo,
    CheckpointOverview,
    FailedCheckpointInfo,
    PendingCheckpointInfo,
)
from headrace.graph.execution_graph import ExecutionGraph

_NAMED_MAX: Final = 4


class CheckpointStatistics:
    """Counts, and the latest of each kind."""

    def __init__(self) -> None:
        self._begun_ms: dict[int, float] = {}
        self._overview = CheckpointOverview()

    def begun(self, checkpoint_id: int, monotonic_ms: float) -> None:
        """A checkpoint has its id."""
        self._begun_ms[checkpoint_id] = monotonic_ms
        self._count(triggered=self._overview.counts.triggered + 1)

    def completed(
        self, checkpoint: PendingCheckpoint, published: CompletedCheckpoint, monotonic_ms: float
    ) -> None:
        """A checkpoint or savepoint is published."""
        info = CheckpointInfo(
            checkpoint.checkpoint_id,
            checkpoint.kind,
            checkpoint.timestamp_ms,
            self._duration_ms(checkpoint.checkpoint_id, monotonic_ms),
            published.metadata.size_bytes,
            sum(metrics.written_bytes for metrics in checkpoint.metrics.values()),
            published.uri,
        )
        self._count(completed=self._overview.counts.completed + 1)
        if checkpoint.kind.is_savepoint:
            self._overview = msgspec.structs.replace(self._overview, latest_savepoint=info)
        else:
            self._overview = msgspec.structs.replace(self._overview, latest_completed=info)

    def failed(
        self,
        checkpoint: PendingCheckpoint,
        reason: CheckpointFailureReason,
        text: str,
        monotonic_ms: float,
    ) -> None:
        """A checkpoint came to nothing."""
        info = FailedCheckpointInfo(
            checkpoint.checkpoint_id,
            checkpoint.kind,
            checkpoint.timestamp_ms,
            self._duration_ms(checkpoint.checkpoint_id, monotonic_ms),
            reason.name,
            text,
        )
        self._count(failed=self._overview.counts.failed + 1)
        self._overview = msgspec.structs.replace(self._overview, latest_failed=info)

    def restored(self, checkpoint_id: int) -> None:
        """The job, or a part of it, starts from this one."""
        self._count(restored=self._overview.counts.restored + 1)
        self._overview = msgspec.structs.replace(self._overview, restored_id=checkpoint_id)

    def overview(
        self,
        pending: Iterable[PendingCheckpoint],
        graph: ExecutionGraph,
        *,
        uncommitted_ids: tuple[int, ...] = (),
        blocking_sinks: tuple[str, ...] = (),
        paused_because: str = "",
    ) -> CheckpointOverview:
        """Everything, as it is now."""
        under_way = tuple(
            PendingCheckpointInfo(
                each.checkpoint_id,
                each.kind,
                each.timestamp_ms,
                each.phase.value,
                len(each.snapshots),
                len(each.plan.to_wait_for),
                tuple(name_of(graph, attempt_id) for attempt_id in each.waiting[:_NAMED_MAX]),
            )
            for each in pending
        )
        counts = msgspec.structs.replace(self._overview.counts, in_progress=len(under_way))
        return msgspec.structs.replace(
            self._overview,
            counts=counts,
            pending=under_way,
            uncommitted_ids=uncommitted_ids,
            blocking_sinks=blocking_sinks,
            paused_because=paused_because,
        )

    def _duration_ms(self, checkpoint_id: int, monotonic_ms: float) -> int:
        return round(monotonic_ms - self._begun_ms.pop(checkpoint_id, monotonic_ms))

    def _count(self, **changes: int) -> None:
        counts: CheckpointCounts = msgspec.structs.replace(self._overview.counts, **changes)
        self._overview = msgspec.structs.replace(self._overview, counts=counts)


def describe_waiting(checkpoint: PendingCheckpoint, graph: ExecutionGraph) -> str:
    """Where a checkpoint is stuck: among those that have not answered, the first ones along the stream."""
    waiting = {attempt_id.execution_vertex_id for attempt_id in checkpoint.waiting}
    first = [each for each in checkpoint.waiting if not _producers(graph, each) & waiting]
    names = [name_of(graph, attempt_id) for attempt_id in first]
    if len(names) > _NAMED_MAX:
        names[_NAMED_MAX:] = [f"{len(names) - _NAMED_MAX} more"]
    where = (
        "begin with them, and have not written their state"
        if all(attempt_id in checkpoint.plan.to_trigger for attempt_id in first)
        else "have been sent barriers, and wait for those of their other channels or have not written their state"
    )
    total = len(checkpoint.plan.to_wait_for)
    return (
        f"{len(checkpoint.waiting)} of {total} subtask(s) had not answered; first along the stream "
        f"{', '.join(names)}, which {where}"
    )


def name_of(graph: ExecutionGraph, attempt_id: ExecutionAttemptId) -> str:
    """A subtask's name for people."""
    vertex = graph.vertex(attempt_id.execution_vertex_id).job_vertex
    return f"'{vertex.name}' ({attempt_id.subtask_index + 1}/{vertex.parallelism})"


def _producers(graph: ExecutionGraph, attempt_id: ExecutionAttemptId) -> set[ExecutionVertexId]:
    subtask = attempt_id.execution_vertex_id
    return {
        ExecutionVertexId(edge.job_edge.source_vertex_id, number)
        for edge in graph.edges_into(subtask.vertex_id)
        for number in edge.producers_of(subtask.subtask_index)
    }

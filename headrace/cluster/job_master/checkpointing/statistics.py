"""CheckpointStatistics: statistics of a job's checkpoints, for people. Pure; durations are monotonic.

`describe_expired` explains why a checkpoint has expired: the subtasks that hold it up, their progress, and the barriers
that they lack. Source: Flink CheckpointStatsTracker.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, CheckpointProgress, SubtaskPhase
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.checkpoint_tasks import CheckpointTasks
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.core.barriers import SnapshotKind
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId
from headrace.gateways.job_master import (
    CheckpointCounts,
    CheckpointInfo,
    CheckpointOverview,
    FailedCheckpointInfo,
    PendingCheckpointInfo,
)
from headrace.graph.execution_graph import ExecutionGraph

_NAMED_MAX: Final = 4
_DOING: Final = {
    "BUSY": "busy",
    "IDLE": "idle",
    "BACK_PRESSURED": "back-pressured by those behind it",
}


class CheckpointStatistics:
    """Counts checkpoints, and remembers the latest of each kind."""

    def __init__(self) -> None:
        self._begun_ms: dict[int, float] = {}
        self._overview = CheckpointOverview()

    def begun(self, checkpoint_id: int, monotonic_ms: float) -> None:
        """Count a checkpoint that has its id."""
        self._begun_ms[checkpoint_id] = monotonic_ms
        self._count(triggered=self._overview.counts.triggered + 1)

    def completed(
        self, checkpoint: PendingCheckpoint, published: CompletedCheckpoint, monotonic_ms: float
    ) -> None:
        """Count a checkpoint or savepoint that is published."""
        info = CheckpointInfo(
            checkpoint.checkpoint_id,
            checkpoint.kind,
            checkpoint.timestamp_ms,
            self._duration_ms(checkpoint.checkpoint_id, monotonic_ms),
            published.metadata.size_bytes,
            sum(metrics.written_bytes for metrics in checkpoint.metrics.values()),
            published.uri,
            slowest_of(checkpoint.metrics.values()),
            sum(metrics.is_unaligned for metrics in checkpoint.metrics.values()),
        )
        self._count(completed=self._overview.counts.completed + 1)
        if checkpoint.kind.is_savepoint:
            self._overview = msgspec.structs.replace(self._overview, latest_savepoint=info)
        else:
            self._overview = msgspec.structs.replace(self._overview, latest_completed=info)

    def failed(
        self,
        checkpoint_id: int,
        kind: SnapshotKind,
        timestamp_ms: int,
        reason: CheckpointFailureReason,
        text: str,
        monotonic_ms: float,
    ) -> None:
        """Count a checkpoint that failed."""
        duration_ms = self._duration_ms(checkpoint_id, monotonic_ms)
        info = FailedCheckpointInfo(
            checkpoint_id, kind, timestamp_ms, duration_ms, reason.name, text
        )
        self._count(failed=self._overview.counts.failed + 1)
        self._overview = msgspec.structs.replace(self._overview, latest_failed=info)

    def restored(self, checkpoint_id: int) -> None:
        """Count a start of the job, or of a part of it, from a checkpoint."""
        self._count(restored=self._overview.counts.restored + 1)
        self._overview = msgspec.structs.replace(self._overview, restored_id=checkpoint_id)

    def overview(
        self,
        pending: Iterable[PendingCheckpoint],
        graph: ExecutionGraph,
        *,
        uncommitted_ids: tuple[int, ...] = (),
        blocking_sinks: tuple[str, ...] = (),
        is_commit_backlog_full: bool = False,
        cleaning_count: int = 0,
        max_concurrent: int = 1,
    ) -> CheckpointOverview:
        """Return all statistics as of now, with what delays the next checkpoint."""
        paused_because = ""
        if is_commit_backlog_full:
            paused_because = f"sinks have not committed: {', '.join(blocking_sinks)}"
        elif cleaning_count > max_concurrent:
            paused_because = f"{cleaning_count} old checkpoints are still being deleted"
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


def slowest_of(parts: Iterable[CheckpointMetrics]) -> CheckpointMetrics:
    """Combine the metrics of subtasks: the longest of each duration, and the bytes of all."""
    whole = CheckpointMetrics()
    for part in parts:
        whole = CheckpointMetrics(
            start_delay_ms=max(whole.start_delay_ms, part.start_delay_ms),
            alignment_ms=max(whole.alignment_ms, part.alignment_ms),
            sync_ms=max(whole.sync_ms, part.sync_ms),
            async_ms=max(whole.async_ms, part.async_ms),
            written_bytes=whole.written_bytes + part.written_bytes,
            in_flight_bytes=whole.in_flight_bytes + part.in_flight_bytes,
            is_unaligned=whole.is_unaligned or part.is_unaligned,
        )
    return whole


def name_of(graph: ExecutionGraph, attempt_id: ExecutionAttemptId) -> str:
    """Return a subtask's name for people."""
    vertex = graph.vertex(attempt_id.execution_vertex_id).job_vertex
    return f"'{vertex.name}' ({attempt_id.subtask_index + 1}/{vertex.parallelism})"


async def describe_expired(
    checkpoint: PendingCheckpoint, graph: ExecutionGraph, tasks: CheckpointTasks
) -> str:
    """Ask the subtasks that hold a checkpoint up, and describe where it is stuck."""
    first = first_waiting(checkpoint, graph)
    named = first[:_NAMED_MAX]
    answers = await asyncio.gather(
        *(tasks.progress(each, checkpoint.checkpoint_id) for each in named)
    )
    parts = [
        f"{name_of(graph, attempt_id)}: {describe_progress(answer, graph)}"
        for attempt_id, answer in zip(named, answers, strict=True)
    ]
    if len(first) > len(named):
        parts.append(f"{len(first) - len(named)} more")
    total = len(checkpoint.plan.to_wait_for)
    return (
        f"{len(checkpoint.waiting)} of {total} subtask(s) had not answered; first along the stream "
        + "; ".join(parts)
    )


def first_waiting(checkpoint: PendingCheckpoint, graph: ExecutionGraph) -> list[ExecutionAttemptId]:
    """Return the subtasks that have not answered, while all their producers have."""
    waiting = {attempt_id.execution_vertex_id for attempt_id in checkpoint.waiting}
    return [each for each in checkpoint.waiting if not _producers(graph, each) & waiting]


def describe_progress(progress: CheckpointProgress | None, graph: ExecutionGraph) -> str:
    """Describe in words the progress of one subtask with a checkpoint."""
    if progress is None:
        return "its TaskManager does not answer"
    text = progress.phase.value
    if progress.phase is SubtaskPhase.ALIGNING:
        text += f" on {progress.missing_count} of {progress.channel_count} channel(s)"
        if progress.missing:
            names = [name_of(graph, producer) for producer in progress.missing]
            if progress.missing_count > len(names):
                names.append(f"{progress.missing_count - len(names)} more")
            text += f", those of {', '.join(names)}"
    if progress.phase in (SubtaskPhase.ALIGNING, SubtaskPhase.WRITING):
        text += f", for {progress.elapsed_ms / 1000:,.1f} s"
    if progress.queued_bytes:
        text += f"; {progress.queued_bytes:,} bytes wait in its inputs"
    if progress.occupation:
        text += f"; it is {_DOING.get(progress.occupation, progress.occupation)}"
    return text


def _producers(graph: ExecutionGraph, attempt_id: ExecutionAttemptId) -> set[ExecutionVertexId]:
    subtask = attempt_id.execution_vertex_id
    return {
        ExecutionVertexId(edge.job_edge.source_vertex_id, number)
        for edge in graph.edges_into(subtask.vertex_id)
        for number in edge.producers_of(subtask.subtask_index)
    }

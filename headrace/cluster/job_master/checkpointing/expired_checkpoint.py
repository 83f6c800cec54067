"""Explanation of why a checkpoint has expired: the subtasks that hold it up, their progress, and barriers they lack."""

import asyncio
from typing import Final

from headrace.checkpoint.handles import CheckpointProgress, SubtaskPhase
from headrace.cluster.job_master.checkpointing.checkpoint_tasks import CheckpointTasks
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId
from headrace.graph.execution_graph import ExecutionGraph

_NAMED_MAX: Final = 4
_DOING: Final = {
    "BUSY": "busy",
    "IDLE": "idle",
    "BACK_PRESSURED": "back-pressured by those behind it",
}


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

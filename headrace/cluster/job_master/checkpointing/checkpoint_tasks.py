"""CheckpointTasks: plans the tasks of a job's checkpoints, calls them, and finds out why one is late.

Runs on the JobMaster's main thread. Source: Flink ExecutionVertex, Execution.triggerCheckpoint.
"""

import asyncio
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointProgress, SubtaskPhase
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import (
    CheckpointPlan,
    CheckpointRefusedError,
    calculate_plan,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.errors import HeadraceError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId
from headrace.core.lifecycle import ExecutionState
from headrace.core.process.failpoints import Failpoint, reach
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.graph.execution_graph import ExecutionGraph
from headrace.rpc.proxies import with_timeout

_PROGRESS_TIMEOUT_MS: Final = 2_000.0
"""Time in ms for which an expired checkpoint waits to learn where it is stuck."""
_NAMED_MAX: Final = 4
_DOING: Final = {
    "BUSY": "busy",
    "IDLE": "idle",
    "BACK_PRESSURED": "back-pressured by those behind it",
}


class CheckpointTasks:
    """Tasks of a job. Calls return at once and may be lost; calls to earlier attempts are not sent."""

    def __init__(
        self, scheduler: Scheduler, task_managers: TaskManagers, *, after_tasks_finish: bool
    ) -> None:
        self._scheduler: Final = scheduler
        self._task_managers: Final = task_managers
        self._after_tasks_finish: Final = after_tasks_finish

    def plan(self) -> CheckpointPlan:
        """Return the subtasks that take part in a checkpoint that begins now.

        CheckpointRefusedError if none can be taken.
        """
        graph = self._scheduler.execution_graph
        is_stored = any(edge.job_edge.result_type.traits.is_blocking for edge in graph.edges)
        if is_stored or graph.job_graph.has_cached_streams:
            reason = CheckpointFailureReason.BLOCKING_OUTPUT_EXIST
            raise CheckpointRefusedError(reason, reason.value)
        attempts = {each.attempt_id: each.state for each in self._scheduler.executions}
        return calculate_plan(graph, attempts, after_tasks_finish=self._after_tasks_finish)

    @property
    def ending(self) -> list[ExecutionAttemptId]:
        """Attempts that have processed all their data and wait for a checkpoint that records this."""
        return [
            execution.attempt_id
            for execution in self._scheduler.executions
            if execution.has_data_ended and execution.state is ExecutionState.RUNNING
        ]

    @property
    def has_all_data_ended(self) -> bool:
        """Return whether all tasks have processed all their data."""
        return self._scheduler.executions.has_all_data_ended

    def trigger(self, attempt_id: ExecutionAttemptId, checkpoint: PendingCheckpoint) -> None:
        """Trigger a checkpoint at a task."""
        gateway = self._gateway_of(attempt_id)
        if gateway is not None:
            gateway.trigger_checkpoint(
                attempt_id,
                self._task_managers.job_master_id,
                checkpoint.checkpoint_id,
                checkpoint.timestamp_ms,
                checkpoint.options,
            )
            reach(Failpoint.TRIGGERED)

    async def progress(
        self, attempt_id: ExecutionAttemptId, checkpoint_id: int
    ) -> CheckpointProgress | None:
        """Return a task's progress with a checkpoint; None if it does not answer in time."""
        gateway = self._gateway_of(attempt_id)
        if gateway is None:
            return None
        try:
            return await with_timeout(gateway, _PROGRESS_TIMEOUT_MS).request_checkpoint_progress(
                attempt_id, self._task_managers.job_master_id, checkpoint_id
            )
        except HeadraceError:
            return None

    def notify_complete(self, attempt_id: ExecutionAttemptId, checkpoint_id: int) -> None:
        """Notify a task that a checkpoint was published."""
        gateway = self._gateway_of(attempt_id)
        if gateway is not None:
            gateway.notify_checkpoint_complete(
                attempt_id, self._task_managers.job_master_id, checkpoint_id
            )
            reach(Failpoint.NOTIFYING)

    def notify_aborted(
        self, attempt_id: ExecutionAttemptId, checkpoint_id: int, latest_completed_id: int
    ) -> None:
        """Notify a task that a checkpoint failed."""
        gateway = self._gateway_of(attempt_id)
        if gateway is not None:
            gateway.notify_checkpoint_aborted(
                attempt_id, self._task_managers.job_master_id, checkpoint_id, latest_completed_id
            )

    def _gateway_of(self, attempt_id: ExecutionAttemptId) -> TaskExecutorGateway | None:
        execution = self._scheduler.executions.find(attempt_id)
        if execution is None or execution.slot is None or execution.state.is_terminal:
            return None
        return self._task_managers.gateway_of(execution.slot.resource_id)


def name_of(graph: ExecutionGraph, attempt_id: ExecutionAttemptId) -> str:
    """Return a subtask's name for messages."""
    vertex = graph.vertex(attempt_id.execution_vertex_id).job_vertex
    return f"'{vertex.name}' ({attempt_id.subtask_index + 1}/{vertex.parallelism})"


async def describe_expired(
    checkpoint: PendingCheckpoint, graph: ExecutionGraph, tasks: CheckpointTasks
) -> str:
    """Query the subtasks that delay a checkpoint, and return a description of where it is stuck."""
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
    """Return the subtasks that have not answered although all their producers have."""
    waiting = {attempt_id.execution_vertex_id for attempt_id in checkpoint.waiting}
    return [each for each in checkpoint.waiting if not _producers(graph, each) & waiting]


def describe_progress(progress: CheckpointProgress | None, graph: ExecutionGraph) -> str:
    """Return a description of one subtask's progress with a checkpoint."""
    if progress is None:
        return "its TaskManager does not respond"
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
        text += f"; {progress.queued_bytes:,} bytes are queued in its inputs"
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

"""CheckpointPlan: the subtasks that take part in a checkpoint, also when some have already finished. Pure.

Source: Flink DefaultCheckpointPlanCalculator, DefaultCheckpointPlan.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.options import AFTER_TASKS_FINISH
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId
from headrace.core.lifecycle import ExecutionState
from headrace.graph.execution_graph import ExecutionGraph


@dataclass(frozen=True)
class CheckpointPlan:
    """Subtasks of a checkpoint.

    Those to trigger, those to wait for (and to notify of its end), and the finished ones.
    """

    to_trigger: tuple[ExecutionAttemptId, ...]
    to_wait_for: tuple[ExecutionAttemptId, ...]
    finished: tuple[ExecutionVertexId, ...] = ()


class CheckpointRefusedError(HeadraceError):
    """A checkpoint cannot be taken now. `is_lasting`: no other one can be taken either before tasks restart."""

    domain, recoverable = ErrorDomain.INTERNAL, True

    def __init__(
        self, reason: CheckpointFailureReason, text: str, *, is_lasting: bool = False
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.is_lasting = is_lasting


def calculate_plan(
    graph: ExecutionGraph,
    attempts: Mapping[ExecutionAttemptId, ExecutionState],
    *,
    after_tasks_finish: bool = True,
) -> CheckpointPlan:
    """Return the plan for a job's current attempts. CheckpointRefusedError if a required subtask is not running.

    The checkpoint waits for running subtasks; those without a running producer are triggered.
    """
    finished = tuple(
        attempt_id.execution_vertex_id
        for attempt_id, state in attempts.items()
        if state is ExecutionState.FINISHED
    )
    if finished and not after_tasks_finish:
        raise _refused(
            f"some tasks have finished, and {AFTER_TASKS_FINISH.key} is false", is_lasting=True
        )
    running = tuple(
        attempt_id for attempt_id, state in attempts.items() if state is not ExecutionState.FINISHED
    )
    if not running:
        raise _refused("all tasks have finished")
    for attempt_id in running:
        if attempts[attempt_id] is not ExecutionState.RUNNING:
            name = graph.vertex(attempt_id.execution_vertex_id).job_vertex.subtask_name(
                attempt_id.subtask_index
            )
            raise _refused(
                f"not all required tasks are currently running: '{name}' is {attempts[attempt_id].value}; try again "
                "when all of them run, as 'headrace top' and the dashboard show"
            )
    subtasks = {attempt_id.execution_vertex_id for attempt_id in running}
    to_trigger = (
        one for one in running if not _has_input(graph, one.execution_vertex_id, subtasks)
    )
    return CheckpointPlan(tuple(to_trigger), running, finished)


def _has_input(
    graph: ExecutionGraph, subtask: ExecutionVertexId, running: Set[ExecutionVertexId]
) -> bool:
    """Return whether a barrier can still come from a producer of the subtask."""
    return any(
        ExecutionVertexId(edge.job_edge.source_vertex_id, producer) in running
        for edge in graph.edges_into(subtask.vertex_id)
        for producer in edge.producers_of(subtask.subtask_index)
    )


def _refused(text: str, *, is_lasting: bool = False) -> CheckpointRefusedError:
    reason = CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
    return CheckpointRefusedError(reason, text, is_lasting=is_lasting)

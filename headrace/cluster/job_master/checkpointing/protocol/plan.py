"""Which subtasks take part in a checkpoint when some have finished already. Pure.

Source: Flink DefaultCheckpointPlanCalculator, DefaultCheckpointPlan.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.options import AFTER_TASKS_FINISH
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId
from headrace.core.lifecycle import ExecutionState
from headrace.graph.execution_graph import ExecutionGraph


@dataclass(frozen=True)
class CheckpointPlan:
    """Who begins, who is waited for (and told of the end), and who has nothing to say any more."""

    to_trigger: tuple[ExecutionAttemptId, ...]
    to_wait_for: tuple[ExecutionAttemptId, ...]
    finished: tuple[ExecutionVertexId, ...] = ()


class CheckpointRefusedError(HeadraceError):
    """The checkpoint is not even begun. `is_lasting`: nor will another be, before tasks restart."""

    domain, recoverable = ErrorDomain.INTERNAL, True

    def __init__(
        self, reason: CheckpointFailureReason, text: str, *, is_lasting: bool = False
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.is_lasting = is_lasting


@dataclass(frozen=True)
class SubtaskAttempt:
    """The current attempt of a subtask."""

    attempt_id: ExecutionAttemptId
    state: ExecutionState


def calculate_plan(
    graph: ExecutionGraph,
    attempts: Mapping[ExecutionVertexId, SubtaskAttempt],
    *,
    after_tasks_finish: bool = True,
) -> CheckpointPlan:
    """The plan for the job as it is now; CheckpointRefusedError where somebody who is needed does not run.

    Running subtasks are waited for; triggered are those of them none of whose producers runs any more.
    """
    finished = tuple(
        subtask for subtask, each in attempts.items() if each.state is ExecutionState.FINISHED
    )
    if finished and not after_tasks_finish:
        raise _refused(
            f"some tasks have finished, and {AFTER_TASKS_FINISH.key} is false", is_lasting=True
        )
    running = {s: each for s, each in attempts.items() if s not in set(finished)}
    if not running:
        raise _refused("all tasks have finished")
    for each in running.values():
        if each.state is not ExecutionState.RUNNING:
            raise _refused(f"task {each.attempt_id} is {each.state.value}")
    return CheckpointPlan(
        tuple(each.attempt_id for s, each in running.items() if not _has_input(graph, s, running)),
        tuple(each.attempt_id for each in running.values()),
        finished,
    )


def _has_input(
    graph: ExecutionGraph,
    subtask: ExecutionVertexId,
    running: Mapping[ExecutionVertexId, SubtaskAttempt],
) -> bool:
    """Whether a barrier can still come from somebody upstream."""
    return any(
        ExecutionVertexId(edge.job_edge.source_vertex_id, producer) in running
        for edge in graph.edges_into(subtask.vertex_id)
        for producer in edge.producers_of(subtask.subtask_index)
    )


def _refused(text: str, *, is_lasting: bool = False) -> CheckpointRefusedError:
    reason = CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
    return CheckpointRefusedError(reason, text, is_lasting=is_lasting)

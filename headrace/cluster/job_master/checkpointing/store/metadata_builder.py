"""From what subtasks and coordinators have handed over to the metadata of a checkpoint. Pure.

Source: Flink PendingCheckpoint.finalizeCheckpoint, DefaultCheckpointPlan.fulfillFinishedTaskStatus.
"""

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import (
    ITEM_MODE,
    OperatorStateMode,
    OperatorSubtaskState,
    TaskStateSnapshot,
)
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointRefusedError
from headrace.core.ids import ExecutionVertexId
from headrace.graph.job_graph import ChainedOperator, JobGraph, JobVertex


def metadata_of(
    checkpoint: PendingCheckpoint, graph: JobGraph, lineage_id: str, epoch: int
) -> CheckpointMetadata:
    """The metadata of a checkpoint that everybody has acknowledged.

    CheckpointRefusedError where some subtasks of an operator have finished whose state everybody is to have: their
    part of it would be missing.
    """
    snapshots = {
        attempt_id.execution_vertex_id: snapshot
        for attempt_id, snapshot in checkpoint.snapshots.items()
    }
    finished = frozenset(checkpoint.plan.finished) | {
        subtask for subtask, snapshot in snapshots.items() if snapshot.is_finished
    }
    operators = tuple(
        _operator(checkpoint, vertex, operator, snapshots, finished)
        for vertex in graph.vertices
        for operator in vertex.operators
    )
    for each in operators:
        _refuse_partly_finished(each)
    return CheckpointMetadata(
        checkpoint_id=checkpoint.checkpoint_id,
        kind=checkpoint.kind,
        timestamp_ms=checkpoint.timestamp_ms,
        job_id=graph.job_id,
        job_name=graph.name,
        lineage=lineage_id,
        epoch=epoch,
        operators=operators,
    )


def _refuse_partly_finished(operator: OperatorSnapshot) -> None:
    if operator.is_finished or not operator.finished_subtasks:
        return
    chunks = [chunk for state in operator.subtasks.values() for chunk in state.chunks]
    if any(chunk.attributes.get(ITEM_MODE) == OperatorStateMode.UNION.name for chunk in chunks):
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
        text = f"some subtasks of '{operator.name}', which has union state, have finished and others have not"
        raise CheckpointRefusedError(reason, text)


def _operator(
    checkpoint: PendingCheckpoint,
    vertex: JobVertex,
    operator: ChainedOperator,
    snapshots: dict[ExecutionVertexId, TaskStateSnapshot],
    finished: frozenset[ExecutionVertexId],
) -> OperatorSnapshot:
    subtasks: dict[int, OperatorSubtaskState] = {}
    for index in range(vertex.parallelism):
        snapshot = snapshots.get(ExecutionVertexId(vertex.vertex_id, index))
        if snapshot is not None and operator.operator_id in snapshot.operators:
            subtasks[index] = snapshot.operators[operator.operator_id]
    return OperatorSnapshot(
        operator_id=operator.operator_id,
        name=operator.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        uid=operator.uid,
        subtasks=subtasks,
        finished_subtasks=frozenset(
            subtask.subtask_index for subtask in finished if subtask.vertex_id == vertex.vertex_id
        ),
        coordinator_state=checkpoint.coordinator_states.get(operator.operator_id),
    )

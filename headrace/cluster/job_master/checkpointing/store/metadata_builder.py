"""Builds the metadata of a checkpoint from its acknowledgements, and the source position from the metadata. Pure.

Source: Flink PendingCheckpoint.finalizeCheckpoint, DefaultCheckpointPlan.fulfillFinishedTaskStatus.
"""

import hashlib
from typing import Final

import msgspec

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import (
    ITEM_MODE,
    OperatorStateMode,
    OperatorSubtaskState,
    StateTable,
    TaskStateSnapshot,
)
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import (
    CheckpointRefusedError,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.core.ids import ExecutionVertexId
from headrace.graph.job_graph import ChainedOperator, JobGraph, JobVertex

UNKNOWN_POSITION: Final = b""
"""Position of a job that has a running source without state about its read position."""


def build_metadata(
    checkpoint: PendingCheckpoint, graph: JobGraph, lineage_id: str, epoch: int
) -> CheckpointMetadata:
    """Return the metadata of a checkpoint that every subtask has acknowledged.

    CheckpointRefusedError if some subtasks of an operator with union state have finished: their part would be missing.
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
        text = f"some subtasks of '{operator.name}', which has union state, have finished, but others have not"
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


def source_position(metadata: CheckpointMetadata, graph: JobGraph) -> bytes:
    """Return a digest of the state of all sources and their coordinators; equal digests mean that no rows were read."""
    consuming = {edge.target_vertex_id for edge in graph.edges}
    sources = {
        vertex.operators[0].operator_id
        for vertex in graph.vertices
        if vertex.vertex_id not in consuming
    }
    digest = hashlib.blake2b(digest_size=16)
    for operator in metadata.operators:
        if operator.operator_id in sources:
            kept = _kept(operator)
            if not kept and operator.coordinator_state is None and not operator.is_finished:
                return UNKNOWN_POSITION
            finished = sorted(operator.finished_subtasks)
            digest.update(msgspec.msgpack.encode((kept, finished, operator.coordinator_state)))
    return digest.digest()


def _kept(operator: OperatorSnapshot) -> list[tuple[int, str, str, int, bytes]]:
    """Return the source's own state, without event time, which may advance with the clock."""
    return [
        (index, chunk.table.value, chunk.name, chunk.row_count, chunk.file.digest)
        for index, state in sorted(operator.subtasks.items())
        for chunk in state.chunks
        if chunk.table is not StateTable.WATERMARKS
    ]

"""From acknowledgements to metadata: who had finished, and whose state must not be taken in part."""

import pytest

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import (
    CheckpointMetrics,
    OperatorSubtaskState,
    StateChunk,
    StateFile,
    StateTable,
    TaskStateSnapshot,
)
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import (
    CheckpointPlan,
    CheckpointRefusedError,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import (
    CheckpointRequest,
    PendingCheckpoint,
)
from headrace.cluster.job_master.checkpointing.store.metadata_builder import build_metadata
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, OperatorId
from tests.unit.cluster.cluster_samples import attempt, job_graph, vertex, vertex_id

OPERATOR = OperatorId((1).to_bytes(16, "big"))
GRAPH = job_graph((vertex(1, 3),))


def snapshot(mode: str = "SPLIT", *, is_finished: bool = False) -> TaskStateSnapshot:
    file = StateFile("", b"x", 1, b"")
    chunk = StateChunk(StateTable.OPERATOR, "list", 1, file, None, {"mode": mode})
    return TaskStateSnapshot({OPERATOR: OperatorSubtaskState((chunk,))}, is_finished)


def acknowledged(
    snapshots: dict[int, TaskStateSnapshot], finished: tuple[int, ...] = ()
) -> PendingCheckpoint:
    attempts: dict[int, ExecutionAttemptId] = {index: attempt(index) for index in snapshots}
    plan = CheckpointPlan(
        (),
        tuple(attempts.values()),
        tuple(ExecutionVertexId(vertex_id(1), index) for index in finished),
    )
    request = CheckpointRequest(1, SnapshotKind.CHECKPOINT)
    checkpoint = PendingCheckpoint(5, 1_000, request, plan, CheckpointOptions())
    for index, each in snapshots.items():
        checkpoint.acknowledge(attempts[index], each, CheckpointMetrics())
    return checkpoint


def test_subtasks_that_had_finished_are_named_and_need_have_no_state() -> None:
    checkpoint = acknowledged({1: snapshot(), 2: snapshot(is_finished=True)}, finished=(0,))
    (operator,) = build_metadata(checkpoint, GRAPH, "lineage", 1).operators
    assert operator.finished_subtasks == {0, 2} and not operator.is_finished
    assert sorted(operator.subtasks) == [1, 2]


def test_an_operator_all_of_whose_subtasks_had_finished_is_finished() -> None:
    finished = snapshot("UNION", is_finished=True)
    checkpoint = acknowledged({0: finished, 1: finished, 2: finished})
    (operator,) = build_metadata(checkpoint, GRAPH, "lineage", 1).operators
    assert operator.is_finished


@pytest.mark.parametrize("finished", [(), (0,)])
def test_union_state_is_not_taken_where_part_of_it_would_be_missing(
    finished: tuple[int, ...],
) -> None:
    others = {1: snapshot("UNION"), 2: snapshot("UNION", is_finished=not finished)}
    if not finished:
        others[0] = snapshot("UNION")
    with pytest.raises(CheckpointRefusedError, match="union state") as raised:
        build_metadata(acknowledged(others, finished), GRAPH, "lineage", 1)
    assert raised.value.reason is CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING

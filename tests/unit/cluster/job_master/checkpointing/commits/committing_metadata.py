"""Metadata of checkpoints whose sink has something to commit."""

from headrace.checkpoint.handles import Committable, OperatorSubtaskState
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.core.barriers import SnapshotKind
from headrace.core.ids import OperatorId
from tests.unit.cluster.cluster_samples import JOB

SINK = OperatorId(b"s" * 16)


def committable(number: int) -> Committable:
    return Committable(f"key-{number}", b"%d" % number)


def sent_keys(acknowledged: CheckpointMetadata) -> dict[OperatorId, set[str]]:
    """Return the keys of all prepared output that came with the acknowledgements."""
    return {
        operator.operator_id: {
            one.key for state in operator.subtasks.values() for one in state.committables
        }
        for operator in acknowledged.operators
    }


def metadata(checkpoint_id: int, *subtasks: list[int]) -> CheckpointMetadata:
    states = {
        index: OperatorSubtaskState((), tuple(committable(each) for each in numbers))
        for index, numbers in enumerate(subtasks)
    }
    operator = OperatorSnapshot(SINK, "sink", len(subtasks), 128, None, states)
    return CheckpointMetadata(
        checkpoint_id, SnapshotKind.CHECKPOINT, 0, JOB, "job", "lineage", 1, (operator,)
    )

"""CommitLedger: tracks the prepared output of each published checkpoint until it is committed. Pure.

Subtasks send all output that may be uncommitted, so output is new in a checkpoint if no earlier
published one had it. Uncommitted output of an earlier checkpoint is carried over in the metadata under that one's id,
which is part of its key: a slow sink does not prolong the retention of checkpoints.
Source: Flink CommittableCollector, CheckpointCommittableManager; see also its CommitterOperator.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from headrace.checkpoint.handles import Committable, OperatorSubtaskState
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot, PendingCommit
from headrace.core.ids import OperatorId


@dataclass
class _Sink:
    """Output of one sink.

    `pending`: published but not committed, ids in order; `known`: keys in published checkpoints.
    """

    pending: list[PendingCommit] = field(default_factory=list[PendingCommit])
    known: set[str] = field(default_factory=set[str])


class CommitLedger:
    """Sinks of one job that commit through the JobMaster."""

    def __init__(self, sinks: Iterable[OperatorId]) -> None:
        self._sinks = {operator_id: _Sink() for operator_id in sinks}

    @property
    def sinks(self) -> tuple[OperatorId, ...]:
        """Sinks that commit through the JobMaster."""
        return tuple(self._sinks)

    def complete(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Return the metadata to publish, with each piece of prepared output once, under the id it belongs to."""
        operators = tuple(
            self._only_new(each) if each.operator_id in self._sinks else each
            for each in metadata.operators
        )
        carried = tuple(each for sink in self._sinks.values() for each in sink.pending)
        return msgspec.structs.replace(metadata, operators=operators, pending_commits=carried)

    def published(self, metadata: CheckpointMetadata, sent: Mapping[OperatorId, set[str]]) -> None:
        """Record the output of a published checkpoint. `sent`: keys that came with its acknowledgements.

        A subtask never sends output again once it has stopped sending it.
        """
        for operator in metadata.operators:
            sink = self._sinks.get(operator.operator_id)
            if sink is not None:
                self._add(sink, metadata.checkpoint_id, operator)
        for operator_id, sink in self._sinks.items():
            in_pending = {c.key for each in sink.pending for c in each.committables}
            sink.known &= sent.get(operator_id, set()) | in_pending

    def restore(self, metadata: CheckpointMetadata | None) -> None:
        """Start from the checkpoint from which the job starts: all its output may still be uncommitted."""
        for sink in self._sinks.values():
            sink.pending.clear()
            sink.known.clear()
        if metadata is None:
            return
        for each in sorted(metadata.pending_commits, key=lambda one: one.checkpoint_id):
            sink = self._sinks.get(each.operator_id)
            if sink is not None:
                sink.pending.append(each)
                sink.known |= {one.key for one in each.committables}
        for operator in metadata.operators:
            sink = self._sinks.get(operator.operator_id)
            if sink is not None:
                self._add(sink, metadata.checkpoint_id, operator)

    def next_of(self, operator_id: OperatorId) -> PendingCommit | None:
        """Return the sink's next commit, or None."""
        pending = self._sinks[operator_id].pending
        return pending[0] if pending else None

    def committed(self, operator_id: OperatorId, checkpoint_id: int) -> None:
        """Remove the sink's first commit, which has succeeded."""
        done = self._sinks[operator_id].pending.pop(0)
        assert done.checkpoint_id == checkpoint_id

    @property
    def undecided_ids(self) -> tuple[int, ...]:
        """Ids of checkpoints with uncommitted output, in order."""
        return tuple(
            sorted({each.checkpoint_id for sink in self._sinks.values() for each in sink.pending})
        )

    @property
    def blocking_sinks(self) -> tuple[OperatorId, ...]:
        """Sinks with output that is published but not committed."""
        return tuple(key for key, sink in self._sinks.items() if sink.pending)

    def _only_new(self, operator: OperatorSnapshot) -> OperatorSnapshot:
        known = set(self._sinks[operator.operator_id].known)
        subtasks: dict[int, OperatorSubtaskState] = {}
        for index, state in sorted(operator.subtasks.items()):
            new: list[Committable] = []
            for committable in state.committables:
                if committable.key not in known:
                    known.add(committable.key)
                    new.append(committable)
            subtasks[index] = msgspec.structs.replace(state, committables=tuple(new))
        return msgspec.structs.replace(operator, subtasks=subtasks)

    @staticmethod
    def _add(sink: _Sink, checkpoint_id: int, operator: OperatorSnapshot) -> None:
        new = tuple(
            committable
            for _, state in sorted(operator.subtasks.items())
            for committable in state.committables
            if committable.key not in sink.known
        )
        if new:
            sink.known |= {each.key for each in new}
            sink.pending.append(PendingCommit(checkpoint_id, operator.operator_id, new))

"""Metadata of completed checkpoints and savepoints: published by a coordinator, restored by a later one.

`metadata_format` serializes it. Source: Flink CompletedCheckpoint, CheckpointMetadata, OperatorState.
"""

from collections.abc import Callable, Iterator

import msgspec

from headrace.checkpoint.handles import (
    Committable,
    OperatorSubtaskState,
    StateFile,
    StateTable,
    row_count_of,
)
from headrace.core.barriers import SnapshotKind
from headrace.core.ids import JobId, OperatorId


class OperatorSnapshot(msgspec.Struct, frozen=True):
    """State of one operator in a checkpoint.

    `subtasks`: states by subtask index; those in `finished_subtasks` have at most committables. `coordinator_state`:
    state of the operator's coordinator in the JobMaster, or None.
    """

    operator_id: OperatorId
    name: str
    parallelism: int
    max_parallelism: int
    uid: str | None = None
    subtasks: dict[int, OperatorSubtaskState] = {}
    finished_subtasks: frozenset[int] = frozenset()
    coordinator_state: bytes | None = None

    @property
    def is_finished(self) -> bool:
        """Return whether all its subtasks had finished."""
        return len(self.finished_subtasks) == self.parallelism

    @property
    def has_state(self) -> bool:
        """Return whether it has state other than event time, which the operators behind it know too."""
        return self.coordinator_state is not None or any(
            state.committables
            or any(chunk.table is not StateTable.WATERMARKS for chunk in state.chunks)
            for state in self.subtasks.values()
        )

    @property
    def row_count(self) -> int | None:
        """Return the number of rows of all chunks, or None if it is not known."""
        return row_count_of(chunk for state in self.subtasks.values() for chunk in state.chunks)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all chunks, including older checkpoints', and of the coordinator's state."""
        return len(self.coordinator_state or b"") + sum(
            state.size_bytes for state in self.subtasks.values()
        )

    @property
    def title(self) -> str:
        """Return the operator's title for messages: name and uid, or id if it has no uid."""
        known_by = f"uid '{self.uid}'" if self.uid else f"id {self.operator_id}, no uid"
        return f"'{self.name}' ({known_by})"


class PendingCommit(msgspec.Struct, frozen=True):
    """Prepared output of an earlier checkpoint that may not be committed yet; its key has the original id."""

    checkpoint_id: int
    operator_id: OperatorId
    committables: tuple[Committable, ...]


class StateChange(msgspec.Struct, frozen=True):
    """Effect of an edit on one state: rows before and after, and counts of added, changed and removed rows.

    `removed_expired_count`: the removed rows that were past their time to live when they were stored.
    """

    operator: str
    state: str
    action: str
    row_count_before: int
    row_count: int
    added_count: int = 0
    changed_count: int = 0
    removed_count: int = 0
    removed_expired_count: int = 0


class SnapshotEdit(msgspec.Struct, frozen=True):
    """Record of the edit that made a savepoint from another snapshot, without a job. `timestamp_ms`: wall clock."""

    parent_uri: str
    parent_checkpoint_id: int
    timestamp_ms: int
    author: str
    reason: str
    changes: tuple[StateChange, ...]


class CheckpointMetadata(msgspec.Struct, frozen=True):
    """A consistent cut through a job. `timestamp_ms`: wall clock of its trigger.

    `lineage`: hex digits that stay the same over restarts for as long as state is carried forward; ids never repeat
    within it. `epoch`: number of the driver's start within the lineage. `edit`: its difference from the snapshot of a
    job with the same id and lineage; None if it was not edited.
    """

    checkpoint_id: int
    kind: SnapshotKind
    timestamp_ms: int
    job_id: JobId
    job_name: str
    lineage: str
    epoch: int
    operators: tuple[OperatorSnapshot, ...] = ()
    pending_commits: tuple[PendingCommit, ...] = ()
    edit: SnapshotEdit | None = None

    @property
    def is_drained(self) -> bool:
        """Return whether event time had ended, so that no job can continue from it."""
        return self.kind.is_drained

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all state, including files of older checkpoints."""
        return sum(operator.size_bytes for operator in self.operators)

    def without_channel_state(self) -> "CheckpointMetadata":
        """Return the same state without in-flight records, which are lost."""
        return self._with_states(
            lambda state: msgspec.structs.replace(
                state,
                chunks=tuple(one for one in state.chunks if one.table is not StateTable.CHANNELS),
            )
        )

    def without_commits(self) -> "CheckpointMetadata":
        """Return the same state without output to be committed."""
        states = self._with_states(lambda state: OperatorSubtaskState(state.chunks))
        return msgspec.structs.replace(states, pending_commits=())

    def _with_states(
        self, change: Callable[[OperatorSubtaskState], OperatorSubtaskState]
    ) -> "CheckpointMetadata":
        operators = tuple(
            msgspec.structs.replace(
                operator,
                subtasks={index: change(state) for index, state in operator.subtasks.items()},
            )
            for operator in self.operators
        )
        return msgspec.structs.replace(self, operators=operators)

    def files(self) -> Iterator[StateFile]:
        """Yield every stored file to which it refers, without content inside the metadata."""
        for operator in self.operators:
            for state in operator.subtasks.values():
                for chunk in state.chunks:
                    if chunk.file.uri:
                        yield chunk.file


class CompletedCheckpoint(msgspec.Struct, frozen=True):
    """A published checkpoint or savepoint, and the folder of its metadata (empty: the driver's memory).

    `metadata_bytes`: size of its metadata file, 0 if there is none.
    """

    metadata: CheckpointMetadata
    uri: str
    metadata_bytes: int = 0

    @property
    def checkpoint_id(self) -> int:
        """Return the id from the metadata."""
        return self.metadata.checkpoint_id

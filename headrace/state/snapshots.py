"""From live state to chunks and back: what an operator's states offer when a checkpoint is taken.

A checkpoint has two parts. In the synchronous one, on the mailbox thread between two batches, each Snapshotable is
frozen: that must be cheap and must not see later changes. In the asynchronous one, on another thread, what was frozen
is written. Source: Flink SnapshotStrategyRunner, OperatorSnapshotFutures.
"""

from collections.abc import Sequence
from typing import Protocol

from headrace.checkpoint.handles import StateChunk
from headrace.checkpoint.storage.snapshot_files import SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.errors import ErrorDomain, HeadraceError, RecordTypeError


class StateNotStorableError(HeadraceError):
    """A state holds a value that cannot be written under its type: no later snapshot could be written either."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, operator_name: str, reason: str) -> None:
        super().__init__(f"operator '{operator_name}' keeps what cannot be stored: {reason}")
        self.operator_name = operator_name


class FrozenState(Protocol):
    """State as it was at the synchronous part."""

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """Write it; on a thread other than the task's. Once."""
        ...

    def discard(self) -> None:
        """It is written, or the checkpoint was aborted: let go of what was held for it. Idempotent, any thread."""
        ...


class Snapshotable(Protocol):
    """Some state of one operator."""

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> FrozenState:
        """Return the state as it is now. Mailbox thread; cheap."""
        ...

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """A checkpoint is published: what it stored may be referred to by increments. Mailbox thread."""
        ...

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint came to nothing: what it stored must not be referred to. Mailbox thread."""
        ...


class FrozenPart:
    """Frozen state of an operator, which is named where a value cannot be written. See FrozenState."""

    def __init__(self, state: FrozenState, operator_name: str) -> None:
        self._state = state
        self._operator_name = operator_name

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """See FrozenState. StateNotStorableError."""
        try:
            return self._state.write(writer)
        except RecordTypeError as error:
            raise StateNotStorableError(self._operator_name, str(error)) from error

    def discard(self) -> None:
        self._state.discard()

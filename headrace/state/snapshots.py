"""From live state to chunks and back: what an operator's states offer when a checkpoint is taken.

A checkpoint has two parts. In the synchronous one, on the mailbox thread between two batches, each Snapshotable is
frozen: that must be cheap and must not see later changes. In the asynchronous one, on another thread, what was frozen
is written. Source: Flink SnapshotStrategyRunner, OperatorSnapshotFutures.
"""

from collections.abc import Sequence
from typing import Protocol

from headrace.checkpoint.handles import StateChunk
from headrace.checkpoint.snapshot_files import SnapshotWriter
from headrace.core.checkpoints import CheckpointOptions


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

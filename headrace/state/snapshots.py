"""From live state to chunks and back: what an operator's states offer when a checkpoint is taken.

A checkpoint has two parts. In the synchronous one, on the mailbox thread between two batches, each Snapshotable is
frozen: that must be cheap and must not see later changes. In the asynchronous one, on another thread, what was frozen
is written. Source: Flink SnapshotStrategyRunner, OperatorSnapshotFutures.
"""

from collections.abc import Sequence
from typing import Protocol

from headrace.checkpoint.handles import StateChunk, StateFile
from headrace.core.checkpoints import CheckpointOptions


class SnapshotWriter(Protocol):
    """Where the files of one subtask's part of one checkpoint go. Any thread."""

    def write(
        self, name: str, content: bytes | memoryview, *, is_shared: bool = False
    ) -> StateFile:
        """Store content and return its handle; small content comes back inside the handle.

        `name`: a word for people in the file's name, which is unique anyway. CheckpointStorageError.
        """
        ...

    def write_file(self, name: str, path: str, *, is_shared: bool = False) -> StateFile:
        """Store a file of this machine, streamed. CheckpointStorageError."""
        ...


class SnapshotReader(Protocol):
    """Reads what a SnapshotWriter stored."""

    def read(self, file: StateFile) -> memoryview:
        """Return the content, whose digest fits. CheckpointCorruptedError, CheckpointStorageError."""
        ...

    def fetch(self, file: StateFile, path: str) -> None:
        """Bring a file to this machine, streamed; its digest fits. The same errors."""
        ...


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

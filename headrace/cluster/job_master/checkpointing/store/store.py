"""CheckpointStore: what a JobMaster asks of the checkpoint storage. Every call may block.

Source: Flink CompletedCheckpointStore, CheckpointIDCounter, CheckpointStorageCoordinatorView.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint
from headrace.core.barriers import CheckpointOptions
from headrace.core.lifecycle import JobStatus


@dataclass(frozen=True)
class CheckpointsLeft:
    """What became of a job's checkpoints at its end. `kept_uri`: the newest that stays, empty where none does."""

    kept_uri: str = ""
    has_deleted: bool = False


class CheckpointStore(Protocol):
    """One per job and JobMaster. Calls come one at a time, but `discard` and `register_shared` run beside others."""

    @property
    def lineage_id(self) -> str:
        """Hex digits that stay the same for as long as state is carried forward; after `recover`."""
        ...

    @property
    def epoch(self) -> int:
        """Which start of a driver within the lineage this is; after `recover`."""
        ...

    def recover(self) -> CompletedCheckpoint | None:
        """Take over the lineage; return what the job starts from. Called once, first.

        CheckpointError: the job must not start.
        """
        ...

    def latest(self) -> CompletedCheckpoint | None:
        """What the job restarts from: the newest checkpoint that is complete, or what `recover` returned."""
        ...

    def take_id(self) -> int:
        """Return the next id of the lineage, which nobody else ever gets. CheckpointStorageError."""
        ...

    def give_up_id(self, checkpoint_id: int) -> None:
        """No snapshot will have this id. Does not block, and runs beside other calls."""
        ...

    def locate(
        self, checkpoint_id: int, options: CheckpointOptions, target: str
    ) -> CheckpointOptions:
        """Make the place of a snapshot; return `options` with its URIs. CheckpointStorageError, ConfigurationError."""
        ...

    def publish(
        self, metadata: CheckpointMetadata, options: CheckpointOptions
    ) -> CompletedCheckpoint:
        """Make a snapshot complete and, unless it is a savepoint, give up what it takes the place of.

        CheckpointFencedError, CheckpointExistsError: this JobMaster is not the leader any more.
        PublicationUnknownError: it may be complete or not. Any other CheckpointStorageError: it never will be.
        """
        ...

    def register_shared(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Shared files exist and belong to this checkpoint, whatever becomes of it."""
        ...

    def discard(
        self, checkpoint_id: int, options: CheckpointOptions, files: Iterable[StateFile]
    ) -> None:
        """A snapshot, or a late part of one, came to nothing: delete what is its alone."""
        ...

    def close(self, status: JobStatus, *, keeps_latest: bool = False) -> CheckpointsLeft:
        """The job has reached this terminal status, or SUSPENDED: delete what is not to outlive it.

        `keeps_latest`: output of the newest checkpoint is not committed, so that it stays whatever was asked for.
        """
        ...

"""Where a task of this process writes its part of checkpoints, and reads what it restores."""

from typing import Final

from headrace.checkpoint.storage import SubtaskStorage, open_reader
from headrace.core.checkpoints import CheckpointOptions
from headrace.core.config import Settings
from headrace.state.snapshots import SnapshotReader, SnapshotWriter


class CheckpointFiles:
    """Implements SnapshotStorage, with files at the URIs that each checkpoint names.

    `settings` are the job's over the TaskManager's.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings

    def writer(self, options: CheckpointOptions, name_prefix: str) -> SnapshotWriter:
        """See SnapshotStorage."""
        return SubtaskStorage(options, name_prefix, self._settings)

    def reader(self) -> SnapshotReader:
        """See SnapshotStorage."""
        return open_reader(self._settings)

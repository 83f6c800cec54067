"""Storage to which the tasks of this process write their part of checkpoints, and from which they restore."""

from typing import Final

from headrace.checkpoint.options import LOCAL_BACKUP, RECOVERY_FROM_LOCAL
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.checkpoint.storage.subtask_storage import StateReader, SubtaskStorage
from headrace.checkpoint.storage.task_local_state import (
    CopiesFirstReader,
    CopyingWriter,
    TaskLocalState,
)
from headrace.core.barriers import CheckpointOptions
from headrace.core.config import Settings


class CheckpointFiles:
    """Implements SnapshotStorage, with files at the URIs that each checkpoint names.

    `settings` are the job's over the TaskManager's; `copies`: what this TaskManager wrote, on its own disk.
    """

    def __init__(self, settings: Settings, copies: TaskLocalState | None = None) -> None:
        self._settings: Final = settings
        self._copies: Final = copies

    def writer(self, options: CheckpointOptions, name_prefix: str) -> SnapshotWriter:
        writer = SubtaskStorage(options, name_prefix, self._settings)
        if self._copies is None or not self._settings.get_option(LOCAL_BACKUP):
            return writer
        return CopyingWriter(writer, self._copies)

    def reader(self) -> SnapshotReader:
        reader = StateReader()
        if self._copies is None or not self._settings.get_option(RECOVERY_FROM_LOCAL):
            return reader
        return CopiesFirstReader(reader, self._copies)

"""Checkpoint storages as PyFlink's objects: a program can set and read their values.

As in Flink 2 they have no effect: `execution.checkpointing.storage` and `execution.checkpointing.dir`, in a
Configuration or with `-D`, say where the checkpoints of a job are stored.
Source: Flink JobManagerCheckpointStorage, FileSystemCheckpointStorage.
"""

from typing import ClassVar, Final

from headrace.checkpoint.options import DATA_INLINE_THRESHOLD
from headrace.core.pyflink_refusals import jvm_only

_WRITE_BUFFER_SIZE_MIN: Final = 4096


class CheckpointStorage:
    """Base class of checkpoint storages: places in which checkpoints are stored.

    Savepoints go to the folder named in their request, or else to `execution.checkpointing.savepoint-dir`.
    """

    def get_savepoint_path(self) -> str | None:
        """Return None: a storage has no path for savepoints."""
        return None


class JobManagerCheckpointStorage(CheckpointStorage):
    """Storage in the memory of the driver: `execution.checkpointing.storage: jobmanager`. Sizes are bytes."""

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = 5 * 1024 * 1024

    def __init__(
        self, checkpoint_path: str | None = None, max_state_size: int | None = None
    ) -> None:
        size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if size <= 0:
            raise ValueError(f"max_state_size must be above 0, not {size}")
        self._checkpoint_path = None if checkpoint_path is None else _path(checkpoint_path)
        self._max_state_size = size

    def get_checkpoint_path(self) -> str | None:
        return self._checkpoint_path

    def get_max_state_size(self) -> int:
        return self._max_state_size

    def __repr__(self) -> str:
        return f"JobManagerCheckpointStorage({self._checkpoint_path!r}, {self._max_state_size})"


class FileSystemCheckpointStorage(CheckpointStorage):
    """Storage in a folder, or at a URI that pyarrow knows: `execution.checkpointing.dir`. Sizes are bytes."""

    MAX_FILE_STATE_THRESHOLD: ClassVar[int] = 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        if checkpoint_path is None:
            raise ValueError("checkpoint_path must not be None")
        threshold = -1 if file_state_size_threshold is None else file_state_size_threshold
        if not -1 <= threshold <= self.MAX_FILE_STATE_THRESHOLD:
            raise ValueError(
                f"file_state_size_threshold must be within 0..{self.MAX_FILE_STATE_THRESHOLD}, or -1, not {threshold}"
            )
        if write_buffer_size < -1:
            raise ValueError(f"write_buffer_size must be -1, 0 or more, not {write_buffer_size}")
        self._checkpoint_path = _path(checkpoint_path)
        self._threshold = DATA_INLINE_THRESHOLD.default if threshold == -1 else threshold
        self._write_buffer_size = max(write_buffer_size, _WRITE_BUFFER_SIZE_MIN)

    def get_checkpoint_path(self) -> str:
        return self._checkpoint_path

    def get_min_file_size_threshold(self) -> int:
        """Smaller state lies within the metadata."""
        return int(self._threshold)

    def get_write_buffer_size(self) -> int:
        """At least 4096."""
        return self._write_buffer_size

    def __repr__(self) -> str:
        return f"FileSystemCheckpointStorage({self._checkpoint_path!r})"


CustomCheckpointStorage: Final = jvm_only(
    "CustomCheckpointStorage",
    "name a folder, or a URI of a file system that pyarrow knows, with execution.checkpointing.dir",
)


def _path(text: str) -> str:
    """Write a path as Flink's Path does: without slashes at its end."""
    return str(text).rstrip("/") or "/"

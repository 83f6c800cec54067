"""State backends and checkpoint storages as PyFlink's objects: a program can set and read their values.

As in Flink 2 they have no effect. Options do, in a Configuration or with `-D`: `state.backend.type` (`hashmap` or
`rocksdb`) chooses the backend of a job; `execution.checkpointing.storage` and `execution.checkpointing.dir` say where
its checkpoints are stored.
Source: Flink HashMapStateBackend, EmbeddedRocksDBStateBackend, JobManagerCheckpointStorage,
FileSystemCheckpointStorage.
"""

import enum
from typing import ClassVar, Final, NoReturn

from headrace.checkpoint.options import DATA_INLINE_THRESHOLD
from headrace.core.pyflink_refusals import jvm_only, no_jvm

_TRANSFER_THREADS: Final = 4
CustomStateBackend: Final = jvm_only(
    "CustomStateBackend", "choose hashmap or rocksdb with state.backend.type"
)
_WRITE_BUFFER_SIZE_MIN: Final = 4096
CustomCheckpointStorage: Final = jvm_only(
    "CustomCheckpointStorage",
    "name a folder, or a URI of a file system that pyarrow knows, with execution.checkpointing.dir",
)


class PredefinedOptions(enum.Enum):
    """Sets of RocksDB options by kind of disk; they have no effect."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class StateBackend:
    """Base class of state backends, which store keyed state while a job runs."""


class HashMapStateBackend(StateBackend):
    """State in the memory of the workers: `state.backend.type: hashmap`."""

    def __repr__(self) -> str:
        return "HashMapStateBackend"


class EmbeddedRocksDBStateBackend(StateBackend):
    """State in RocksDB on the workers' disks: `state.backend.type: rocksdb`.

    Incremental checkpoints are `execution.checkpointing.incremental`, the folder `state.backend.rocksdb.localdir`.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing not in (None, True, False):
            raise TypeError(
                f"enable_incremental_checkpointing is True, False or None, not {enable_incremental_checkpointing!r}"
            )
        self._is_incremental = bool(enable_incremental_checkpointing)
        self._storage_paths: list[str] | None = None
        self._predefined_options = PredefinedOptions.DEFAULT
        self._transfer_threads = _TRANSFER_THREADS

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set local folders; without arguments, use the workers' own again."""
        self._storage_paths = list(paths) or None

    def get_db_storage_paths(self) -> list[str] | None:
        """Return the local folders; None if none were set."""
        return None if self._storage_paths is None else list(self._storage_paths)

    def is_incremental_checkpoints_enabled(self) -> bool:
        return self._is_incremental

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        if not isinstance(options, PredefinedOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"set_predefined_options needs PredefinedOptions, not {options!r}")
        self._predefined_options = options

    def get_predefined_options(self) -> PredefinedOptions:
        return self._predefined_options

    def set_options(self, options_factory_class_name: str) -> NoReturn:
        """Raise ProgramError: the factory would be a Java class."""
        raise no_jvm(
            "set_options",
            "set the memory of RocksDB with state.backend.rocksdb.memory.fixed-per-slot",
        )

    def get_options(self) -> str | None:
        """Return None: no factory can be set."""
        return None

    def get_number_of_transfer_threads(self) -> int:
        return self._transfer_threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        if number_of_transfering_threads < 1:
            raise ValueError(
                f"at least 1 thread must transfer files, not {number_of_transfering_threads}"
            )
        self._transfer_threads = number_of_transfering_threads

    def __repr__(self) -> str:
        return (
            f"EmbeddedRocksDBStateBackend(enable_incremental_checkpointing={self._is_incremental})"
        )


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
        """Return the size below which state is stored within the metadata."""
        return int(self._threshold)

    def get_write_buffer_size(self) -> int:
        """Return the size of the write buffer, at least 4096."""
        return self._write_buffer_size

    def __repr__(self) -> str:
        return f"FileSystemCheckpointStorage({self._checkpoint_path!r})"


def _path(text: str) -> str:
    """Write a path like Flink's Path, without trailing slashes."""
    return str(text).rstrip("/") or "/"

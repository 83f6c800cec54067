"""State backends as PyFlink's objects: a program can set and read their values.

As in Flink 2 they have no effect: `state.backend.type` (`hashmap` or `rocksdb`), in a Configuration or with `-D`,
chooses the backend of a job.
Source: Flink HashMapStateBackend, EmbeddedRocksDBStateBackend.
"""

import enum
from typing import Final, NoReturn

from headrace.core.pyflink_refusals import jvm_only, no_jvm

_TRANSFER_THREADS: Final = 4


class PredefinedOptions(enum.Enum):
    """Sets of RocksDB options by kind of disk; without effect."""

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
        """Name local folders; none go back to the workers' own."""
        self._storage_paths = list(paths) or None

    def get_db_storage_paths(self) -> list[str] | None:
        """None where none were named."""
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
        """The factory would be a Java class: ProgramError."""
        raise no_jvm(
            "set_options",
            "give RocksDB its memory with state.backend.rocksdb.memory.fixed-per-slot",
        )

    def get_options(self) -> str | None:
        """None: no factory can be set."""
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


CustomStateBackend: Final = jvm_only(
    "CustomStateBackend", "choose hashmap or rocksdb with state.backend.type"
)

"""PyFlink's `datastream.state_backend`: re-exports."""

from headrace.api.settings.pyflink_refusals import (
    FsStateBackend,
    MemoryStateBackend,
    RocksDBStateBackend,
)
from headrace.api.settings.state_backends import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    PredefinedOptions,
    StateBackend,
)

__all__ = [
    "FsStateBackend",
    "MemoryStateBackend",
    "RocksDBStateBackend",
    "StateBackend",
    "HashMapStateBackend",
    "EmbeddedRocksDBStateBackend",
    "CustomStateBackend",
    "PredefinedOptions",
]

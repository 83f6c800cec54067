"""PyFlink's `datastream.slot_sharing_group`: re-exports."""

from headrace.api.memory_size import MemorySize

__all__ = [
    "MemorySize",
]

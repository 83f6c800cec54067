"""PyFlink's `datastream.slot_sharing_group`: re-exports."""

from headrace.api.memory_size import MemorySize
from headrace.api.slot_sharing_group import SlotSharingGroup

__all__ = [
    "MemorySize",
    "SlotSharingGroup",
]

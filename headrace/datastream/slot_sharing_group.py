"""PyFlink's `datastream.slot_sharing_group`: re-exports."""

from headrace.api.jvm_settings import SlotSharingGroup
from headrace.api.memory_size import MemorySize

__all__ = [
    "MemorySize",
    "SlotSharingGroup",
]

"""PyFlink's `datastream.slot_sharing_group`: re-exports."""

from headrace.api.settings.slot_sharing_group import MemorySize, SlotSharingGroup

__all__ = [
    "MemorySize",
    "SlotSharingGroup",
]

"""GroupSlots: which slot each execution slot sharing group has. Pure over the pool.

A group that still has its slot keeps it when subtasks of it restart: others may be running there.
Source: Flink SlotSharingExecutionSlotAllocator.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.cluster.job_master.slot_pool import PhysicalSlot, SlotPool
from headrace.cluster.job_master.slot_sharing import ExecutionSlotSharingGroup
from headrace.core.ids import ExecutionVertexId
from headrace.gateways.messages import ResourceProfile


class GroupSlots:
    """The groups of one job, whose slots come from `pool`."""

    def __init__(self, groups: Sequence[ExecutionSlotSharingGroup], pool: SlotPool) -> None:
        self._groups: Final = groups
        self._pool: Final = pool
        self._slots: list[PhysicalSlot | None] = [None] * len(groups)

    @property
    def profiles(self) -> list[ResourceProfile]:
        """What all groups need: any slot, until slot sharing groups can declare a profile."""
        return [ResourceProfile() for _ in self._groups]

    def reserve(
        self, scope: frozenset[ExecutionVertexId]
    ) -> Mapping[ExecutionVertexId, PhysicalSlot] | None:
        """Give every subtask of `scope` its slot; None, and nothing reserved, where one is missing."""
        needed = [
            number
            for number, group in enumerate(self._groups)
            if not scope.isdisjoint(group.execution_vertices)
        ]
        missing = [number for number in needed if not self._holds(number)]
        reserved = self._pool.reserve([ResourceProfile() for _ in missing])
        if reserved is None:
            return None
        for number, slot in zip(missing, reserved, strict=True):
            self._slots[number] = slot
        return {
            subtask: slot
            for number in needed
            if (slot := self._slots[number]) is not None
            for subtask in scope.intersection(self._groups[number].execution_vertices)
        }

    def _holds(self, number: int) -> bool:
        slot = self._slots[number]
        return slot is not None and self._pool.holds(slot.allocation_id)

"""Slot sharing: groups the subtasks that share a slot, and assigns a slot to each group. Pure.

A slot holds at most one subtask of each vertex; the graph gives the number of slots of each slot sharing group. A group
of subtasks keeps its slot when some of them restart: others may be running there.
Source: Flink LocalInputPreferredSlotSharingStrategy, SlotSharingExecutionSlotAllocator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.cluster.job_master.slots.slot_pool import PhysicalSlot, SlotPool
from headrace.core.ids import ExecutionVertexId, JobVertexId
from headrace.core.resource_profile import UNSPECIFIED, ResourceProfile
from headrace.graph.execution_graph import ExecutionGraph


@dataclass(frozen=True)
class ExecutionSlotSharingGroup:
    """Subtasks that share one slot, which has the resources of `profile`."""

    slot_sharing_group: str
    execution_vertices: tuple[ExecutionVertexId, ...]
    profile: ResourceProfile = UNSPECIFIED


def share_slots(graph: ExecutionGraph) -> tuple[ExecutionSlotSharingGroup, ...]:
    """Assign every subtask to a slot, if possible to that of one of its producers.

    Vertices are processed in topological order, so producers are assigned before their consumers.
    """
    members: dict[tuple[str, int], list[ExecutionVertexId]] = {}
    slot_of: dict[ExecutionVertexId, tuple[str, int]] = {}
    for vertex in graph.job_graph.vertices:
        group = vertex.slot_sharing_group
        taken: set[tuple[str, int]] = set()
        for subtask_index in range(vertex.parallelism):
            subtask = ExecutionVertexId(vertex.vertex_id, subtask_index)
            slot = _beside_producer(graph, vertex.vertex_id, subtask_index, slot_of, taken, group)
            if slot is None:
                slot = _first_without(group, graph.slots_by_group[group], taken)
            taken.add(slot)
            slot_of[subtask] = slot
            members.setdefault(slot, []).append(subtask)
    return tuple(
        ExecutionSlotSharingGroup(group, tuple(subtasks), graph.job_graph.profile_of(group))
        for (group, _), subtasks in members.items()
    )


def _beside_producer(
    graph: ExecutionGraph,
    vertex_id: JobVertexId,
    subtask_index: int,
    slot_of: dict[ExecutionVertexId, tuple[str, int]],
    taken: set[tuple[str, int]],
    group: str,
) -> tuple[str, int] | None:
    """Return the slot of a producer, preferably of equal index, if it is in the same group and lacks this vertex."""
    for edge in graph.edges_into(vertex_id):
        producers = edge.producers_of(subtask_index)
        for index in sorted(producers, key=lambda index: index != subtask_index):
            slot = slot_of.get(ExecutionVertexId(edge.job_edge.source_vertex_id, index))
            if slot is not None and slot[0] == group and slot not in taken:
                return slot
    return None


def _first_without(group: str, slot_count: int, taken: set[tuple[str, int]]) -> tuple[str, int]:
    return next((group, number) for number in range(slot_count) if (group, number) not in taken)


class GroupSlots:
    """Execution slot sharing groups of one job, whose slots come from `pool`."""

    def __init__(self, groups: Sequence[ExecutionSlotSharingGroup], pool: SlotPool) -> None:
        self._groups: Final = groups
        self._pool: Final = pool
        self._slots: list[PhysicalSlot | None] = [None] * len(groups)

    @property
    def profiles(self) -> list[ResourceProfile]:
        """Return the profile that each group needs."""
        return [group.profile for group in self._groups]

    def reserve(
        self, scope: frozenset[ExecutionVertexId]
    ) -> Mapping[ExecutionVertexId, PhysicalSlot] | None:
        """Give every subtask of `scope` its slot; return None, and reserve nothing, if one is missing."""
        needed = [
            number
            for number, group in enumerate(self._groups)
            if not scope.isdisjoint(group.execution_vertices)
        ]
        missing = [number for number in needed if not self._holds(number)]
        reserved = self._pool.reserve([self._groups[number].profile for number in missing])
        if reserved is None:
            return None
        places = self._pool.local_state.arrange(
            [self._groups[number].execution_vertices for number in missing],
            reserved,
            [self._slots[number] for number in missing],
        )
        for number, place in zip(missing, places, strict=True):
            self._slots[number] = reserved[place]
        return {
            subtask: slot
            for number in needed
            if (slot := self._slots[number]) is not None
            for subtask in scope.intersection(self._groups[number].execution_vertices)
        }

    def _holds(self, number: int) -> bool:
        slot = self._slots[number]
        return slot is not None and self._pool.holds(slot.allocation_id)

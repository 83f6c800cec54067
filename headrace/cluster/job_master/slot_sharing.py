"""Which subtasks run together in one slot. Pure. Source: Flink LocalInputPreferredSlotSharingStrategy.

At most one subtask of each vertex per slot; slots needed = sum over slot sharing groups of the largest parallelism.
"""

from dataclasses import dataclass

from headrace.core.ids import ExecutionVertexId, JobVertexId
from headrace.graph.job_graph import JobGraph


@dataclass(frozen=True)
class ExecutionSlotSharingGroup:
    """Subtasks that share one slot."""

    slot_sharing_group: str
    execution_vertices: tuple[ExecutionVertexId, ...]


def share_slots(graph: JobGraph) -> tuple[ExecutionSlotSharingGroup, ...]:
    """Assign every subtask to a slot, beside one of its producers where that is possible.

    Vertices come in topological order, so producers are assigned before their consumers.
    """
    members: dict[tuple[str, int], list[ExecutionVertexId]] = {}
    slot_of: dict[ExecutionVertexId, tuple[str, int]] = {}
    slot_counts: dict[str, int] = {}
    for vertex in graph.vertices:
        group = vertex.slot_sharing_group
        taken: set[tuple[str, int]] = set()
        for subtask_index in range(vertex.parallelism):
            subtask = ExecutionVertexId(vertex.vertex_id, subtask_index)
            slot = _beside_producer(graph, vertex.vertex_id, subtask_index, slot_of, taken, group)
            if slot is None:
                slot = _first_without(group, slot_counts.get(group, 0), taken)
            if slot[1] >= slot_counts.get(group, 0):
                slot_counts[group] = slot[1] + 1
            taken.add(slot)
            slot_of[subtask] = slot
            members.setdefault(slot, []).append(subtask)
    return tuple(
        ExecutionSlotSharingGroup(group, tuple(subtasks))
        for (group, _), subtasks in members.items()
    )


def _beside_producer(
    graph: JobGraph,
    vertex_id: JobVertexId,
    subtask_index: int,
    slot_of: dict[ExecutionVertexId, tuple[str, int]],
    taken: set[tuple[str, int]],
    group: str,
) -> tuple[str, int] | None:
    """The slot of the producer with the same index, if its slot is of the same group and lacks this vertex.

    Where producers are fewer than consumers, or the edge is all-to-all, an equal index is as near as any.
    """
    for edge in graph.edges_into(vertex_id):
        slot = slot_of.get(ExecutionVertexId(edge.source_vertex_id, subtask_index))
        if slot is not None and slot[0] == group and slot not in taken:
            return slot
    return None


def _first_without(group: str, slot_count: int, taken: set[tuple[str, int]]) -> tuple[str, int]:
    for number in range(slot_count):
        if (group, number) not in taken:
            return group, number
    return group, slot_count

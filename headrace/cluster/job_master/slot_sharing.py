"""Which subtasks run together in one slot. Pure. Source: Flink LocalInputPreferredSlotSharingStrategy.

At most one subtask of each vertex per slot; how many slots each group needs is the graph's own answer.
"""

from dataclasses import dataclass

from headrace.core.ids import ExecutionVertexId, JobVertexId
from headrace.graph.execution_graph import ExecutionGraph


@dataclass(frozen=True)
class ExecutionSlotSharingGroup:
    """Subtasks that share one slot."""

    slot_sharing_group: str
    execution_vertices: tuple[ExecutionVertexId, ...]


def share_slots(graph: ExecutionGraph) -> tuple[ExecutionSlotSharingGroup, ...]:
    """Assign every subtask to a slot, beside one of its producers where that is possible.

    Vertices come in topological order, so producers are assigned before their consumers.
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
        ExecutionSlotSharingGroup(group, tuple(subtasks))
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
    """The slot of a producer, the one of equal index first, if it is of the same group and lacks this vertex."""
    for edge in graph.edges_into(vertex_id):
        producers = edge.producers_of(subtask_index)
        for index in sorted(producers, key=lambda index: index != subtask_index):
            slot = slot_of.get(ExecutionVertexId(edge.job_edge.source_vertex_id, index))
            if slot is not None and slot[0] == group and slot not in taken:
                return slot
    return None


def _first_without(group: str, slot_count: int, taken: set[tuple[str, int]]) -> tuple[str, int]:
    return next((group, number) for number in range(slot_count) if (group, number) not in taken)

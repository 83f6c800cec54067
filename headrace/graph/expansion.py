"""Expansion: JobGraph -> ExecutionGraph, with the pipelined regions in which subtasks start and fail together.

Source: Flink DefaultExecutionGraph.attachJobGraph, SchedulingPipelinedRegionComputeUtil.
"""

from headrace.core.ids import ExecutionVertexId
from headrace.graph.execution_graph import (
    DistributionPattern,
    ExecutionEdge,
    ExecutionGraph,
    PipelinedRegion,
)
from headrace.graph.job_graph import JobGraph


def expand(job_graph: JobGraph) -> ExecutionGraph:
    """Make the graph of all subtasks."""
    parallelism = {vertex.vertex_id: vertex.parallelism for vertex in job_graph.vertices}
    edges = tuple(
        ExecutionEdge(edge, parallelism[edge.source_vertex_id], parallelism[edge.target_vertex_id])
        for edge in job_graph.edges
    )
    return ExecutionGraph(job_graph, edges, _pipelined_regions(job_graph, edges))


def _pipelined_regions(
    job_graph: JobGraph, edges: tuple[ExecutionEdge, ...]
) -> tuple[PipelinedRegion, ...]:
    """Join subtasks that exchange records without storing them; regions and members in topological order."""
    vertices = [
        ExecutionVertexId(vertex.vertex_id, index)
        for vertex in job_graph.vertices
        for index in range(vertex.parallelism)
    ]
    sets = _DisjointSets(vertices)
    for edge in edges:
        if edge.job_edge.result_type.traits.joins_regions:
            _join_along(edge, sets)
    regions: dict[ExecutionVertexId, list[ExecutionVertexId]] = {}
    for vertex in vertices:
        regions.setdefault(sets.find(vertex), []).append(vertex)
    return tuple(PipelinedRegion(tuple(members)) for members in regions.values())


def _join_along(edge: ExecutionEdge, sets: "_DisjointSets") -> None:
    source, target = edge.job_edge.source_vertex_id, edge.job_edge.target_vertex_id
    if edge.pattern is DistributionPattern.ALL_TO_ALL:
        # All of them through one: producers + consumers joins instead of their product.
        hub = ExecutionVertexId(source, 0)
        for index in range(edge.producer_count):
            sets.join(hub, ExecutionVertexId(source, index))
        for index in range(edge.consumer_count):
            sets.join(hub, ExecutionVertexId(target, index))
        return
    for consumer in range(edge.consumer_count):
        for producer in edge.producers_of(consumer):
            sets.join(ExecutionVertexId(source, producer), ExecutionVertexId(target, consumer))


class _DisjointSets:
    """Union-find with path halving."""

    def __init__(self, members: list[ExecutionVertexId]) -> None:
        self._parent = {member: member for member in members}

    def find(self, member: ExecutionVertexId) -> ExecutionVertexId:
        parent = self._parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def join(self, one: ExecutionVertexId, other: ExecutionVertexId) -> None:
        self._parent[self.find(other)] = self.find(one)

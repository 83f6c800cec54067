"""ExecutionGraph: every subtask, partition and edge of a job, frozen; `expand` makes it from a JobGraph.

The mapping of subpartitions to subtasks is a formula over two parallelisms, so nothing of the size producers x
consumers is stored: an edge computes it for one subtask at a time. Subtasks of one pipelined region start and fail
together.
Source: Flink ExecutionGraph, EdgeManagerBuildUtil, SchedulingPipelinedRegionComputeUtil.
"""

import enum
from dataclasses import dataclass
from functools import cached_property

from headrace.core.ids import ExecutionVertexId, JobVertexId
from headrace.graph.job_graph import JobEdge, JobGraph, JobVertex


class DistributionPattern(enum.Enum):
    """Reach of a producer's partition: all consumers, or some of them."""

    ALL_TO_ALL = "ALL_TO_ALL"
    POINTWISE = "POINTWISE"


@dataclass(frozen=True)
class SubpartitionIndex:
    """One subpartition of one producer along an edge, read by one input channel."""

    partition_number: int
    subpartition_index: int


@dataclass(frozen=True)
class ExecutionEdge:
    """A JobEdge between `producer_count` and `consumer_count` subtasks.

    Partition p is written by producer subtask p. Every subpartition is read by exactly one consumer.
    """

    job_edge: JobEdge
    producer_count: int
    consumer_count: int

    @property
    def pattern(self) -> DistributionPattern:
        """Return the pattern: pointwise if the partitioner is."""
        if self.job_edge.partitioner.kind.is_pointwise:
            return DistributionPattern.POINTWISE
        return DistributionPattern.ALL_TO_ALL

    def consumers_of(self, partition_number: int) -> range:
        """Return the consumer subtasks of one partition; subpartition i is read by the i-th of them."""
        producers, consumers = self.producer_count, self.consumer_count
        assert 0 <= partition_number < producers
        if self.pattern is DistributionPattern.ALL_TO_ALL:
            return range(consumers)
        if producers >= consumers:
            # The consumer whose span of producers holds this one.
            consumer = ((partition_number + 1) * consumers - 1) // producers
            return range(consumer, consumer + 1)
        return range(
            _ceil_div(partition_number * consumers, producers),
            _ceil_div((partition_number + 1) * consumers, producers),
        )

    def subpartition_count(self, partition_number: int) -> int:
        """Return the number of subpartitions that the producer of a partition writes."""
        return len(self.consumers_of(partition_number))

    def producers_of(self, consumer_index: int) -> range:
        """Return the partitions that one consumer subtask reads."""
        producers, consumers = self.producer_count, self.consumer_count
        assert 0 <= consumer_index < consumers
        if self.pattern is DistributionPattern.ALL_TO_ALL:
            return range(producers)
        if producers >= consumers:
            return range(
                consumer_index * producers // consumers,
                (consumer_index + 1) * producers // consumers,
            )
        partition = consumer_index * producers // consumers
        return range(partition, partition + 1)

    def inputs_of(self, consumer_index: int) -> tuple[SubpartitionIndex, ...]:
        """Return the subpartitions that one consumer subtask reads, one per input channel, by partition number."""
        return tuple(
            SubpartitionIndex(partition, consumer_index - self.consumers_of(partition).start)
            for partition in self.producers_of(consumer_index)
        )


@dataclass(frozen=True)
class ExecutionVertex:
    """One subtask of a job vertex."""

    vertex_id: ExecutionVertexId
    job_vertex: JobVertex

    @property
    def subtask_index(self) -> int:
        """Return the index of the subtask, from 0."""
        return self.vertex_id.subtask_index


@dataclass(frozen=True)
class PipelinedRegion:
    """Subtasks that must run together, because records pass between them without being stored."""

    vertices: tuple[ExecutionVertexId, ...]


@dataclass(frozen=True)
class ExecutionGraph:
    """A job graph with all its subtasks: vertices in topological order, subtasks by index.

    `slots_by_group` returns the number of slots that each slot sharing group needs: the largest parallelism in it.
    """

    job_graph: JobGraph
    edges: tuple[ExecutionEdge, ...]
    regions: tuple[PipelinedRegion, ...]

    def vertex(self, vertex_id: ExecutionVertexId) -> ExecutionVertex:
        """Return one subtask; KeyError if its vertex is unknown, AssertionError if its index is out of range."""
        job_vertex = self._job_vertices[vertex_id.vertex_id]
        assert 0 <= vertex_id.subtask_index < job_vertex.parallelism
        return ExecutionVertex(vertex_id, job_vertex)

    def edges_into(self, vertex_id: JobVertexId) -> tuple[ExecutionEdge, ...]:
        """Return the edges that a vertex consumes, by input number: one input gate each."""
        return self._edges_by_target.get(vertex_id, ())

    def edges_out_of(self, vertex_id: JobVertexId) -> tuple[ExecutionEdge, ...]:
        """Return the edges that a vertex produces: one result partition each."""
        return self._edges_by_source.get(vertex_id, ())

    @cached_property
    def slots_by_group(self) -> dict[str, int]:
        """Return the number of slots that each slot sharing group needs."""
        return slots_by_group(self.job_graph)

    @property
    def slots_needed(self) -> int:
        """Return the number of slots that the whole job needs."""
        return sum(self.slots_by_group.values())

    @cached_property
    def _job_vertices(self) -> dict[JobVertexId, JobVertex]:
        return {vertex.vertex_id: vertex for vertex in self.job_graph.vertices}

    @cached_property
    def _edges_by_target(self) -> dict[JobVertexId, tuple[ExecutionEdge, ...]]:
        found: dict[JobVertexId, list[ExecutionEdge]] = {}
        for edge in self.edges:
            found.setdefault(edge.job_edge.target_vertex_id, []).append(edge)
        return {
            target: tuple(sorted(edges, key=lambda edge: edge.job_edge.input_number))
            for target, edges in found.items()
        }

    @cached_property
    def _edges_by_source(self) -> dict[JobVertexId, tuple[ExecutionEdge, ...]]:
        found: dict[JobVertexId, list[ExecutionEdge]] = {}
        for edge in self.edges:
            found.setdefault(edge.job_edge.source_vertex_id, []).append(edge)
        return {source: tuple(edges) for source, edges in found.items()}

    def __str__(self) -> str:
        graph = self.job_graph
        lines = [
            f"ExecutionGraph of '{graph.name}' ({graph.job_id}): "
            f"{sum(vertex.parallelism for vertex in graph.vertices)} subtasks, "
            f"{self.slots_needed} slots, {len(self.regions)} pipelined regions"
        ]
        for vertex in graph.vertices:
            lines.append(f"  {vertex.name} x {vertex.parallelism}  [{vertex.vertex_id}]")
            for edge in self.edges_into(vertex.vertex_id):
                producer = self._job_vertices[edge.job_edge.source_vertex_id]
                lines.append(
                    f"      input {edge.job_edge.input_number} <- {producer.name} x {edge.producer_count}, "
                    f"{edge.job_edge.partitioner.kind.value} {edge.pattern.value}"
                )
        return "\n".join(lines)


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def slots_by_group(job_graph: JobGraph) -> dict[str, int]:
    """Return the number of slots that each slot sharing group of a job needs: its vertices share them."""
    slots: dict[str, int] = {}
    for vertex in job_graph.vertices:
        group = vertex.slot_sharing_group
        slots[group] = max(slots.get(group, 0), vertex.parallelism)
    return slots


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

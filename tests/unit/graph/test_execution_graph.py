import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.ids import ExecutionVertexId
from headrace.graph.execution_graph import (
    DistributionPattern,
    ExecutionEdge,
    ExecutionGraph,
    SubpartitionIndex,
    expand,
)
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import StreamGraph
from tests.unit.graph.graphs import edge, graph, job, line, node, source, stream_graphs

RESCALE, HASH = PartitionerKind.RESCALE, PartitionerKind.HASH


def wired(kind: PartitionerKind, producers: int, consumers: int) -> ExecutionEdge:
    nodes = [source(1, parallelism=producers), node(2, parallelism=consumers)]
    return expand(job(graph(nodes, [edge(1, 2, kind)]))).edges[0]


def test_all_to_all_reads_its_own_subpartition_of_every_partition() -> None:
    one = wired(HASH, 3, 2)
    assert one.pattern is DistributionPattern.ALL_TO_ALL
    assert one.inputs_of(1) == tuple(SubpartitionIndex(partition, 1) for partition in range(3))
    assert one.subpartition_count(0) == 2


def test_pointwise_with_more_producers_shares_them_out() -> None:
    one = wired(RESCALE, 5, 2)
    assert [one.producers_of(consumer) for consumer in range(2)] == [range(0, 2), range(2, 5)]
    assert [one.subpartition_count(partition) for partition in range(5)] == [1] * 5


def test_pointwise_with_more_consumers_splits_partitions() -> None:
    one = wired(RESCALE, 2, 5)
    assert [one.consumers_of(partition) for partition in range(2)] == [range(0, 3), range(3, 5)]
    assert one.inputs_of(4) == (SubpartitionIndex(1, 1),)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([RESCALE, HASH]))
def test_every_subpartition_is_read_by_exactly_one_consumer(
    producers: int, consumers: int, kind: PartitionerKind
) -> None:
    one = wired(kind, producers, consumers)
    read = [index for consumer in range(consumers) for index in one.inputs_of(consumer)]
    written = [
        SubpartitionIndex(partition, subpartition)
        for partition in range(producers)
        for subpartition in range(one.subpartition_count(partition))
    ]
    assert sorted(read, key=str) == sorted(written, key=str)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([RESCALE, HASH]))
def test_the_two_ends_of_an_edge_agree(
    producers: int, consumers: int, kind: PartitionerKind
) -> None:
    one = wired(kind, producers, consumers)
    for consumer in range(consumers):
        assert len(one.producers_of(consumer)) >= 1
        for partition in range(producers):
            reads = partition in one.producers_of(consumer)
            assert reads is (consumer in one.consumers_of(partition))


@given(st.integers(1, 40), st.integers(1, 40))
def test_pointwise_wiring_is_balanced(producers: int, consumers: int) -> None:
    one = wired(RESCALE, producers, consumers)
    gates = [len(one.inputs_of(consumer)) for consumer in range(consumers)]
    fans = [one.subpartition_count(partition) for partition in range(producers)]
    assert max(gates) - min(gates) <= 1
    assert max(fans) - min(fans) <= 1


def test_a_forward_only_job_has_one_region_per_parallel_slice() -> None:
    made = expand(job(graph([source(1), node(2, slot_sharing_group="b")], [edge(1, 2)])))
    assert [[one.subtask_index for one in region.vertices] for region in made.regions] == [
        [0, 0],
        [1, 1],
    ]


def test_one_exchange_makes_the_whole_job_one_region() -> None:
    made = expand(job(graph([source(1), node(2)], [edge(1, 2, HASH)])))
    assert len(made.regions) == 1
    assert len(made.regions[0].vertices) == 4


def test_unconnected_branches_are_regions_of_their_own() -> None:
    made = expand(
        job(graph([source(1), node(2), source(3), node(4)], [edge(1, 2, HASH), edge(3, 4, HASH)]))
    )
    assert len(made.regions) == 2


def test_slots_are_the_largest_parallelism_of_each_group() -> None:
    made = expand(
        job(
            graph(
                [
                    source(1, parallelism=3),
                    node(2, parallelism=5),
                    node(3, parallelism=4, slot_sharing_group="b"),
                ],
                [edge(1, 2, HASH), edge(2, 3, HASH)],
            )
        )
    )
    assert made.slots_by_group == {"default": 5, "b": 4}
    assert made.slots_needed == 9


def test_subtasks_are_found_by_id() -> None:
    made = expand(job(line(2)))
    (vertex,) = made.job_graph.vertices
    one = made.vertex(ExecutionVertexId(vertex.vertex_id, 1))
    assert (one.job_vertex, one.subtask_index) == (vertex, 1)
    with pytest.raises(AssertionError):
        made.vertex(ExecutionVertexId(vertex.vertex_id, 2))


def test_it_prints_vertices_edges_and_numbers() -> None:
    text = str(expand(job(graph([source(1), node(2)], [edge(1, 2, HASH)]))))
    assert "4 subtasks, 2 slots, 1 pipelined regions" in text
    assert "input 0 <- Source: n1 x 2, HASH ALL_TO_ALL" in text


@given(stream_graphs())
def test_regions_tile_the_subtasks_and_hold_whole_pointwise_neighbourhoods(
    stream_graph: StreamGraph,
) -> None:
    made: ExecutionGraph = expand(job(stream_graph))
    region_of = {vertex: region for region in made.regions for vertex in region.vertices}
    assert sum(len(region.vertices) for region in made.regions) == len(region_of)
    assert region_of.keys() == {
        ExecutionVertexId(vertex.vertex_id, index)
        for vertex in made.job_graph.vertices
        for index in range(vertex.parallelism)
    }
    for one in made.edges:
        for consumer in range(one.consumer_count):
            target = ExecutionVertexId(one.job_edge.target_vertex_id, consumer)
            for partition in one.producers_of(consumer):
                producer = ExecutionVertexId(one.job_edge.source_vertex_id, partition)
                assert region_of[producer] is region_of[target]

"""Subtasks that restart: the closure of the rule, against a slow and obvious version of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.failover.failover_strategies import (
    FAILOVER_STRATEGY,
    RestartAll,
    RestartPipelinedRegions,
    create_failover_strategy,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import ExecutionVertexId
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.graph.execution_graph import ExecutionEdge, ExecutionGraph, expand
from headrace.graph.job_graph import JobEdge, PartitionerKind
from tests.unit.cluster.cluster_samples import edge, job_graph, vertex, vertex_id

KINDS = [
    ResultPartitionType.PIPELINED_BOUNDED,
    ResultPartitionType.PIPELINED_APPROXIMATE,
    ResultPartitionType.BLOCKING,
    ResultPartitionType.HYBRID_FULL,
    ResultPartitionType.HYBRID_SELECTIVE,
]


def subtask(vertex_number: int, index: int) -> ExecutionVertexId:
    return ExecutionVertexId(vertex_id(vertex_number), index)


def brute_force(
    graph: ExecutionGraph, failed: ExecutionVertexId, lost: set[tuple[JobEdge, int]]
) -> frozenset[ExecutionVertexId]:
    """Apply every sentence of the rule to every subtask until nothing is new."""
    chosen = {failed}
    while True:
        found = set(chosen)
        for region in graph.regions:
            if not found.isdisjoint(region.vertices):
                found |= set(region.vertices)
        for each in graph.edges:
            for index in range(each.consumer_count):
                consumer = ExecutionVertexId(each.job_edge.target_vertex_id, index)
                for number in each.producers_of(index):
                    producer = ExecutionVertexId(each.job_edge.source_vertex_id, number)
                    if producer in chosen:
                        found.add(consumer)
                    if consumer in chosen and _must_be_written_again(each, number, lost):
                        found.add(producer)
        if found == chosen:
            return frozenset(chosen)
        chosen = found


def _must_be_written_again(
    each: ExecutionEdge, number: int, lost: set[tuple[JobEdge, int]]
) -> bool:
    kind = each.job_edge.result_type
    if kind is ResultPartitionType.PIPELINED_APPROXIMATE:
        return False
    return not kind.traits.is_reconsumable or (each.job_edge, number) in lost


@st.composite
def graphs(draw: st.DrawFn) -> ExecutionGraph:
    count = draw(st.integers(2, 5))
    vertices = tuple(vertex(number, draw(st.integers(1, 3))) for number in range(1, count + 1))
    edges = tuple(
        edge(
            source,
            target,
            draw(st.sampled_from([PartitionerKind.HASH, PartitionerKind.RESCALE])),
            draw(st.sampled_from(KINDS)),
        )
        for target in range(2, count + 1)
        for source in range(1, target)
        if draw(st.booleans())
    )
    return expand(job_graph(vertices, edges))


@given(graph=graphs(), data=st.data())
def test_what_restarts_is_the_closure_of_the_rule(
    graph: ExecutionGraph, data: st.DataObject
) -> None:
    subtasks = [each for region in graph.regions for each in region.vertices]
    failed = data.draw(st.sampled_from(subtasks))
    partitions = [(e.job_edge, n) for e in graph.edges for n in range(e.producer_count)]
    lost: set[tuple[JobEdge, int]] = set()
    if partitions:
        drawn = data.draw(st.lists(st.integers(0, len(partitions) - 1), max_size=6))
        lost = {partitions[number] for number in drawn}
    chosen = RestartPipelinedRegions(graph).subtasks_to_restart(
        [failed], lambda each, number: (each.job_edge, number) not in lost
    )
    assert chosen == brute_force(graph, failed, lost)


def test_pipelined_exchanges_that_connect_all_with_all_make_one_region() -> None:
    graph = expand(job_graph((vertex(1, 2), vertex(2, 3)), (edge(1, 2),)))
    chosen = RestartPipelinedRegions(graph).subtasks_to_restart([subtask(2, 2)], lambda *_: True)
    assert len(chosen) == 5


def test_the_consumer_of_a_lost_host_goes_on_where_losses_are_allowed() -> None:
    approximate = ResultPartitionType.PIPELINED_APPROXIMATE
    graph = expand(job_graph((vertex(1, 1), vertex(2, 1)), (edge(1, 2, result_type=approximate),)))
    strategy = RestartPipelinedRegions(graph)
    assert strategy.subtasks_to_restart([subtask(2, 0)], lambda *_: False) == {subtask(2, 0)}


def test_the_strategy_is_chosen_by_its_name() -> None:
    graph = expand(job_graph((vertex(1, 2),)))
    assert isinstance(create_failover_strategy(Settings(), graph), RestartPipelinedRegions)
    full = create_failover_strategy(Settings({FAILOVER_STRATEGY.key: "full"}), graph)
    assert isinstance(full, RestartAll)
    assert len(full.subtasks_to_restart([subtask(1, 0)], lambda *_: True)) == 2
    with pytest.raises(ConfigurationError, match="it must be one of region, full"):
        create_failover_strategy(Settings({FAILOVER_STRATEGY.key: "some"}), graph)

"""On which edges barriers may overtake records: those whose records could be dealt anew among other subtasks."""

import pytest

from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import ChainingStrategy
from tests.unit.graph.graphs import edge, graph, job, node, source

OVERTAKING = {
    PartitionerKind.HASH,
    PartitionerKind.REBALANCE,
    PartitionerKind.SHUFFLE,
    PartitionerKind.GLOBAL,
}


@pytest.mark.parametrize(
    "kind", [kind for kind in PartitionerKind if kind is not PartitionerKind.CUSTOM]
)
def test_an_edge_lets_barriers_overtake_where_nothing_is_lost_by_it(kind: PartitionerKind) -> None:
    target = node(2, chaining=ChainingStrategy.NEVER)
    stream_graph = graph([source(1), target], [edge(1, 2, kind)])
    (found,) = job(stream_graph).edges
    assert found.supports_unaligned == (kind in OVERTAKING)


def test_one_edge_that_does_not_keeps_the_others_of_its_consumer_from_it_too() -> None:
    nodes = [source(1), source(2), node(3, parallelism=3), node(4, parallelism=2)]
    edges = [
        edge(1, 3, PartitionerKind.REBALANCE),
        edge(2, 3, PartitionerKind.BROADCAST),
        edge(3, 4, PartitionerKind.REBALANCE),
    ]
    found = [
        (one.partitioner.kind, one.supports_unaligned) for one in job(graph(nodes, edges)).edges
    ]
    assert sorted(found, key=str) == [
        (PartitionerKind.BROADCAST, False),
        (PartitionerKind.REBALANCE, False),
        (PartitionerKind.REBALANCE, True),
    ]


def test_a_partitioner_of_the_users_is_not_at_the_receivers_to_deal_records_anew() -> None:
    assert not PartitionerKind.CUSTOM.lets_barriers_overtake

import pytest
from hypothesis import given

from headrace.graph.chaining import (
    ChainBreak,
    ChainingRules,
    build_chains,
    chain_breaks,
    explain_break,
    is_chainable,
)
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import ChainingStrategy, StreamGraph
from tests.unit.graph.graphs import edge, graph, line, node, source, stream_graphs

RULES = ChainingRules()


def breaks(stream_graph: StreamGraph, rules: ChainingRules = RULES) -> tuple[ChainBreak, ...]:
    return chain_breaks(stream_graph, stream_graph.edges[0], rules)


def test_a_forward_edge_between_equals_is_chained() -> None:
    assert breaks(line(2)) == ()


def test_a_consumer_of_a_union_is_not_chained() -> None:
    union = graph([source(1), source(2), node(3)], [edge(1, 3), edge(2, 3)])
    assert breaks(union) == (ChainBreak.SEVERAL_INPUTS,)


def test_a_two_input_operator_is_not_chained() -> None:
    connected = graph([source(1), source(2), node(3)], [edge(1, 3), edge(2, 3, input_number=1)])
    assert breaks(connected) == (ChainBreak.SEVERAL_INPUTS,)


def test_two_edges_between_the_same_operators_are_not_chained() -> None:
    doubled = graph([source(1), node(2)], [edge(1, 2), edge(1, 2, input_number=1)])
    assert breaks(doubled) == (ChainBreak.SEVERAL_INPUTS, ChainBreak.SEVERAL_EDGES)


def test_nothing_is_chained_when_chaining_is_off() -> None:
    assert breaks(line(2), ChainingRules(is_enabled=False)) == (ChainBreak.CHAINING_DISABLED,)


def test_other_slot_sharing_groups_are_not_chained() -> None:
    apart = graph([source(1), node(2, slot_sharing_group="other")], [edge(1, 2)])
    assert breaks(apart) == (ChainBreak.OTHER_SLOT_SHARING_GROUP,)


def test_other_parallelism_is_not_chained() -> None:
    apart = graph([source(1, parallelism=1), node(2)], [edge(1, 2, PartitionerKind.REBALANCE)])
    assert breaks(apart) == (ChainBreak.OTHER_PARALLELISM, ChainBreak.EXCHANGE)


def test_other_max_parallelism_is_chained_unless_forbidden() -> None:
    apart = graph([source(1, max_parallelism=128), node(2, max_parallelism=256)], [edge(1, 2)])
    assert breaks(apart) == ()
    strict = ChainingRules(allows_different_max_parallelism=False)
    assert breaks(apart, strict) == (ChainBreak.OTHER_MAX_PARALLELISM,)


@pytest.mark.parametrize(
    "kind", [kind for kind in PartitionerKind if kind is not PartitionerKind.FORWARD]
)
def test_only_forward_edges_are_chained(kind: PartitionerKind) -> None:
    assert breaks(graph([source(1), node(2)], [edge(1, 2, kind)])) == (ChainBreak.EXCHANGE,)


@pytest.mark.parametrize(
    ("producer", "consumer", "expected"),
    [
        (ChainingStrategy.ALWAYS, ChainingStrategy.ALWAYS, ()),
        (ChainingStrategy.HEAD, ChainingStrategy.ALWAYS, ()),
        (ChainingStrategy.HEAD_WITH_SOURCES, ChainingStrategy.ALWAYS, ()),
        (ChainingStrategy.NEVER, ChainingStrategy.ALWAYS, (ChainBreak.PRODUCER_NEVER_CHAINS,)),
        (ChainingStrategy.ALWAYS, ChainingStrategy.NEVER, (ChainBreak.CONSUMER_NEVER_CHAINS,)),
        (ChainingStrategy.ALWAYS, ChainingStrategy.HEAD, (ChainBreak.CONSUMER_STARTS_CHAIN,)),
    ],
)
def test_strategies_decide(
    producer: ChainingStrategy, consumer: ChainingStrategy, expected: tuple[ChainBreak, ...]
) -> None:
    nodes = [source(1), node(2, chaining=producer), node(3, chaining=consumer)]
    two = graph(nodes, [edge(1, 2, PartitionerKind.REBALANCE), edge(2, 3)])
    assert chain_breaks(two, two.edges[1], RULES) == expected


def test_a_head_with_sources_joins_sources_only() -> None:
    head = ChainingStrategy.HEAD_WITH_SOURCES
    three = graph(
        [source(1), node(2, chaining=head), node(3, chaining=head)], [edge(1, 2), edge(2, 3)]
    )
    assert [chain_breaks(three, one, RULES) for one in three.edges] == [
        (),
        (ChainBreak.CONSUMER_STARTS_CHAIN,),
    ]


def test_the_reason_names_what_differs() -> None:
    apart = graph(
        [source(1, parallelism=1, slot_sharing_group="a"), node(2)],
        [edge(1, 2, PartitionerKind.REBALANCE)],
    )
    assert explain_break(apart, apart.edges[0], RULES) == (
        "slot sharing groups differ ('a' and 'default'); parallelism differs (1 and 2); "
        "rows are redistributed (REBALANCE)"
    )


@given(stream_graphs())
def test_every_node_is_in_exactly_one_chain_and_chains_hold_chainable_edges_only(
    stream_graph: StreamGraph,
) -> None:
    chains = build_chains(stream_graph, RULES)
    members = [one.node_id for chain in chains for one in chain.nodes]
    assert sorted(members) == [one.node_id for one in stream_graph.nodes]
    inside = {id(one) for chain in chains for one in chain.edges}
    for one in stream_graph.edges:
        assert is_chainable(stream_graph, one, RULES) is (id(one) in inside)
        assert bool(explain_break(stream_graph, one, RULES)) is (id(one) not in inside)

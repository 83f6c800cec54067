import json

from headrace.core.config import Settings
from headrace.graph.execution_plan import explain, plan_json
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import NodeRole
from tests.unit.graph.graphs import NO_SETTINGS, edge, graph, job, node, source

PROGRAM = graph(
    [
        source(1, "numbers", parallelism=1),
        node(2, "m", is_function=True),
        node(3, "Filter", is_function=True),
        node(4, "keyed", is_function=True, description="long text"),
        node(5, "out", role=NodeRole.SINK),
    ],
    [
        edge(1, 2, PartitionerKind.REBALANCE),
        edge(2, 3),
        edge(3, 4, PartitionerKind.HASH),
        edge(4, 5),
    ],
)


def test_the_plan_lists_sources_operators_and_sinks_with_their_inputs() -> None:
    nodes = json.loads(plan_json(PROGRAM, NO_SETTINGS))["nodes"]
    assert [one["type"] for one in nodes] == ["Source: numbers", "m, Filter", "keyed", "Sink: out"]
    assert [one["pact"] for one in nodes] == ["Data Source", "Operator", "Operator", "Data Sink"]
    assert nodes[0] == {
        "id": 1,
        "type": "Source: numbers",
        "pact": "Data Source",
        "contents": "Source: numbers",
        "parallelism": 1,
    }
    assert nodes[2]["predecessors"] == [{"id": 2, "ship_strategy": "HASH", "side": "second"}]
    assert nodes[2]["contents"] == "long text"


def test_python_operators_are_shown_apart_when_asked() -> None:
    settings = Settings({"python.operator-chaining.enabled": "false"})
    nodes = json.loads(plan_json(PROGRAM, settings))["nodes"]
    assert [one["type"] for one in nodes[1:3]] == ["m", "Filter"]


def test_an_operator_with_two_consumers_is_not_merged_with_either() -> None:
    forked = graph(
        [source(1), *(node(number, is_function=True) for number in (2, 3, 4))],
        [edge(1, 2), edge(2, 3), edge(2, 4)],
    )
    assert len(json.loads(plan_json(forked, NO_SETTINGS))["nodes"]) == 4


def test_a_union_adds_no_node_and_consumers_list_all_inputs() -> None:
    union = graph([source(1), source(2), node(3)], [edge(1, 3), edge(2, 3)])
    nodes = json.loads(plan_json(union, NO_SETTINGS))["nodes"]
    assert [one["id"] for one in nodes[2]["predecessors"]] == [1, 2]


def test_the_plan_is_python_too() -> None:
    text = plan_json(PROGRAM, NO_SETTINGS)
    assert eval(text) == json.loads(text)


def test_explain_says_vertices_chains_and_why_edges_broke() -> None:
    text = explain(PROGRAM, NO_SETTINGS)
    assert text.startswith("JobGraph 'job': 3 vertices, 2 edges")
    assert "not chained, parallelism differs (1 and 2); rows are redistributed (REBALANCE)" in text
    assert "     -> Filter" in text


def test_a_stream_graph_prints_its_nodes_and_edges() -> None:
    text = str(PROGRAM)
    assert "StreamGraph 'job': 5 operators" in text
    assert "<- 3 HASH, input 0" in text


def test_a_job_graph_prints_vertices_edges_and_operator_ids() -> None:
    text = str(job(PROGRAM))
    assert text.startswith("JobGraph 'job' (000102030405060708090a0b0c0d0e0f): 3 vertices, 2 edges")
    assert "  m -> Filter x 2 of 128, ONE_INPUT, slot sharing group 'default'" in text
    assert "      input 0 <- m -> Filter, HASH, PIPELINED_BOUNDED" in text
    assert text.count("Filter") >= 3

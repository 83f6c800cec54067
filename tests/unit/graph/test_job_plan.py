"""JobPlan: a job's vertices as people see them, with the tree of operators of each."""

import itertools

import msgspec

from headrace.core.ids import OperatorId
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.graph.job_graph import ChainEdge, ChainedOperator, JobVertex, PartitionerKind
from headrace.graph.job_plan import JobPlan, OperatorNode, PlanInput, describe_chain
from tests.unit.cluster.cluster_samples import JOB, edge, job_graph, vertex, vertex_id


def operator(name: str, uid: str | None = None, description: str = "") -> ChainedOperator:
    operator_id = OperatorId(name[0].encode() * 16)
    return ChainedOperator(operator_id, name, "test", b"", b"", uid, description)


def chain(names: list[str], edges: list[tuple[int, int]]) -> JobVertex:
    operators = tuple(operator(name) for name in names)
    ids = [each.operator_id for each in operators]
    chain_edges = tuple(ChainEdge(ids[source], ids[target]) for source, target in edges)
    return msgspec.structs.replace(vertex(1, 1), operators=operators, chain_edges=chain_edges)


def test_a_chain_is_a_tree_with_one_operator_to_a_line() -> None:
    shown = describe_chain(chain(["Source: numbers", "map", "write"], [(0, 1), (1, 2)]))
    assert shown == "Source: numbers<br/>+- map<br/>   +- write<br/>"


def test_branches_of_a_chain_stand_below_their_operator_in_their_order() -> None:
    shown = describe_chain(chain(["a", "b", "c", "d"], [(0, 1), (0, 3), (1, 2)]))
    assert shown == "a<br/>:- b<br/>:  +- c<br/>+- d<br/>"


def test_names_are_text_and_never_html() -> None:
    shown = describe_chain(chain(["<script>alert('a & b')</script>"], []))
    assert shown == "&lt;script&gt;alert(&#x27;a &amp; b&#x27;)&lt;/script&gt;<br/>"


def test_a_description_that_the_program_gave_takes_the_place_of_the_name() -> None:
    described = msgspec.structs.replace(
        vertex(1, 1), operators=(operator("map", description="adds one"),)
    )
    assert describe_chain(described) == "adds one<br/>"


def test_a_chain_may_be_longer_than_the_stack_is_deep() -> None:
    count = 5_000
    operators = tuple(
        ChainedOperator(OperatorId(number.to_bytes(16, "big")), "x", "test", b"", b"")
        for number in range(count)
    )
    edges = tuple(
        ChainEdge(one.operator_id, other.operator_id)
        for one, other in itertools.pairwise(operators)
    )
    long = msgspec.structs.replace(vertex(1, 1), operators=operators, chain_edges=edges)
    assert describe_chain(long).count("<br/>") == count


def test_nodes_stand_in_topological_order_with_their_inputs() -> None:
    blocking = ResultPartitionType.BLOCKING
    graph = job_graph(
        (vertex(1, 2, group="fast"), vertex(2, 3), vertex(3, 4)),
        (
            edge(1, 2, PartitionerKind.REBALANCE),
            edge(1, 3, PartitionerKind.BROADCAST, blocking),
            edge(2, 3),
        ),
    )
    plan = JobPlan.of(graph)
    assert (plan.job_id, plan.name, plan.job_type) == (JOB, "a job", "STREAMING")
    assert [node.name for node in plan.nodes] == ["vertex 1", "vertex 2", "vertex 3"]
    source, counting, sink = plan.nodes
    assert source.inputs == ()
    assert (source.parallelism, source.max_parallelism) == (2, 128)
    assert source.slot_sharing_group == "fast"
    assert counting.inputs == (PlanInput(vertex_id(1), "REBALANCE", "pipelined_bounded"),)
    assert sink.inputs == (
        PlanInput(vertex_id(1), "BROADCAST", "blocking"),
        PlanInput(vertex_id(2), "HASH", "pipelined_bounded"),
    )


def test_inputs_stand_in_the_order_of_the_operators_inputs() -> None:
    first, second = edge(1, 3), edge(2, 3)
    edges = (msgspec.structs.replace(first, input_number=1), second)
    plan = JobPlan.of(job_graph((vertex(1, 1), vertex(2, 1), vertex(3, 1)), edges))
    assert [each.vertex_id for each in plan.nodes[2].inputs] == [vertex_id(2), vertex_id(1)]


def test_a_node_names_its_operators_by_id_uid_and_name() -> None:
    named = msgspec.structs.replace(
        vertex(1, 1), operators=(operator("map", uid="adder"), operator("write"))
    )
    (node,) = JobPlan.of(job_graph((named,))).nodes
    assert node.operators == (
        OperatorNode(OperatorId(b"m" * 16), "adder", "map"),
        OperatorNode(OperatorId(b"w" * 16), "", "write"),
    )


def test_a_plan_travels_as_a_message() -> None:
    plan = JobPlan.of(job_graph((vertex(1, 1), vertex(2, 1)), (edge(1, 2),)))
    assert msgspec.convert(msgspec.to_builtins(plan), JobPlan) == plan

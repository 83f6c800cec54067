"""Small stream graphs, and a strategy for arbitrary ones, for the tests of this folder."""

from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.operator_spec import OperatorSpec, OperatorTypes
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import Types
from headrace.graph.job_graph import JobGraph, PartitionerKind
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.graph.stream_graph import (
    ChainingStrategy,
    NodeRole,
    Partitioning,
    StreamEdge,
    StreamGraph,
    StreamNode,
)

JOB_ID = JobId(bytes(range(16)))
ANY = BatchType(Types.PICKLED_BYTE_ARRAY())
NO_SETTINGS = Settings()


@dataclass(frozen=True)
class FunctionSpec(OperatorSpec):
    function: Any = None
    kind: ClassVar[str] = "map"
    default_name: ClassVar[str] = "Map"

    def user_functions(self) -> tuple[object, ...]:
        return (self.function,)


def node(node_id: int, name: str | None = None, **changes: Any) -> StreamNode:
    values: dict[str, Any] = {
        "name": name or f"n{node_id}",
        "spec": FunctionSpec(),
        "types": OperatorTypes((ANY,), ANY),
        "parallelism": 2,
    }
    return StreamNode(node_id, **{**values, **changes})


def source(node_id: int, name: str | None = None, **changes: Any) -> StreamNode:
    return node(node_id, name, **{"role": NodeRole.SOURCE, **changes})


def edge(
    source_id: int,
    target_id: int,
    kind: PartitionerKind = PartitionerKind.FORWARD,
    input_number: int = 0,
    **changes: Any,
) -> StreamEdge:
    values: dict[str, Any] = {"buffer_timeout_ms": 100}
    return StreamEdge(
        source_id, target_id, input_number, Partitioning(kind), **{**values, **changes}
    )


def graph(nodes: list[StreamNode], edges: list[StreamEdge]) -> StreamGraph:
    return StreamGraph("job", tuple(nodes), tuple(edges))


def line(count: int = 3, **changes: Any) -> StreamGraph:
    """source -> n2 -> n3 ..., all FORWARD; `changes` hold for every node."""
    nodes = [source(1, **changes), *(node(number, **changes) for number in range(2, count + 1))]
    return graph(nodes, [edge(number, number + 1) for number in range(1, count)])


def job(stream_graph: StreamGraph, settings: Settings = NO_SETTINGS) -> JobGraph:
    return generate_job_graph(stream_graph, JOB_ID, settings)


@st.composite
def stream_graphs(draw: st.DrawFn) -> StreamGraph:
    """Any legal graph: every node but sources reads one to three earlier ones through one or two inputs."""
    count = draw(st.integers(1, 9))
    nodes: list[StreamNode] = []
    edges: list[StreamEdge] = []
    for number in range(1, count + 1):
        is_source = number == 1 or draw(st.integers(0, 4)) == 0
        nodes.append(
            node(
                number,
                draw(st.sampled_from(["a", "b", "c"])),
                role=NodeRole.SOURCE if is_source else NodeRole.OPERATOR,
                parallelism=draw(st.integers(1, 3)),
                max_parallelism=draw(st.sampled_from([None, 128, 256])),
                chaining=draw(st.sampled_from(ChainingStrategy)),
                slot_sharing_group=draw(st.sampled_from(["default", "default", "other"])),
            )
        )
        if is_source:
            continue
        for input_number in range(draw(st.integers(1, 2))):
            for _ in range(draw(st.integers(1, 2))):
                edges.append(_draw_edge(draw, nodes, number, input_number))
    return graph(nodes, edges)


def _draw_edge(
    draw: st.DrawFn, nodes: list[StreamNode], number: int, input_number: int
) -> StreamEdge:
    source_id = draw(st.integers(1, number - 1))
    same = nodes[source_id - 1].parallelism == nodes[number - 1].parallelism
    kinds = [kind for kind in PartitionerKind if same or kind is not PartitionerKind.FORWARD]
    # Forward more often than others, because it is what chains are made of.
    kind = draw(st.sampled_from([*kinds, *([PartitionerKind.FORWARD] * 6 if same else [])]))
    tag = draw(st.sampled_from([None, None, "late"]))
    return edge(source_id, number, kind, input_number, side_output_tag=tag)

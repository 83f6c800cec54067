"""JobPlan: a job's vertices and the edges between them, for people and their browsers.

The description of a vertex is HTML: the tree of its chained operators, one per line, as in Flink's JobGraph.
Source: Flink JsonPlanGenerator, JobPlanInfo, StreamingJobGraphGenerator (VertexDescriptionMode.TREE).
"""

import html
from typing import Final, Self

import msgspec

from headrace.core.config import Settings
from headrace.core.ids import JobId, JobVertexId, OperatorId
from headrace.graph.job_graph import JobEdge, JobGraph, JobVertex
from headrace.graph.pipeline_options import RuntimeExecutionMode, runs_in_batch

_LINE_END: Final = "<br/>"


class PlanInput(msgspec.Struct, frozen=True):
    """An edge into a vertex. `ship_strategy`: how rows are distributed; `exchange`: the type of the result."""

    vertex_id: JobVertexId
    ship_strategy: str
    exchange: str


class OperatorNode(msgspec.Struct, frozen=True):
    """One operator of a vertex. `uid` is empty if the program gave none."""

    operator_id: OperatorId
    uid: str
    name: str


class PlanNode(msgspec.Struct, frozen=True):
    """One vertex. Sources have no `inputs`."""

    vertex_id: JobVertexId
    name: str
    description: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    inputs: tuple[PlanInput, ...]
    operators: tuple[OperatorNode, ...]


class JobPlan(msgspec.Struct, frozen=True):
    """A job; `nodes` in topological order, sources first."""

    job_id: JobId
    name: str
    job_type: str
    nodes: tuple[PlanNode, ...]

    @classmethod
    def of(cls, graph: JobGraph) -> Self:
        """Return the plan of a job."""
        inputs: dict[JobVertexId, list[JobEdge]] = {}
        for edge in graph.edges:
            inputs.setdefault(edge.target_vertex_id, []).append(edge)
        nodes = tuple(_node(each, inputs.get(each.vertex_id, [])) for each in graph.vertices)
        return cls(graph.job_id, graph.name, job_type_of(graph), nodes)


def job_type_of(graph: JobGraph) -> str:
    """Return Flink's name for the mode in which a job runs."""
    mode = RuntimeExecutionMode
    return (mode.BATCH if runs_in_batch(Settings(graph.settings)) else mode.STREAMING).name


def _node(vertex: JobVertex, inputs: list[JobEdge]) -> PlanNode:
    return PlanNode(
        vertex.vertex_id,
        vertex.name,
        describe_chain(vertex),
        vertex.parallelism,
        vertex.max_parallelism,
        vertex.slot_sharing_group,
        tuple(
            PlanInput(
                edge.source_vertex_id, edge.partitioner.kind.value, edge.result_type.value.lower()
            )
            for edge in sorted(inputs, key=lambda each: each.input_number)
        ),
        tuple(
            OperatorNode(each.operator_id, each.uid or "", each.name) for each in vertex.operators
        ),
    )


def describe_chain(vertex: JobVertex) -> str:
    """Return the tree of a vertex's operators as HTML: `Source: numbers<br/>+- Map<br/>`."""
    shown = {each.operator_id: each.description or each.name for each in vertex.operators}
    followers: dict[OperatorId, list[OperatorId]] = {}
    for edge in vertex.chain_edges:
        followers.setdefault(edge.source_id, []).append(edge.target_id)
    lines: list[str] = []
    # Not recursive: a chain may be longer than the interpreter's stack is deep.
    waiting = [(vertex.operators[0].operator_id, "", "")] if vertex.operators else []
    while waiting:
        operator_id, branch, margin = waiting.pop()
        lines.append(f"{branch}{html.escape(shown[operator_id])}{_LINE_END}")
        children = followers.get(operator_id, [])
        for number, child in enumerate(reversed(children)):
            is_last = number == 0
            waiting.append(
                (
                    child,
                    f"{margin}{'+- ' if is_last else ':- '}",
                    f"{margin}{'   ' if is_last else ':  '}",
                )
            )
    return "".join(lines)

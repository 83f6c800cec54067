"""Handler of flame graphs."""

from typing import Annotated, Final, Literal

from fastapi import Query
from pydantic import BeforeValidator

from headrace.core.process import flame_graph as frames
from headrace.core.process.stack_sampler import StackSamples
from headrace.rest.handler_errors import NotFoundError
from headrace.rest.handlers.parameters import (
    ClusterParameter,
    JobParameter,
    SampledGraphs,
    VertexParameter,
)
from headrace.rest.handlers.subtasks import vertex_status
from headrace.rest.models.vertices import VertexFlameGraph, VertexFlameGraphNode

_HAS_ENDED: Final = -1
_IS_OFF: Final = -2
_NO_SAMPLE_YET: Final = -3
GraphType = Literal["FULL", "ON_CPU", "OFF_CPU"]
"""Types of flame graphs; Flink's web UI spells them in lower case."""


async def vertex_flame_graph(
    cluster: ClusterParameter,
    graphs: SampledGraphs,
    job: JobParameter,
    vertex: VertexParameter,
    graph_type: Annotated[GraphType, BeforeValidator(str.upper), Query(alias="type")] = "FULL",
    subtask_index: Annotated[int | None, Query(alias="subtaskindex", ge=0)] = None,
) -> VertexFlameGraph:
    """Show where the threads of a vertex spend their time; the first request starts the sampling."""
    if not graphs.is_enabled:
        return VertexFlameGraph(end_timestamp=_IS_OFF)
    found = await cluster.vertex(job, vertex)
    if subtask_index is not None and subtask_index >= len(found.subtasks):
        raise NotFoundError(f"Invalid subtask index for vertex {vertex.hex()}")
    if vertex_status(found.subtasks).is_terminal:
        return VertexFlameGraph(end_timestamp=_HAS_ENDED)
    samples = graphs.newest((job, vertex, subtask_index))
    if samples is None or not samples.sample_count:
        return VertexFlameGraph(end_timestamp=_NO_SAMPLE_YET)
    return VertexFlameGraph(end_timestamp=samples.end_ms, data=_node(_graph(samples, graph_type)))


def _graph(samples: StackSamples, graph_type: GraphType) -> frames.FlameGraphNode:
    match graph_type:
        case "ON_CPU":
            return samples.on_cpu
        case "OFF_CPU":
            return samples.off_cpu
        case "FULL":
            return samples.full


def _node(node: frames.FlameGraphNode) -> VertexFlameGraphNode:
    return VertexFlameGraphNode(
        name=node.name, value=node.value, children=[_node(child) for child in node.children]
    )

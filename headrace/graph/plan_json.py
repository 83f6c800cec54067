"""The plan as JSON, for people and for Flink's plan view: operators before they are chained into vertices.

The text is also valid Python (no null, true or false), because programs read it with `eval`.
Source: Flink JSONGenerator; PyFlink's chaining of Python operators for the merged nodes.
"""

import json
from typing import Any, Final

from headrace.core.config import ConfigOption, Settings
from headrace.graph.chaining import ChainingRules, is_chainable
from headrace.graph.stream_graph import NodeRole, StreamEdge, StreamGraph, StreamNode

PYTHON_OPERATOR_CHAINING: Final = ConfigOption(
    "python.operator-chaining.enabled",
    bool,
    default=True,
    doc="Whether plans show chained operators around Python functions as one node.",
)


def plan_json(graph: StreamGraph, settings: Settings) -> str:
    """Return `{"nodes": [...]}`: sources, then operators, then sinks, each by ascending id."""
    merged_into = _merge(graph, settings)
    groups: dict[int, list[StreamNode]] = {}
    for node in graph.nodes:
        groups.setdefault(merged_into[node.node_id], []).append(node)
    roles = list(NodeRole)
    ordered = sorted(
        groups.values(), key=lambda nodes: (roles.index(nodes[0].role), nodes[0].node_id)
    )
    return json.dumps({"nodes": [_plan_node(graph, nodes, merged_into) for nodes in ordered]})


def _plan_node(
    graph: StreamGraph, nodes: list[StreamNode], merged_into: dict[int, int]
) -> dict[str, Any]:
    head = nodes[0]
    shown: dict[str, Any] = {
        "id": head.node_id,
        "type": ", ".join(node.display_name for node in nodes),
        "pact": head.role.value,
        "contents": ", ".join(node.description or node.display_name for node in nodes),
        "parallelism": head.parallelism,
    }
    inputs = graph.edges_into(head.node_id)
    if inputs:
        shown["predecessors"] = [
            {
                "id": merged_into[edge.source_id],
                "ship_strategy": edge.partitioning.kind.value,
                "side": "second",
            }
            for edge in inputs
        ]
    return shown


def _merge(graph: StreamGraph, settings: Settings) -> dict[int, int]:
    """Map each node to the first node of the group that is shown as one."""
    rules = ChainingRules.from_settings(settings)
    enabled = settings.get_option(PYTHON_OPERATOR_CHAINING)
    merged_into: dict[int, int] = {}
    for node in graph.topological_order():
        inputs = graph.edges_into(node.node_id)
        merges = enabled and len(inputs) == 1 and _is_merged(graph, inputs[0], rules)
        merged_into[node.node_id] = merged_into[inputs[0].source_id] if merges else node.node_id
    return merged_into


def _is_merged(graph: StreamGraph, edge: StreamEdge, rules: ChainingRules) -> bool:
    source, target = graph.node(edge.source_id), graph.node(edge.target_id)
    return (
        source.is_function
        and target.is_function
        and edge.side_output_tag is None
        and len(graph.edges_out_of(source.node_id)) == 1
        and is_chainable(graph, edge, rules)
    )

"""Execution plans for people: the plain text of `explain`, and the JSON of Flink's plan view.

The text shows vertices with their chains, ids and the reason why each edge is not chained; the JSON shows operators
before they are chained. The JSON is also valid Python (it has no null, true or false), because programs read it with
`eval`.
Source: Flink JSONGenerator; PyFlink's chaining of Python operators for the merged nodes.
"""

import json
from typing import Any

from headrace.core.config import Settings
from headrace.core.ids import OperatorId
from headrace.core.key_groups import default_max_parallelism
from headrace.graph.chaining import Chain, ChainingRules, build_chains, explain_break, is_chainable
from headrace.graph.operator_ids import operator_ids
from headrace.graph.pipeline_options import PYTHON_OPERATOR_CHAINING
from headrace.graph.stream_graph import NodeRole, StreamEdge, StreamGraph, StreamNode


def explain(graph: StreamGraph, settings: Settings) -> str:
    """Return one paragraph per vertex, in topological order."""
    rules = ChainingRules.from_settings(settings)
    chains = build_chains(graph, rules)
    ids = operator_ids(graph)
    number_of = {node.node_id: i for i, chain in enumerate(chains, 1) for node in chain.nodes}
    edge_count = len(graph.edges) - sum(len(chain.edges) for chain in chains)
    lines = [
        f"JobGraph '{graph.job_name}': {_counted(len(chains), 'vertex', 'vertices')}, "
        f"{_counted(edge_count, 'edge', 'edges')}"
    ]
    if graph.assumed_parallelism is not None:
        lines.append(
            f"  parallelism {graph.assumed_parallelism} is assumed for the number of slots, which is not known "
            "before the cluster has started: the job may have another parallelism and other edges. set_parallelism() "
            "or -p fixes it"
        )
    for number, chain in enumerate(chains, 1):
        lines += ["", _vertex_line(number, chain)]
        lines += [
            f"    reads {_edge_line(graph, edge, number_of)}: not chained, "
            + explain_break(graph, edge, rules)
            for edge in graph.edges_into(chain.head.node_id)
        ]
        if chain.head.cached_input is not None:
            lines.append(f"    reads the cached data set {chain.head.cached_input}")
        lines += [_operator_line(node, ids, chain) for node in chain.nodes]
    return "\n".join(lines)


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _vertex_line(number: int, chain: Chain) -> str:
    head = chain.head
    stated = (node.max_parallelism for node in chain.nodes if node.max_parallelism is not None)
    max_parallelism = next(stated, default_max_parallelism(head.parallelism))
    return (
        f"  vertex {number}: parallelism {head.parallelism}, max {max_parallelism}, "
        f"slot sharing group '{head.slot_sharing_group}'"
    )


def _edge_line(graph: StreamGraph, edge: StreamEdge, number_of: dict[int, int]) -> str:
    source = graph.node(edge.source_id)
    side = f"side output '{edge.side_output_tag}' of " if edge.side_output_tag else ""
    timeout = (
        f"buffer timeout {edge.buffer_timeout_ms} ms"
        if edge.buffer_timeout_ms >= 0
        else "full buffers only"
    )
    if edge.is_kept:
        timeout = "stored for later jobs too"
    return (
        f"{side}'{source.display_name}' of vertex {number_of[edge.source_id]} as input {edge.input_number}, "
        f"{edge.partitioning.kind.value}, {timeout}"
    )


def _operator_line(node: StreamNode, ids: dict[int, OperatorId], chain: Chain) -> str:
    inside = next((edge for edge in chain.edges if edge.target_id == node.node_id), None)
    origin = (
        f"uid '{node.uid}'" if node.uid else "given hash" if node.uid_hash else "from structure"
    )
    side = (
        f" <- side output '{inside.side_output_tag}'" if inside and inside.side_output_tag else ""
    )
    arrow = "    " if inside is None else "     -> "
    return f"{arrow}{node.display_name}{side}  [{ids[node.node_id]}, {origin}]"


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
    """Map each node to the first node of the group that is shown as one node."""
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

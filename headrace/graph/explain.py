"""explain: a job in plain text, as vertices with their chains, ids and the reason why each edge is not chained."""

from headrace.core.config import Settings
from headrace.core.ids import OperatorId
from headrace.core.key_groups import default_max_parallelism
from headrace.graph.chaining import ChainingRules, explain_break
from headrace.graph.job_graph_generator import Chain, build_chains
from headrace.graph.operator_ids import operator_ids
from headrace.graph.stream_graph import StreamEdge, StreamGraph, StreamNode


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
            f"  parallelism {graph.assumed_parallelism} stands for the number of slots, which is not known before the "
            "cluster has started: the job may have another one, and other edges. set_parallelism() or -p fixes it"
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

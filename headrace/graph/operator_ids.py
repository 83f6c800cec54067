"""Operator ids: stable across restarts, from the program's structure alone and never from chaining.

An operator with a uid has the id of that uid, whatever surrounds it: the same bytes as in Flink. The others hash
their kind, their name, the ids of their inputs and their ordinal among equals. Where two operators are equal in all
of that, what follows them decides which is the first, and only then the order of the program: so branches that do
not depend on each other may be written in any order. An operator added downstream changes no id upstream of it.
Source: Flink StreamGraphHasherV2, whose ids also depend on chaining and on traversal (FLINK-33962).
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from headrace.core.errors import ProgramError
from headrace.core.ids import OperatorId
from headrace.graph.murmur3 import murmur3_128
from headrace.graph.stream_graph import StreamGraph, StreamNode

_SEPARATOR: Final = "\x1f"


class DuplicateUidError(ProgramError):
    """Two operators were given one uid."""

    def __init__(self, uid: str, names: Iterable[str]) -> None:
        self.uid = uid
        self.operator_names = tuple(names)
        super().__init__(
            f"the uid '{uid}' is given to several operators: {', '.join(self.operator_names)}; "
            "a uid ties state to one operator, choose another for each"
        )


def operator_ids(graph: StreamGraph) -> dict[int, OperatorId]:
    """Return the id of every node, by node id. DuplicateUidError where two nodes share a uid."""
    _check_uids(graph)
    followers = _downstream_hashes(graph)
    ids: dict[int, OperatorId] = {}
    for level in _levels(graph):
        alike: dict[bytes, list[StreamNode]] = defaultdict(list)
        for node in level:
            alike[_upstream_hash(graph, node, ids)].append(node)
        for base, nodes in alike.items():
            nodes.sort(key=lambda node: (followers[node.node_id], node.node_id))
            for ordinal, node in enumerate(nodes):
                ids[node.node_id] = _id_of(node, base, ordinal)
    return ids


def uid_hash_of(uid: str) -> OperatorId:
    """Return the id of the operator with this uid."""
    return OperatorId(murmur3_128(uid.encode()))


def _id_of(node: StreamNode, base: bytes, ordinal: int) -> OperatorId:
    if node.uid_hash is not None:
        return OperatorId.from_hex(node.uid_hash)
    if node.uid is not None:
        return uid_hash_of(node.uid)
    return OperatorId(murmur3_128(base + ordinal.to_bytes(4, "little")))


def _check_uids(graph: StreamGraph) -> None:
    by_uid: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        uid = node.uid_hash or node.uid
        if uid is not None:
            by_uid[uid].append(node.display_name)
    for uid, names in by_uid.items():
        if len(names) > 1:
            raise DuplicateUidError(uid, names)


def _levels(graph: StreamGraph) -> list[list[StreamNode]]:
    """Nodes by the length of the longest way from a source: equals always stand in one level."""
    depth: dict[int, int] = {}
    levels: dict[int, list[StreamNode]] = defaultdict(list)
    for node in graph.topological_order():
        inputs = graph.edges_into(node.node_id)
        depth[node.node_id] = max((depth[edge.source_id] + 1 for edge in inputs), default=0)
        levels[depth[node.node_id]].append(node)
    return [levels[index] for index in sorted(levels)]


def _upstream_hash(graph: StreamGraph, node: StreamNode, ids: dict[int, OperatorId]) -> bytes:
    # The inputs of a union are sorted, because their order means nothing.
    inputs = sorted(
        f"{edge.input_number}:{edge.side_output_tag or ''}:{ids[edge.source_id]}"
        for edge in graph.edges_into(node.node_id)
    )
    return _hash("operator", node.spec.kind, node.name, *inputs)


def _downstream_hashes(graph: StreamGraph) -> dict[int, bytes]:
    """What follows each node, by structure; equal for nodes that nothing tells apart."""
    hashes: dict[int, bytes] = {}
    for node in reversed(graph.topological_order()):
        outputs = sorted(
            f"{edge.input_number}:{edge.side_output_tag or ''}:{hashes[edge.target_id].hex()}"
            for edge in graph.edges_out_of(node.node_id)
        )
        hashes[node.node_id] = _hash(
            "follower", node.spec.kind, node.name, node.uid or "", *outputs
        )
    return hashes


def _hash(*parts: str) -> bytes:
    return murmur3_128(_SEPARATOR.join(parts).encode())

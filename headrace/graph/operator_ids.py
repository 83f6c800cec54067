"""Operator ids: stable across restarts, derived only from the program's structure, not from chaining.

The id of an operator with a uid depends only on the uid: the same bytes as in Flink, from murmur3_128. The other ids
hash the operator's kind, its name, the ids of its inputs and its ordinal among equal operators. Equal operators are
ordered by the operators downstream of them, and only then by the order of the program: independent branches may be
written in any order. A new operator changes no id upstream of it.
Source: Flink StreamGraphHasherV2, whose ids also depend on chaining and on traversal (FLINK-33962); Appleby,
MurmurHash3_x64_128; Guava asBytes order.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from headrace.core.errors import ProgramError
from headrace.core.ids import OperatorId
from headrace.graph.stream_graph import StreamGraph, StreamNode

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def murmur3_128(data: bytes) -> bytes:
    """Return the 16 bytes of the hash: both halves, each little-endian."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for offset in range(0, whole, 16):
        h1 ^= _mix_k1(int.from_bytes(data[offset : offset + 8], "little"))
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix_k2(int.from_bytes(data[offset + 8 : offset + 16], "little"))
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[whole:]
    h2 ^= _mix_k2(int.from_bytes(tail[8:], "little"))
    h1 ^= _mix_k1(int.from_bytes(tail[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _mix_k1(k1: int) -> int:
    return _rotate(k1 * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_k2(k2: int) -> int:
    return _rotate(k2 * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


_SEPARATOR: Final = "\x1f"


class DuplicateUidError(ProgramError):
    """Raised if two operators were given the same uid."""

    def __init__(self, uid: str, names: Iterable[str]) -> None:
        self.uid = uid
        self.operator_names = tuple(names)
        super().__init__(
            f"the uid '{uid}' is given to several operators: {', '.join(self.operator_names)}; "
            "a uid ties state to one operator: choose a different uid for each"
        )


def operator_ids(graph: StreamGraph) -> dict[int, OperatorId]:
    """Return the id of every node, by node id. DuplicateUidError if two nodes share a uid."""
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
    """Return nodes by the length of the longest path from a source; equal nodes are always in the same level."""
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
    """Hash each node with all nodes downstream of it; nodes of identical structure have equal hashes."""
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

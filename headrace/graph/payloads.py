"""VertexPayloads: the opaque bytes of a vertex, apart from its description, so that they can travel by reference.

Functions, collections and types are a few bytes or many megabytes. Beyond a bound they leave the graph and become
blobs; what stays behind is the graph with their keys. Source: Flink TaskInformation, JobInformation (offloaded).
"""

from dataclasses import dataclass

import msgspec

from headrace.core.blob_key import BlobKey
from headrace.graph.job_graph import JobEdge, JobGraph, JobVertex

Payload = bytes | memoryview


@dataclass(frozen=True)
class VertexPayloads:
    """Pickled specs and types by position of their operator, pickled partitioners by that of the outgoing edge.

    Views where they were decoded: they keep the whole buffer alive, so let go of them once they are loaded.
    """

    specs: tuple[Payload, ...]
    types: tuple[Payload, ...]
    partitioners: tuple[Payload, ...]

    @classmethod
    def of(cls, vertex: JobVertex, edges: tuple[JobEdge, ...]) -> "VertexPayloads":
        """The payloads of a vertex that holds them itself; `edges` lead out of it."""
        return cls(
            tuple(operator.payload for operator in vertex.operators),
            tuple(operator.types_payload for operator in vertex.operators),
            tuple(edge.partitioner.payload for edge in edges),
        )

    @property
    def size_bytes(self) -> int:
        """All of them together."""
        return sum(len(part) for part in (*self.specs, *self.types, *self.partitioners))

    def encode(self) -> bytes:
        """One blob; equal payloads make equal bytes."""
        return _ENCODER.encode((self.specs, self.types, self.partitioners))

    @classmethod
    def decode(cls, blob: memoryview) -> "VertexPayloads":
        """Read a blob without copying; DECODE_ERRORS where it is none."""
        return cls(*_DECODER.decode(blob))


_ENCODER = msgspec.msgpack.Encoder()
_Views = tuple[memoryview, ...]
_DECODER = msgspec.msgpack.Decoder(tuple[_Views, _Views, _Views])


@dataclass(frozen=True)
class OffloadedGraph:
    """A graph that is small enough to be a message, and the blobs that it names."""

    graph: JobGraph
    blobs: dict[BlobKey, bytes]


def offload(graph: JobGraph, inline_bytes_max: int) -> OffloadedGraph:
    """Move payloads of vertices into blobs, the largest first, until the rest is `inline_bytes_max` together.

    Pure but not quick: it hashes what it moves. A vertex that was offloaded before stays as it is.
    """
    payloads = {
        vertex.vertex_id: VertexPayloads.of(vertex, graph.edges_out_of(vertex.vertex_id))
        for vertex in graph.vertices
        if vertex.payloads is None
    }
    rest = sum(each.size_bytes for each in payloads.values())
    blobs: dict[BlobKey, bytes] = {}
    keys: dict[object, BlobKey] = {}
    for vertex_id, each in sorted(payloads.items(), key=lambda item: -item[1].size_bytes):
        if rest <= inline_bytes_max:
            break
        rest -= each.size_bytes
        blob = each.encode()
        key = keys[vertex_id] = BlobKey.of(blob)
        blobs[key] = blob
    if not blobs:
        return OffloadedGraph(graph, {})
    vertices = tuple(
        _without_payloads(vertex, keys[vertex.vertex_id]) if vertex.vertex_id in keys else vertex
        for vertex in graph.vertices
    )
    edges = tuple(
        _without_payload(edge) if edge.source_vertex_id in keys else edge for edge in graph.edges
    )
    return OffloadedGraph(msgspec.structs.replace(graph, vertices=vertices, edges=edges), blobs)


def blob_keys(graph: JobGraph) -> tuple[BlobKey, ...]:
    """The blobs that a graph names, each once."""
    return tuple(dict.fromkeys(v.payloads for v in graph.vertices if v.payloads is not None))


def _without_payloads(vertex: JobVertex, key: BlobKey) -> JobVertex:
    operators = tuple(
        msgspec.structs.replace(operator, payload=b"", types_payload=b"")
        for operator in vertex.operators
    )
    return msgspec.structs.replace(vertex, operators=operators, payloads=key)


def _without_payload(edge: JobEdge) -> JobEdge:
    partitioner = msgspec.structs.replace(edge.partitioner, payload=b"")
    return msgspec.structs.replace(edge, partitioner=partitioner)

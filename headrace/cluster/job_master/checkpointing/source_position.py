"""Digest of the positions of a job's sources at a checkpoint, to see progress between two checkpoints. Pure."""

import hashlib
from typing import Final

import msgspec

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.graph.job_graph import JobGraph

UNKNOWN_POSITION: Final = b""
"""Of a job with a source that reads on and keeps no state of where it is."""


def source_position(metadata: CheckpointMetadata, graph: JobGraph) -> bytes:
    """Return a digest of what all sources and their coordinators keep: equal ones mean that nothing was read."""
    consuming = {edge.target_vertex_id for edge in graph.edges}
    sources = {
        vertex.operators[0].operator_id
        for vertex in graph.vertices
        if vertex.vertex_id not in consuming
    }
    digest = hashlib.blake2b(digest_size=16)
    for operator in metadata.operators:
        if operator.operator_id in sources:
            kept = _kept(operator)
            if not kept and operator.coordinator_state is None and not operator.is_finished:
                return UNKNOWN_POSITION
            finished = sorted(operator.finished_subtasks)
            digest.update(msgspec.msgpack.encode((kept, finished, operator.coordinator_state)))
    return digest.digest()


def _kept(operator: OperatorSnapshot) -> list[tuple[int, str, str, int, bytes]]:
    """The source's own state. Event time is left out: it may go on with the clock."""
    return [
        (index, chunk.table.value, chunk.name, chunk.row_count, chunk.file.digest)
        for index, state in sorted(operator.subtasks.items())
        for chunk in state.chunks
        if chunk.table is not StateTable.WATERMARKS
    ]

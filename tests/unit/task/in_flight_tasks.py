"""The tasks of a job whose rows are in flight, each with what a test looks at, and what of them a checkpoint holds."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.checkpoint.handles import (
    ChannelPart,
    OperatorSubtaskState,
    StateChunk,
    SubtaskRestore,
)
from headrace.core.barriers import CheckpointOptions
from headrace.core.config import Settings
from headrace.core.ids import IntermediateDataSetId, JobVertexId, OperatorId
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import (
    ChainedOperator,
    JobVertex,
    VertexKind,
)
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.writers.record_writer import RecordWriter
from headrace.task.checkpointing.barriers import ExactlyOnceBarrierHandler
from headrace.task.checkpointing.channel_state import ChannelStates, InFlightData
from headrace.task.environment import TaskEnvironment
from headrace.testing.operator_harness import MemorySnapshots
from tests.unit.network.exchange import attempt
from tests.unit.task.keyed_rows import MAX_PARALLELISM


class Storage:
    """SnapshotStorage in memory."""

    def writer(self, options: CheckpointOptions, name_prefix: str) -> MemorySnapshots:
        return MemorySnapshots()

    def reader(self) -> MemorySnapshots:
        return MemorySnapshots()


def edge_numbered(number: int) -> tuple[IntermediateDataSetId, OperatorId]:
    """An edge and the operator that sends along it."""
    return IntermediateDataSetId(bytes([number]) * 16), OperatorId(b"s" * 15 + bytes([number]))


def without_other_edges(
    chunks: Sequence[StateChunk], number: int, edge_count: int
) -> list[StateChunk]:
    others = {edge_numbered(each)[0].hex() for each in range(edge_count) if each != number}
    return [chunk for chunk in chunks if ChannelPart.of(chunk).edge not in others]


def vertex_of(operator_id: OperatorId, kind: VertexKind, parallelism: int) -> JobVertex:
    operator = ChainedOperator(operator_id, "operator", "map", b"", b"")
    return JobVertex(
        JobVertexId(operator_id.value), "v", kind, parallelism, MAX_PARALLELISM, "", (operator,), ()
    )


def environment_of(
    vertex: JobVertex, index: int, chunks: Sequence[StateChunk] | None, **edges: Any
) -> Any:
    operator_id = vertex.operators[0].operator_id
    state = OperatorSubtaskState(tuple(chunks or ()))
    cluster_side: Any = None
    gates: dict[str, Any] = {"inputs": (), "outputs": (), **edges}
    return TaskEnvironment(
        attempt("v", index),
        "job",
        vertex,
        Settings(),
        clock=cluster_side,
        random=SeededRandom(1),
        metrics=cluster_side,
        listener=cluster_side,
        restore=None if chunks is None else SubtaskRestore(1, {operator_id: state}),
        snapshots=Storage(),
        **gates,
    )


@dataclass
class Sender:
    """A source subtask: what it is still going to send, per sender of old."""

    writer: RecordWriter
    states: ChannelStates
    left: deque[int]
    in_flight: InFlightData | None = None
    captures: list[InFlightOutput] = field(default_factory=list[InFlightOutput])
    left_at_barrier: list[int] = field(default_factory=list[int])


@dataclass
class Receiver:
    """A task that keeps the rows it processed."""

    gates: list[SingleInputGate]
    states: ChannelStates
    handler: ExactlyOnceBarrierHandler
    processed: list[int] = field(default_factory=list[int])
    watermarks: list[int] = field(default_factory=list[int])
    in_flight: InFlightData | None = None
    processed_at_barrier: list[int] | None = None
    timers: list[int] = field(default_factory=list[int])

    def place_of(self, channel: int) -> tuple[SingleInputGate, int]:
        """Gate and index of a channel that is numbered over all gates."""
        count = self.gates[0].number_of_channels
        return self.gates[channel // count], channel % count


@dataclass(frozen=True)
class Checkpoint:
    """All that a restarted job is given."""

    left: list[list[int]]
    processed: list[list[int]]
    sender_chunks: list[StateChunk]
    receiver_chunks: list[StateChunk]

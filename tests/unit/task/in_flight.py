"""Two stages of subtasks with real writers, connections and gates on one thread; checkpoints of what is in between.

Rows are numbers that say who sent them: sender * 1000 + count. Keys are the numbers modulo KEY_COUNT.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import OperatorSubtaskState, StateChunk, SubtaskRestore
from headrace.core.checkpoints import CheckpointBarrier, CheckpointOptions
from headrace.core.config import Settings
from headrace.core.elements import EndOfPartition, Watermark
from headrace.core.ids import JobVertexId, OperatorId
from headrace.core.key_groups import subtasks_of
from headrace.core.key_hash import hash_array
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.core.types.type_info import Types
from headrace.graph.job_graph import (
    ChainedOperator,
    JobEdge,
    JobVertex,
    PartitionerKind,
    PartitionerSpec,
    VertexKind,
)
from headrace.network.channels import BarrierAnnouncement
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.gate import BatchElement, EventElement
from headrace.network.output_capture import OutputCapture
from headrace.network.record_writer import RecordWriter
from headrace.network.single_input_gate import SingleInputGate
from headrace.task.barriers import (
    AlignmentTimedOut,
    AnnouncementReceived,
    BarrierEvent,
    BarrierReceived,
    ChannelEnded,
    ExactlyOnceBarrierHandler,
    PrioritiseAnnounced,
    ResumeChannels,
    ScheduleAlignmentTimeout,
    StartChannelCapture,
    StopChannelCapture,
    TriggerSnapshot,
)
from headrace.task.channel_state import ChannelStates, InFlightData
from headrace.task.environment import GateInput, PartitionOutput, TaskEnvironment
from headrace.testing.memory_snapshots import MemorySnapshots
from tests.unit.network.exchange import DATA_SET, attempt, partition_id, writer
from tests.unit.network.simulated import SimulatedCluster

KEY_COUNT = 5
MAX_PARALLELISM = 128
SENDER, RECEIVER = OperatorId(b"s" * 16), OperatorId(b"r" * 16)
KEYED = BatchType(Types.LONG(), Types.LONG())


class _Storage:
    """SnapshotStorage in memory."""

    def writer(self, options: CheckpointOptions, name_prefix: str) -> MemorySnapshots:
        return MemorySnapshots()

    def reader(self) -> MemorySnapshots:
        return MemorySnapshots()


def rows_of(values: Sequence[int]) -> RecordBatch:
    columns = pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=["value"])
    keys = pa.array([value % KEY_COUNT for value in values], pa.int64())
    batch = RecordBatch.of_columns(BatchType(Types.LONG()), columns)
    return batch.with_keys(Types.LONG(), hash_array(keys), keys_array=keys)


def _vertex(operator_id: OperatorId, kind: VertexKind, parallelism: int) -> JobVertex:
    operator = ChainedOperator(operator_id, "operator", "map", b"", b"")
    return JobVertex(
        JobVertexId(operator_id.value), "v", kind, parallelism, MAX_PARALLELISM, "", (operator,), ()
    )


def _environment(
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
        snapshots=_Storage(),
        **gates,
    )


@dataclass
class Sender:
    """A source subtask: what it is still going to send, per sender of old."""

    writer: RecordWriter
    states: ChannelStates
    left: deque[int]
    in_flight: InFlightData | None = None
    captures: list[OutputCapture] = field(default_factory=list[OutputCapture])
    left_at_barrier: list[int] = field(default_factory=list[int])


@dataclass
class Receiver:
    """A task that keeps the rows it processed."""

    gate: SingleInputGate
    states: ChannelStates
    handler: ExactlyOnceBarrierHandler
    processed: list[int] = field(default_factory=list[int])
    watermarks: list[int] = field(default_factory=list[int])
    in_flight: InFlightData | None = None
    processed_at_barrier: list[int] | None = None
    timers: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Checkpoint:
    """All that a restarted job is given."""

    left: list[list[int]]
    processed: list[list[int]]
    sender_chunks: list[StateChunk]
    receiver_chunks: list[StateChunk]


class Job:
    """`sender_count` subtasks that send to `receiver_count` ones, every second of which is in the senders' process."""

    def __init__(
        self,
        sender_count: int,
        receiver_count: int,
        kind: PartitionerKind,
        left: Sequence[Sequence[int]],
        chunks: tuple[Sequence[StateChunk], Sequence[StateChunk]] | None = None,
    ) -> None:
        self.kind = kind
        self.cluster = SimulatedCluster()
        producer, location = self.cluster.start("a")
        elsewhere, _ = self.cluster.start("b")
        self.senders = [
            self._sender(producer, index, sender_count, receiver_count, chunks and chunks[0])
            for index in range(sender_count)
        ]
        for index, rows in enumerate(left):
            # As splits are dealt anew: what an old sender had not sent is sent by one of today's, and where they are
            # not as many as they were, by another one than what it had sent.
            shift = len(left) != sender_count
            self.senders[(index + shift) % sender_count].left.extend(rows)
        self.receivers = [
            self._receiver(
                producer if index % 2 else elsewhere,
                [location] * sender_count,
                index,
                receiver_count,
                chunks and chunks[1],
            )
            for index in range(receiver_count)
        ]

    def _sender(
        self,
        env: CreditBasedShuffleEnvironment,
        index: int,
        sender_count: int,
        receiver_count: int,
        chunks: Sequence[StateChunk] | None,
    ) -> Sender:
        made = writer(env, receiver_count, self.kind, number=index)
        edge = JobEdge(
            DATA_SET,
            JobVertexId(SENDER.value),
            SENDER,
            JobVertexId(RECEIVER.value),
            RECEIVER,
            0,
            PartitionerSpec(self.kind),
            ResultPartitionType.PIPELINED_BOUNDED,
            -1,
        )
        output = PartitionOutput(made.partition, edge, MAX_PARALLELISM)
        vertex = _vertex(SENDER, VertexKind.SOURCE, sender_count)
        states = ChannelStates(_environment(vertex, index, chunks, outputs=(output,)), [made])
        states.restore()
        return Sender(made, states, deque())

    def _receiver(
        self,
        env: CreditBasedShuffleEnvironment,
        locations: Sequence[TaskManagerLocation],
        index: int,
        receiver_count: int,
        chunks: Sequence[StateChunk] | None,
    ) -> Receiver:
        channels = tuple(
            InputChannelDescriptor(ShuffleDescriptor(partition_id(number), location), index)
            for number, location in enumerate(locations)
        )
        descriptor = InputGateDescriptor(DATA_SET, 0, channels)
        gate = env.create_input_gate(descriptor, attempt("consumer", index))
        gate.read_as(KEYED)
        vertex = _vertex(RECEIVER, VertexKind.ONE_INPUT, receiver_count)
        environment = _environment(vertex, index, chunks, inputs=(GateInput(gate, descriptor),))
        states = ChannelStates(environment, [])
        states.restore()
        gate.request_partitions()
        return Receiver(gate, states, ExactlyOnceBarrierHandler(len(locations)))

    def send(self, index: int, count: int, *, flushes: bool) -> None:
        """Let a sender write some of what it has left, with a watermark behind."""
        sender = self.senders[index % len(self.senders)]
        values = [sender.left.popleft() for _ in range(min(count, len(sender.left)))]
        if values:
            sender.writer.emit(rows_of(values))
            sender.writer.emit_marker(Watermark(values[-1] % 1000))
        if flushes and sender.writer.is_available:
            sender.writer.flush_all()

    def begin_checkpoint(self, index: int, barrier: CheckpointBarrier) -> None:
        """Let a sender take part, once."""
        sender = self.senders[index % len(self.senders)]
        if sender.in_flight is None:
            sender.captures = [sender.writer.emit_barrier(barrier)]
            sender.in_flight = sender.states.snapshot(barrier.checkpoint_id, sender.captures)
            sender.left_at_barrier = list(sender.left)

    def time_out_output(self, index: int) -> None:
        """The timer of a sender's barrier fires."""
        self.senders[index % len(self.senders)].writer.time_out_barrier(1)

    def time_out_input(self, index: int) -> None:
        """The timer of a receiver's alignment fires, where it has one."""
        receiver = self.receivers[index % len(self.receivers)]
        if receiver.timers:
            self._handle(receiver, AlignmentTimedOut(receiver.timers.pop()))

    def network(self) -> None:
        """The next thing on the network happens."""
        self.cluster.loop.step()

    def process(self, index: int) -> bool:
        """Let a receiver take an element; False if there is none."""
        receiver = self.receivers[index % len(self.receivers)]
        element = receiver.gate.poll()
        match element:
            case None:
                return False
            case BatchElement():
                receiver.processed += element.batch.columns().column(0).to_pylist()
                for placed in element.markers:
                    if isinstance(placed.marker, Watermark):
                        receiver.watermarks.append(placed.marker.timestamp_ms)
            case EventElement(channel, CheckpointBarrier() as barrier):
                self._handle(receiver, BarrierReceived(channel, barrier))
            case EventElement(channel, BarrierAnnouncement(barrier, sequence)):
                self._handle(receiver, AnnouncementReceived(channel, barrier, sequence))
            case EventElement(channel, EndOfPartition()):
                self._handle(receiver, ChannelEnded(channel))
            case EventElement():
                pass
        return True

    def _handle(self, receiver: Receiver, event: BarrierEvent) -> None:
        for action in receiver.handler.handle(event):
            match action:
                case ResumeChannels(channels):
                    for channel in channels:
                        receiver.gate.resume(channel)
                case PrioritiseAnnounced(channel, sequence):
                    receiver.gate.prioritise(channel, sequence)
                case StartChannelCapture(checkpoint_id):
                    receiver.states.start_capture(checkpoint_id)
                case StopChannelCapture(checkpoint_id, is_complete):
                    receiver.states.stop_capture(checkpoint_id, is_complete=is_complete)
                case TriggerSnapshot(barrier):
                    receiver.processed_at_barrier = list(receiver.processed)
                    receiver.in_flight = receiver.states.snapshot(barrier.checkpoint_id, [])
                case ScheduleAlignmentTimeout(checkpoint_id):
                    receiver.timers.append(checkpoint_id)
                case _:
                    pass

    def complete_checkpoint(
        self, barrier: CheckpointBarrier, *, is_slow: bool = False
    ) -> Checkpoint:
        """Let everybody take part, process on as long as need be, and return what was stored.

        `is_slow`: everything arrives before anything more is processed.
        """
        for index in range(len(self.senders)):
            self.begin_checkpoint(index, barrier)
        if is_slow:
            self.cluster.loop.run_for(100)
        self._run_until(self._is_stored)
        chunks: tuple[list[StateChunk], list[StateChunk]] = ([], [])
        for found, subtasks in zip(chunks, (self.senders, self.receivers), strict=True):
            for subtask in subtasks:
                assert subtask.in_flight is not None
                written = subtask.in_flight.write(MemorySnapshots())
                found += [chunk for own in written.values() for chunk in own]
        return Checkpoint(
            [sender.left_at_barrier for sender in self.senders],
            [receiver.processed_at_barrier or [] for receiver in self.receivers],
            *chunks,
        )

    def _is_stored(self) -> bool:
        parts = [each.in_flight for each in (*self.senders, *self.receivers)]
        ready: list[bool] = []
        for part in parts:
            if part is not None:
                part.on_ready(lambda: ready.append(True))
        return len(ready) == len(parts)

    def run_out(self) -> None:
        """Send, process and end everything."""
        for index, sender in enumerate(self.senders):
            while sender.left:
                self._run_until(lambda sender=sender: sender.writer.is_available)
                self.send(index, 10, flushes=True)
            sender.writer.finish()
            sender.writer.close()
        self._run_until(lambda: all(each.gate.is_finished for each in self.receivers))
        self.close()

    def close(self) -> None:
        """End without a word, as by a failure, and see that nothing is left."""
        for sender in self.senders:
            sender.writer.close()
        for receiver in self.receivers:
            receiver.gate.close()
        self.cluster.assert_nothing_leaks()

    def _run_until(self, condition: Any) -> None:
        for _ in range(100_000):
            if condition():
                return
            moved = [self.process(index) for index in range(len(self.receivers))]
            if not any(moved):
                assert self.cluster.loop.step() or condition(), "nothing is left to happen"
        raise AssertionError("no progress")


def order_of(values: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    """By sender and key, the counts in the order of processing."""
    found: dict[tuple[int, int], list[int]] = {}
    for value in values:
        found.setdefault((value // 1000, value % KEY_COUNT), []).append(value % 1000)
    return found


def owner_of(value: int, parallelism: int) -> int:
    """The subtask that has the key of a row."""
    hashes = hash_array(pa.array([value % KEY_COUNT], pa.int64()))
    return int(np.asarray(subtasks_of(hashes, parallelism, MAX_PARALLELISM))[0])

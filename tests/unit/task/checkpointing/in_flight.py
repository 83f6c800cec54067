"""Two stages of subtasks with real writers, connections and gates on one thread; checkpoints of what is in between.

With several edges receivers have a gate for each, and each has senders of its own: those of the first edge come first,
then those of the second, and so on. Rows: see keyed_rows.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from headrace.checkpoint.handles import StateChunk
from headrace.core.barriers import CheckpointBarrier
from headrace.core.elements import EndOfPartition, Watermark
from headrace.core.ids import JobVertexId, OperatorId
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.graph.job_graph import (
    JobEdge,
    PartitionerKind,
    PartitionerSpec,
    VertexKind,
)
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.gates.gate import BarrierAnnouncement, BatchElement, EventElement, GateElement
from headrace.task.checkpointing.barriers import (
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
from headrace.task.checkpointing.channel_state import ChannelStates
from headrace.task.environment import GateInput, PartitionOutput
from headrace.testing.operator_harness import MemorySnapshots
from tests.unit.network.exchange import attempt, partition_id, writer
from tests.unit.network.simulated import SimulatedCluster
from tests.unit.task.in_flight_tasks import (
    Checkpoint,
    Receiver,
    Sender,
    edge_numbered,
    environment_of,
    vertex_of,
    without_other_edges,
)
from tests.unit.task.keyed_rows import KEYED, MAX_PARALLELISM, rows_of

RECEIVER = OperatorId(b"r" * 16)


class Job:
    """`sender_count` subtasks on each edge that send to `receiver_count` ones, every second of them in one process.

    `left`: what each sender of each edge has to send.
    """

    def __init__(
        self,
        sender_count: int,
        receiver_count: int,
        kind: PartitionerKind,
        left: Sequence[Sequence[int]],
        chunks: tuple[Sequence[StateChunk], Sequence[StateChunk]] | None = None,
        edge_count: int = 1,
    ) -> None:
        self.kind = kind
        self.cluster = SimulatedCluster()
        producer, location = self.cluster.start("a")
        elsewhere, _ = self.cluster.start("b")
        self.senders = [
            self._sender(producer, edge, index, sender_count, receiver_count, own)
            for edge in range(edge_count)
            for own in [chunks and without_other_edges(chunks[0], edge, edge_count)]
            for index in range(sender_count)
        ]
        old_count = len(left) // edge_count
        # As splits are dealt anew: what an old sender had not sent is sent by one of today's, and where they are
        # not as many as they were, by another one than what it had sent.
        shift = old_count != sender_count
        for number, rows in enumerate(left):
            edge, index = divmod(number, old_count)
            self.senders[edge * sender_count + (index + shift) % sender_count].left.extend(rows)
        self.receivers = [
            self._receiver(
                producer if index % 2 else elsewhere,
                [[location] * sender_count] * edge_count,
                index,
                receiver_count,
                chunks and chunks[1],
            )
            for index in range(receiver_count)
        ]

    def _sender(
        self,
        env: CreditBasedShuffleEnvironment,
        edge_number: int,
        index: int,
        sender_count: int,
        receiver_count: int,
        chunks: Sequence[StateChunk] | None,
    ) -> Sender:
        data_set, operator_id = edge_numbered(edge_number)
        made = writer(env, receiver_count, self.kind, number=index, data_set=data_set)
        edge = JobEdge(
            data_set,
            JobVertexId(operator_id.value),
            operator_id,
            JobVertexId(RECEIVER.value),
            RECEIVER,
            edge_number,
            PartitionerSpec(self.kind),
            ResultPartitionType.PIPELINED_BOUNDED,
            -1,
        )
        output = PartitionOutput(made.partition, edge, MAX_PARALLELISM)
        vertex = vertex_of(operator_id, VertexKind.SOURCE, sender_count)
        environment = environment_of(vertex, index, chunks, outputs=(output,))
        states = ChannelStates(environment, [made])
        states.restore()
        return Sender(made, states, deque())

    def _receiver(
        self,
        env: CreditBasedShuffleEnvironment,
        locations: Sequence[Sequence[TaskManagerLocation]],
        index: int,
        receiver_count: int,
        chunks: Sequence[StateChunk] | None,
    ) -> Receiver:
        inputs: list[GateInput] = []
        for edge, senders in enumerate(locations):
            data_set, _ = edge_numbered(edge)
            channels = tuple(
                InputChannelDescriptor(
                    ShuffleDescriptor(partition_id(number, data_set=data_set), location), index
                )
                for number, location in enumerate(senders)
            )
            descriptor = InputGateDescriptor(data_set, edge, channels)
            gate = env.create_input_gate(descriptor, attempt("consumer", index))
            gate.read_as(KEYED)
            inputs.append(GateInput(gate, descriptor))
        vertex = vertex_of(RECEIVER, VertexKind.ONE_INPUT, receiver_count)
        environment = environment_of(vertex, index, chunks, inputs=tuple(inputs))
        states = ChannelStates(environment, [])
        states.restore()
        for each in inputs:
            each.gate.request_partitions()
        channel_count = sum(len(senders) for senders in locations)
        return Receiver(
            [each.gate for each in inputs], states, ExactlyOnceBarrierHandler(channel_count)
        )

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

    def process(self, index: int, edges: Sequence[int] | None = None) -> bool:
        """Let a receiver take an element from the first of `edges` that has one; False if there is none."""
        receiver = self.receivers[index % len(self.receivers)]
        for number in edges or range(len(receiver.gates)):
            gate = receiver.gates[number]
            element = gate.poll()
            if element is not None:
                return self._process(receiver, number * gate.number_of_channels, element)
        return False

    def _process(self, receiver: Receiver, first_channel: int, element: GateElement) -> bool:
        match element:
            case BatchElement():
                receiver.processed += element.batch.columns().column(0).to_pylist()
                for placed in element.markers:
                    if isinstance(placed.marker, Watermark):
                        receiver.watermarks.append(placed.marker.timestamp_ms)
            case EventElement(channel, CheckpointBarrier() as barrier):
                self._handle(receiver, BarrierReceived(first_channel + channel, barrier))
            case EventElement(channel, BarrierAnnouncement(barrier, sequence)):
                self._handle(
                    receiver, AnnouncementReceived(first_channel + channel, barrier, sequence)
                )
            case EventElement(channel, EndOfPartition()):
                self._handle(receiver, ChannelEnded(first_channel + channel))
            case EventElement():
                pass
        return True

    def _handle(self, receiver: Receiver, event: BarrierEvent) -> None:
        for action in receiver.handler.handle(event):
            match action:
                case ResumeChannels(channels):
                    for channel in channels:
                        gate, index = receiver.place_of(channel)
                        gate.resume(index)
                case PrioritiseAnnounced(channel, sequence):
                    gate, index = receiver.place_of(channel)
                    gate.prioritise(index, sequence)
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
        self._run_until(
            lambda: all(gate.is_finished for each in self.receivers for gate in each.gates)
        )
        self.close()

    def close(self) -> None:
        """End without a word, as by a failure, and see that nothing is left."""
        for sender in self.senders:
            sender.writer.close()
        for receiver in self.receivers:
            for gate in receiver.gates:
                gate.close()
        self.cluster.assert_nothing_leaks()

    def _run_until(self, condition: Any) -> None:
        for _ in range(100_000):
            if condition():
                return
            moved = [self.process(index) for index in range(len(self.receivers))]
            if not any(moved):
                assert self.cluster.loop.step() or condition(), "nothing is left to happen"
        raise AssertionError("no progress")

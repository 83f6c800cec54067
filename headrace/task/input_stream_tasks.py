"""Tasks that read one or two logical inputs, and the choice of a task by the kind of its vertex.

Source: Flink OneInputStreamTask, TwoInputStreamTask.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.checkpoints import CheckpointBarrier
from headrace.core.elements import StopMode
from headrace.core.record_batch import RecordBatch
from headrace.graph.job_graph import VertexKind
from headrace.graph.payloads import VertexPayloads
from headrace.network.gate import InputGate
from headrace.network.union_gate import UnionInputGate
from headrace.operators.operator import OneInputOperator, Output, TwoInputOperator
from headrace.task.environment import TaskEnvironment
from headrace.task.input_barriers import InputBarriers
from headrace.task.input_processor import CheckpointEvent, LogicalInput
from headrace.task.mailbox import Mailbox, MailboxTimers
from headrace.task.stream_task import Progress, SourceStreamTask, StreamTask
from headrace.task.watermark_valve import CombinedWatermark, EmitWatermark, ValveAction


class OneInputStreamTask(StreamTask):
    """Reads the gates of one logical input."""

    def __init__(
        self,
        environment: TaskEnvironment,
        payloads: VertexPayloads,
        mailbox: Mailbox,
        timers: MailboxTimers,
    ) -> None:
        super().__init__(environment, payloads, mailbox, timers)
        self._input = LogicalInput(_gate_of(environment, 0), self)
        self._barriers = InputBarriers(self, environment, timers, [self._input])

    def open(self) -> None:
        """See StreamTask."""
        super().open()
        self._input.restore_watermark(self.chain.head.current_watermark)

    def checkpoint_event(self, channel_index: int, event: CheckpointEvent) -> None:
        """See InputHandler."""
        self._barriers.event_received(0, channel_index, event)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """See StreamTask: as if the barrier had come on all channels that are open."""
        self._barriers.triggered(barrier)

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """See StreamTask."""
        self._barriers.aborted(checkpoint_id)
        super().notify_checkpoint_aborted(checkpoint_id, latest_completed_id)

    def batch(self, batch: RecordBatch) -> None:
        """See InputHandler."""
        self.counters.records_in += batch.num_rows
        head = self.chain.head
        assert isinstance(head, OneInputOperator)
        head.process_batch(batch, self.chain.head_output)

    def watermark(self, timestamp_ms: int) -> None:
        """See InputHandler. Operators that had finished before are not open, and have sent their last watermark."""
        self.counters.input_watermark = timestamp_ms
        if not self.chain.is_finished:
            self.chain.head.process_watermark(timestamp_ms, self.chain.head_output)

    def status(self, is_idle: bool) -> None:
        """See InputHandler."""
        if not self.chain.is_finished:
            self.chain.head.process_status(is_idle, self.chain.head_output)

    def _process_one(self) -> Progress:
        if not self._input.process_next():
            self._input.on_available(self._mailbox.wake)
            return Progress.NO_INPUT
        if not self._input.has_ended:
            return Progress.MORE
        if self._input.stop_mode is StopMode.DRAIN:
            self.chain.end_head_input(0)
        return Progress.FINISHED

    def _process_priority_event(self) -> bool:
        return self._input.process_priority_event(self._mailbox.wake)

    def _mode_of_inputs(self) -> StopMode:
        return self._input.stop_mode

    def _await_inputs(self) -> Progress:
        return _drain([self._input], self._mailbox.wake)


class _InputSide:
    """Handler of one of the two inputs: counts, and calls its side of the head operator."""

    def __init__(
        self,
        task: "TwoInputStreamTask",
        input_number: int,
        process_batch: Callable[[RecordBatch, Output], None],
    ) -> None:
        self._task = task
        self._input_number = input_number
        self._process_batch = process_batch

    def batch(self, batch: RecordBatch) -> None:
        self._task.counters.records_in += batch.num_rows
        self._process_batch(batch, self._task.chain.head_output)

    def watermark(self, timestamp_ms: int) -> None:
        self._task.perform(self._task.combined.watermark_received(self._input_number, timestamp_ms))

    def status(self, is_idle: bool) -> None:
        self._task.perform(self._task.combined.status_received(self._input_number, is_idle))

    def checkpoint_event(self, channel_index: int, event: CheckpointEvent) -> None:
        self._task.checkpoint_event(self._input_number, channel_index, event)


class TwoInputStreamTask(StreamTask):
    """Reads two logical inputs in turn; event time is the smaller of the two."""

    def __init__(
        self,
        environment: TaskEnvironment,
        payloads: VertexPayloads,
        mailbox: Mailbox,
        timers: MailboxTimers,
    ) -> None:
        super().__init__(environment, payloads, mailbox, timers)
        head = self.chain.head
        assert isinstance(head, TwoInputOperator)
        self.combined = CombinedWatermark(2)
        sides = (_InputSide(self, 0, head.process_batch1), _InputSide(self, 1, head.process_batch2))
        self._inputs = [LogicalInput(_gate_of(environment, n), sides[n]) for n in (0, 1)]
        self._barriers = InputBarriers(self, environment, timers, self._inputs)
        self._ended = [False, False]
        self._next = 0

    def open(self) -> None:
        """See StreamTask."""
        super().open()
        watermark = self.chain.head.current_watermark
        self.combined.restore(watermark)
        for logical_input in self._inputs:
            logical_input.restore_watermark(watermark)

    def checkpoint_event(
        self, input_number: int, channel_index: int, event: CheckpointEvent
    ) -> None:
        """A barrier, its cancellation or the end of a channel of one of the inputs."""
        self._barriers.event_received(input_number, channel_index, event)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """See StreamTask: as if the barrier had come on all channels that are open."""
        self._barriers.triggered(barrier)

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """See StreamTask."""
        self._barriers.aborted(checkpoint_id)
        super().notify_checkpoint_aborted(checkpoint_id, latest_completed_id)

    def perform(self, actions: list[ValveAction]) -> None:
        """Carry out what the combined watermark decided; nothing where the operators had finished before."""
        if self.chain.is_finished:
            return
        for action in actions:
            if isinstance(action, EmitWatermark):
                self.counters.input_watermark = action.timestamp_ms
                self.chain.head.process_watermark(action.timestamp_ms, self.chain.head_output)
            else:
                self.chain.head.process_status(action.is_idle, self.chain.head_output)

    def _process_one(self) -> Progress:
        for number in (self._next, 1 - self._next):
            current = self._inputs[number]
            if not self._ended[number] and current.process_next():
                self._next = 1 - number
                if current.has_ended:
                    self._ended[number] = True
                    if current.stop_mode is StopMode.DRAIN:
                        self.chain.end_head_input(number)
                return Progress.FINISHED if all(self._ended) else Progress.MORE
        for number, current in enumerate(self._inputs):
            if not self._ended[number]:
                current.on_available(self._mailbox.wake)
        return Progress.NO_INPUT

    def _process_priority_event(self) -> bool:
        wake = self._mailbox.wake
        return any([each.process_priority_event(wake) for each in self._inputs])

    def _mode_of_inputs(self) -> StopMode:
        modes = [logical_input.stop_mode for logical_input in self._inputs]
        return StopMode.NO_DRAIN if StopMode.NO_DRAIN in modes else StopMode.DRAIN

    def _await_inputs(self) -> Progress:
        return _drain(self._inputs, self._mailbox.wake)


def _gate_of(environment: TaskEnvironment, input_number: int) -> InputGate:
    """Return what one input of the head operator reads: where streams were united, several gates as one."""
    gates = [
        gate_input.gate
        for gate_input in environment.inputs
        if gate_input.descriptor.input_number == input_number
    ]
    return gates[0] if len(gates) == 1 else UnionInputGate(gates)


def _drain(inputs: list[LogicalInput], wake: Callable[[], None]) -> Progress:
    """Take the ends of partition that follow the ends of data."""
    progress = Progress.FINISHED
    for logical_input in inputs:
        while not logical_input.is_finished:
            if not logical_input.process_next():
                logical_input.on_available(wake)
                progress = Progress.NO_INPUT
                break
    return progress


_KINDS: Final = {
    VertexKind.SOURCE: SourceStreamTask,
    VertexKind.ONE_INPUT: OneInputStreamTask,
    VertexKind.TWO_INPUT: TwoInputStreamTask,
}


def create_stream_task(
    environment: TaskEnvironment,
    payloads: VertexPayloads,
    mailbox: Mailbox,
    timers: MailboxTimers,
) -> StreamTask:
    """Make the task for the environment's vertex: unpickles user code."""
    return _KINDS[environment.vertex.kind](environment, payloads, mailbox, timers)

"""Tasks that read one or two logical inputs, and the choice of a task by the kind of its vertex.

`InputTurns` chooses the input that is read next, and decides when the data of both has ended.
Source: Flink OneInputStreamTask, TwoInputStreamTask, StreamMultipleInputProcessor, MultipleInputSelectionHandler.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.checkpoint.handles import CheckpointProgress, SubtaskPhase
from headrace.core.barriers import CheckpointBarrier
from headrace.core.elements import LatencyMarker, StopMode
from headrace.core.ids import ExecutionAttemptId
from headrace.core.record_batch import RecordBatch
from headrace.graph.job_graph import VertexKind, VertexPayloads
from headrace.network.gates.gate import InputGate
from headrace.network.gates.union_gate import UnionInputGate
from headrace.operators.runtime.operator import OneInputOperator, Output, TwoInputOperator
from headrace.task.checkpointing.checkpointed_input_gate import CheckpointedInputGate
from headrace.task.environment import TaskEnvironment
from headrace.task.input.input_processor import CheckpointEvent, InputHandler, LogicalInput
from headrace.task.input.watermark_valve import CombinedWatermark, EmitWatermark, ValveAction
from headrace.task.mailbox import Mailbox, MailboxTimers
from headrace.task.stream_task import Progress, SourceStreamTask, StreamTask

_NAMED_MAX: Final = 8
"""Most channels without a barrier that a report names."""


class InputTurns:
    """Reads two inputs in turn, one element at a time, or only one while the other is empty.

    `end_input` is called once with the number of each drained input; `wake` is called, on any thread, once there is
    an element after NO_INPUT. Mailbox thread only.
    """

    def __init__(
        self,
        inputs: tuple[LogicalInput, LogicalInput],
        end_input: Callable[[int], None],
        wake: Callable[[], None],
    ) -> None:
        self._inputs: Final = inputs
        self._end_input: Final = end_input
        self._wake: Final = wake
        self._ended: Final = [False, False]
        self._next = 0

    def step(self) -> Progress:
        """Process one element; return FINISHED once the data of both inputs has ended."""
        for number in (self._next, 1 - self._next):
            current = self._inputs[number]
            # Read also an input whose data has ended: barriers still arrive there, and the other input waits for them.
            if current.process_next():
                self._next = 1 - number
                if current.has_ended and not self._ended[number]:
                    self._ended[number] = True
                    if current.stop_mode is StopMode.DRAIN:
                        self._end_input(number)
                return Progress.FINISHED if all(self._ended) else Progress.MORE
        for current in self._inputs:
            current.on_available(self._wake)
        return Progress.NO_INPUT


class InputStreamTask(StreamTask):
    """Base of tasks with inputs; handles barriers over all channels, and the ends of all inputs."""

    def __init__(
        self,
        environment: TaskEnvironment,
        payloads: VertexPayloads,
        mailbox: Mailbox,
        timers: MailboxTimers,
    ) -> None:
        super().__init__(environment, payloads, mailbox, timers)
        pace_by = environment.clock if self.chain.is_per_record else None
        self._inputs = [
            LogicalInput(
                _gate_of(environment, number), handler, pace_by, environment.vertex.cached_input
            )
            for number, handler in enumerate(self._input_handlers())
        ]
        self._barriers = CheckpointedInputGate(
            self.checkpoints, self.take_checkpoint, environment, timers, self._inputs
        )

    def open(self) -> None:
        super().open()
        for logical_input in self._inputs:
            logical_input.restore_watermark(self.chain.head.current_watermark)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Start a checkpoint as if the barrier had arrived on all open channels."""
        self._barriers.triggered(barrier)

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        self._barriers.aborted(checkpoint_id)
        super().notify_checkpoint_aborted(checkpoint_id, latest_completed_id)

    def checkpoint_progress(self, checkpoint_id: int) -> CheckpointProgress:
        progress = super().checkpoint_progress(checkpoint_id)
        collected = self._barriers.missing(checkpoint_id)
        if collected is None:
            return progress
        elapsed_ms, channel_count, missing = collected
        producers = _producers(self.environment)
        return msgspec.structs.replace(
            progress,
            phase=SubtaskPhase.ALIGNING,
            elapsed_ms=elapsed_ms,
            missing=tuple(producers[channel] for channel in sorted(missing)[:_NAMED_MAX]),
            missing_count=len(missing),
            channel_count=channel_count,
        )

    def latency_marker(self, marker: LatencyMarker) -> None:
        """Pass on a latency marker of any input."""
        if not self.chain.is_finished:
            self.chain.pass_latency_marker(self.chain.head_id, marker)

    def _input_handlers(self) -> Sequence[InputHandler]:
        """Return the handlers of the logical inputs, one for each."""
        raise NotImplementedError

    def _process_priority_event(self) -> bool:
        if self._barriers.is_amid_batch:
            return False
        wake = self._mailbox.wake
        return any([each.process_priority_event(wake) for each in self._inputs])

    def _go_on_with_batch(self, logical_input: LogicalInput) -> Progress:
        logical_input.go_on_with_batch()
        if not logical_input.is_amid_batch:
            self._barriers.batch_ended()
        return Progress.MORE

    def _mode_of_inputs(self) -> StopMode:
        modes = [logical_input.stop_mode for logical_input in self._inputs]
        return StopMode.NO_DRAIN if StopMode.NO_DRAIN in modes else StopMode.DRAIN

    def _await_inputs(self) -> Progress:
        return _drain(self._inputs, self._mailbox.wake)


class OneInputStreamTask(InputStreamTask):
    """Reads the gates of one logical input."""

    _process_batch: Callable[[RecordBatch, Output], None]
    _head_output: Output

    def open(self) -> None:
        super().open()
        head = self.chain.head
        assert isinstance(head, OneInputOperator)
        # Read once here instead of for each batch.
        self._process_batch = head.process_batch
        self._head_output = self.chain.head_output

    def checkpoint_event(self, channel_index: int, event: CheckpointEvent) -> None:
        self._barriers.event_received(0, channel_index, event)

    def batch(self, batch: RecordBatch) -> None:
        self.counters.records_in += batch.num_rows
        self._process_batch(batch, self._head_output)

    def watermark(self, timestamp_ms: int) -> None:
        """Pass on a watermark, unless the operators had finished before the restore and have sent their last one."""
        self.counters.input_watermark = timestamp_ms
        if not self.chain.is_finished:
            self.chain.head.process_watermark(timestamp_ms, self.chain.head_output)

    def status(self, is_idle: bool) -> None:
        if not self.chain.is_finished:
            self.chain.head.process_status(is_idle, self.chain.head_output)

    def _input_handlers(self) -> Sequence[InputHandler]:
        return [self]

    def _process_one(self) -> Progress:
        (only,) = self._inputs
        if only.is_amid_batch:
            return self._go_on_with_batch(only)
        if not only.process_next():
            only.on_available(self._mailbox.wake)
            return Progress.NO_INPUT
        if not only.has_ended:
            return Progress.MORE
        if only.stop_mode is StopMode.DRAIN:
            self.chain.end_head_input(0)
        return Progress.FINISHED


class _InputSide:
    """Handler of one of the two inputs: counts rows, and calls the head operator's method for the input."""

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

    def latency_marker(self, marker: LatencyMarker) -> None:
        self._task.latency_marker(marker)

    def checkpoint_event(self, channel_index: int, event: CheckpointEvent) -> None:
        self._task.checkpoint_event(self._input_number, channel_index, event)


class TwoInputStreamTask(InputStreamTask):
    """Reads two logical inputs in turn; event time is the smaller of the two."""

    def __init__(
        self,
        environment: TaskEnvironment,
        payloads: VertexPayloads,
        mailbox: Mailbox,
        timers: MailboxTimers,
    ) -> None:
        self.combined = CombinedWatermark(2)
        super().__init__(environment, payloads, mailbox, timers)
        first, second = self._inputs
        self._turns = InputTurns((first, second), self.chain.end_head_input, mailbox.wake)
        self._is_paced = self.chain.is_per_record

    def open(self) -> None:
        super().open()
        self.combined.restore(self.chain.head.current_watermark)

    def _input_handlers(self) -> Sequence[InputHandler]:
        head = self.chain.head
        assert isinstance(head, TwoInputOperator)
        return [_InputSide(self, 0, head.process_batch1), _InputSide(self, 1, head.process_batch2)]

    def checkpoint_event(
        self, input_number: int, channel_index: int, event: CheckpointEvent
    ) -> None:
        """Pass on a checkpoint event of a channel of one of the inputs."""
        self._barriers.event_received(input_number, channel_index, event)

    def perform(self, actions: list[ValveAction]) -> None:
        """Perform the actions of the combined watermark; none if the operators had finished before the restore."""
        if self.chain.is_finished:
            return
        for action in actions:
            if isinstance(action, EmitWatermark):
                self.counters.input_watermark = action.timestamp_ms
                self.chain.head.process_watermark(action.timestamp_ms, self.chain.head_output)
            else:
                self.chain.head.process_status(action.is_idle, self.chain.head_output)

    def _process_one(self) -> Progress:
        # Checked for each batch: columnar batches pass whole, so that none can be unfinished.
        if self._is_paced:
            for current in self._inputs:
                if current.is_amid_batch:
                    return self._go_on_with_batch(current)
        return self._turns.step()


def _gate_of(environment: TaskEnvironment, input_number: int) -> InputGate:
    """Return the gate of one input of the head operator; several gates as one for united streams."""
    gates = [
        gate_input.gate
        for gate_input in environment.inputs
        if gate_input.descriptor.input_number == input_number
    ]
    return gates[0] if len(gates) == 1 else UnionInputGate(gates)


def _producers(environment: TaskEnvironment) -> list[ExecutionAttemptId]:
    """Return the producer of each channel, numbered over all inputs as in `CheckpointedInputGate`."""
    in_order = sorted(environment.inputs, key=lambda each: each.descriptor.input_number)
    return [
        channel.shuffle.partition_id.producer
        for each in in_order
        for channel in each.descriptor.channels
    ]


def _drain(inputs: list[LogicalInput], wake: Callable[[], None]) -> Progress:
    """Read the ends of partition that follow the ends of data."""
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
    """Return the task for the environment's vertex; unpickles user code."""
    return _KINDS[environment.vertex.kind](environment, payloads, mailbox, timers)

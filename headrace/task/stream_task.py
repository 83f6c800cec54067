"""StreamTask: the default action of a subtask, one batch at a time, and the order of its end.

Three kinds by the head of the chain: sources are polled, the others read one or two logical inputs.
Source: Flink StreamTask, SourceOperatorStreamTask, OneInputStreamTask, TwoInputStreamTask.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from headrace.core.elements import EndOfData
from headrace.core.ids import OperatorId
from headrace.core.record_batch import RecordBatch
from headrace.graph.job_graph import VertexKind
from headrace.graph.payloads import VertexPayloads
from headrace.metrics import names
from headrace.network.gate import InputGate
from headrace.network.metrics import DETAILED_METRICS, register_task_metrics
from headrace.network.record_writer import RecordWriter
from headrace.network.union_gate import UnionInputGate
from headrace.operators.operator import (
    InputStatus,
    OneInputOperator,
    Output,
    SourceOperator,
    TwoInputOperator,
)
from headrace.task.debloating import GateDebloating, register_debloating_metrics
from headrace.task.environment import TaskEnvironment
from headrace.task.input_processor import LogicalInput
from headrace.task.mailbox import Mailbox, MailboxTimers
from headrace.task.metrics import EdgeTimes, Occupation, TaskCounters, TaskTimes
from headrace.task.operator_chain import OperatorChain
from headrace.task.stall_watch import StallWatch
from headrace.task.user_payloads import create_writers, load_specs, load_types
from headrace.task.watermark_valve import CombinedWatermark, EmitWatermark, ValveAction


class Progress(enum.Enum):
    """What the default action found."""

    MORE = "MORE"
    NO_INPUT = "NO_INPUT"
    NO_OUTPUT = "NO_OUTPUT"
    FINISHED = "FINISHED"


class StreamTask(ABC):
    """One subtask's chain with its inputs and outputs; everything runs on the mailbox thread.

    `open` once, then `process` until FINISHED, then `close`; after a failure only `close`.
    """

    def __init__(
        self,
        environment: TaskEnvironment,
        payloads: VertexPayloads,
        mailbox: Mailbox,
        timers: MailboxTimers,
    ) -> None:
        self.environment = environment
        self.counters = TaskCounters()
        self.times = TaskTimes(environment.clock)
        self._mailbox: Final = mailbox
        self._timers: Final = timers
        self._hard_back_pressured_ns = 0
        self._has_ended = False
        types = load_types(environment.vertex, payloads)
        gates = [gate_input.gate for gate_input in environment.inputs]
        for gate_input in environment.inputs:
            gate_input.gate.read_as(types[0].inputs[gate_input.descriptor.input_number])
        self._writers: Final = create_writers(environment, payloads)
        register_task_metrics(
            environment.metrics,
            gates,
            self._writers,
            is_detailed=environment.settings.get_option(DETAILED_METRICS),
        )
        self._edge_times: Final = EdgeTimes(environment.clock, len(self._writers))
        self._register_metrics()
        specs = load_specs(environment.vertex, payloads)
        self._debloating: Final = GateDebloating(
            gates, environment.settings, timers, self.times.idle_ms
        )
        register_debloating_metrics(environment.metrics, self._debloating)
        self._stall_watch: Final = StallWatch(
            f"{environment.vertex.name} ({environment.attempt_id.subtask_index + 1})",
            gates,
            self._writers,
            environment.settings,
            timers,
        )
        self.chain = OperatorChain(
            environment, types, specs, self._writers, timers, self.counters, mailbox
        )

    def open(self) -> None:
        """Open the operators."""
        self.chain.open()
        self._debloating.start()
        self._stall_watch.start()

    def process(self) -> Progress:
        """Do one batch's work unless an output is full; account for the time."""
        for index, writer in enumerate(self._writers):
            if not writer.is_available:
                writer.on_available(self._mailbox.wake)
                self.times.occupy(Occupation.BACK_PRESSURED)
                self._edge_times.blame(index)
                return Progress.NO_OUTPUT
        self.times.occupy(Occupation.BUSY)
        self._edge_times.blame(None)
        if self._has_ended:
            progress = self._await_inputs()
        else:
            progress = self._process_one()
            if progress is Progress.FINISHED:
                self._end()
                progress = self._await_inputs()
        self._account_for_blocking()
        if progress is Progress.NO_INPUT:
            self.times.occupy(Occupation.IDLE)
        return progress

    def _register_metrics(self) -> None:
        group, counters = self.environment.metrics, self.counters
        group.rate(names.NUM_RECORDS_IN_PER_SECOND, lambda: counters.records_in)
        group.rate(names.NUM_RECORDS_OUT_PER_SECOND, lambda: counters.records_out)
        group.rate(names.MAILBOX_MAILS_PER_SECOND, lambda: self._mailbox.taken_count)
        for index, writer in enumerate(self._writers):

            def held_up_ms(index: int = index, writer: RecordWriter = writer) -> float:
                return self._edge_times.soft_ms(index) + writer.hard_back_pressured_ns / 1e6

            group.gauge(f"output.{index}.{names.EDGE_BACK_PRESSURED_TIME.name}", held_up_ms)

    @abstractmethod
    def _process_one(self) -> Progress:
        """Handle one batch. FINISHED: the inputs have ended and everything was processed."""

    def _await_inputs(self) -> Progress:
        """After the end of data: wait until the inputs are finished too."""
        return Progress.FINISHED

    def _end(self) -> None:
        self._has_ended = True
        self._timers.quiesce()
        self.chain.finish()
        for writer in self._writers:
            writer.emit_event(EndOfData())
            writer.finish()

    def _account_for_blocking(self) -> None:
        total_ns = sum(writer.hard_back_pressured_ns for writer in self._writers)
        if total_ns != self._hard_back_pressured_ns:
            self.times.hard_back_pressured(total_ns - self._hard_back_pressured_ns)
            self._hard_back_pressured_ns = total_ns

    def deliver_event(self, operator_id: OperatorId, payload: bytes) -> None:
        """Hand a coordinator's event to an operator; dropped after the end of data, when no operator wants any."""
        if not self._has_ended:
            self.chain.deliver_event(operator_id, payload)

    def close(self) -> None:
        """Close operators; gates and writers are closed by the task."""
        self._timers.quiesce()
        self.chain.close()


class SourceStreamTask(StreamTask):
    """Polls the source at the head of the chain."""

    def _process_one(self) -> Progress:
        source = self.chain.head
        assert isinstance(source, SourceOperator)
        output = self.chain.head_output
        records_out = output.records_out
        status = source.poll(output)
        if output.records_out != records_out:
            self.counters.records_in += output.records_out - records_out
        match status:
            case InputStatus.MORE_AVAILABLE:
                return Progress.MORE
            case InputStatus.NOTHING_AVAILABLE:
                return Progress.NO_INPUT
            case InputStatus.END_OF_INPUT:
                self.chain.emit_end_of_time()
                return Progress.FINISHED


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

    def batch(self, batch: RecordBatch) -> None:
        """See InputHandler."""
        self.counters.records_in += batch.num_rows
        head = self.chain.head
        assert isinstance(head, OneInputOperator)
        head.process_batch(batch, self.chain.head_output)

    def watermark(self, timestamp_ms: int) -> None:
        """See InputHandler."""
        self.counters.input_watermark = timestamp_ms
        self.chain.head.process_watermark(timestamp_ms, self.chain.head_output)

    def status(self, is_idle: bool) -> None:
        """See InputHandler."""
        self.chain.head.process_status(is_idle, self.chain.head_output)

    def _process_one(self) -> Progress:
        if not self._input.process_next():
            self._input.on_available(self._mailbox.wake)
            return Progress.NO_INPUT
        if not self._input.has_ended:
            return Progress.MORE
        self.chain.end_head_input(0)
        return Progress.FINISHED

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
        self._ended = [False, False]
        self._next = 0

    def perform(self, actions: list[ValveAction]) -> None:
        """Carry out what the combined watermark decided."""
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
                    self.chain.end_head_input(number)
                return Progress.FINISHED if all(self._ended) else Progress.MORE
        for number, current in enumerate(self._inputs):
            if not self._ended[number]:
                current.on_available(self._mailbox.wake)
        return Progress.NO_INPUT

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

"""StreamTask: processes a subtask's input, one batch or a part of one at a time, and ends it in order.

There are three kinds, by the head of the chain: a source is polled, other tasks read one or two logical inputs.
`EndOfTask` decides how long a subtask stays after the end of its data: with checkpoints, its last effects
become final with a checkpoint that was taken after all rows were processed, here and downstream; until then the subtask
stays and takes part. `LatencyMarkerEmitter` sends markers among the rows of a source.
Source: Flink StreamTask (afterInvoke, FLIP-147), SourceOperatorStreamTask, SourceStreamTask.LatencyMarkerEmitter.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.checkpoint.handles import CheckpointProgress
from headrace.checkpoint.options import AFTER_TASKS_FINISH
from headrace.checkpoint.options import INTERVAL as CHECKPOINTING_INTERVAL
from headrace.core.barriers import CheckpointBarrier
from headrace.core.config import Settings
from headrace.core.elements import MAX_WATERMARK, EndOfData, LatencyMarker, StopMode, Watermark
from headrace.core.ids import OperatorId
from headrace.core.operator_spec import OperatorTypes
from headrace.core.process.failpoints import Failpoint, reach
from headrace.functions.runtime_context import ProcessingTimeService
from headrace.graph.job_graph import VertexPayloads
from headrace.metrics import names
from headrace.metrics.latency import LATENCY_INTERVAL
from headrace.network.flow.buffer_debloater import ROWS_AT_FIRST, is_debloated
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.metrics import DETAILED_METRICS, register_task_metrics
from headrace.network.writers.record_writer import RecordWriter
from headrace.operators.runtime.operator import (
    InputStatus,
    SourceOperator,
)
from headrace.task.chain.operator_chain import OperatorChain
from headrace.task.chain.queryable_state import QueryableState, StateRead
from headrace.task.checkpointing.subtask_checkpoints import BarrierTimes, SubtaskCheckpoints
from headrace.task.environment import TaskEnvironment
from headrace.task.input.gate_debloating import GateDebloating, register_debloating_metrics
from headrace.task.mailbox import Mailbox, MailboxTimers
from headrace.task.metrics import EdgeTimes, Occupation, TaskCounters, TaskTimes
from headrace.task.user_payloads import create_writers, find_modules, load_specs, load_types
from headrace.task.watchdog import TaskWatchdog

_NS_PER_MS: Final = 1_000_000


class EndOfTask:
    """Decides when a subtask may end. Mailbox thread only; consumers acknowledge from any thread."""

    def __init__(
        self, writers: Sequence[RecordWriter], wake: Callable[[], None], *, takes_checkpoints: bool
    ) -> None:
        self._writers: Final = writers
        self._wake: Final = wake
        self._waits: bool = takes_checkpoints
        self._unacknowledged = len(writers)
        self._final_id: int | None = None
        self._is_final_complete = False
        self.has_begun = False

    def begin(self, *, waits: bool) -> None:
        """Record that all data was emitted. `waits`: a checkpoint will come even if none are taken periodically."""
        self.has_begun = True
        self._waits = self._waits or waits
        if self._waits:
            for writer in self._writers:
                writer.partition.on_all_data_processed(self._acknowledged)

    def checkpoint_taken(self, checkpoint_id: int) -> None:
        """Record that the subtask took part in a checkpoint."""
        if self.has_begun and self._final_id is None:
            self._final_id = checkpoint_id

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Record a published checkpoint; any that was taken after the end of the data counts."""
        if self._final_id is not None and checkpoint_id >= self._final_id:
            self._is_final_complete = True

    def wait_for(self, checkpoint_id: int) -> None:
        """Wait for exactly this checkpoint, with which the job stops."""
        self._waits = True
        self._final_id = checkpoint_id

    @property
    def may_leave(self) -> bool:
        """True if the subtask waits for nothing more."""
        if not self._waits:
            return True
        return self._unacknowledged == 0 and self._is_final_complete

    def _acknowledged(self) -> None:
        self._unacknowledged -= 1
        self._wake()


class LatencyMarkerEmitter:
    """Emits a latency marker at once, then one per interval; never if the interval is 0. Mailbox thread only.

    `has_room` returns whether a row could be emitted now; if not, it calls its argument as soon as one can. Until then
    the marker waits, like a row, while its task goes on with mail and barriers.
    """

    def __init__(
        self,
        source_id: OperatorId,
        subtask_index: int,
        settings: Settings,
        timers: ProcessingTimeService,
        has_room: Callable[[Callable[[], None]], bool],
        emit: Callable[[LatencyMarker], None],
    ) -> None:
        self._source_id: Final = source_id
        self._subtask_index: Final = subtask_index
        # A timer has no fractions of a millisecond.
        self._interval_ms: Final = -int(-settings.duration_ms(LATENCY_INTERVAL) // 1)
        self._timers: Final = timers
        self._has_room: Final = has_room
        self._emit: Final = emit

    def start(self) -> None:
        """Start emitting; `quiesce` of the timers ends it."""
        if self._interval_ms > 0:
            self._timers.schedule(self._timers.now_ms(), self._fire)

    def _fire(self, _time_ms: int) -> None:
        self._send(LatencyMarker(self._timers.now_ms(), self._source_id, self._subtask_index))

    def _send(self, marker: LatencyMarker) -> None:
        if self._has_room(lambda: self._send(marker)):
            self._emit(marker)
            self._timers.schedule(self._timers.now_ms() + self._interval_ms, self._fire)


class Progress(enum.Enum):
    """Result of the default action."""

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
        self._barrier_times = BarrierTimes()
        self._has_ended = False
        self._stop_mode: StopMode | None = None
        self._stop_barrier: CheckpointBarrier | None = None
        find_modules(environment.settings)
        types = load_types(environment.vertex, payloads)
        gates = _typed_gates(environment, types[0])
        self._writers: Final = create_writers(environment, payloads)
        if is_debloated(environment.settings):
            for writer in self._writers:
                writer.limit_at_first(ROWS_AT_FIRST)
        self._edge_times: Final = EdgeTimes(environment.clock, len(self._writers))
        specs = load_specs(environment.vertex, payloads)
        self._debloating: Final = GateDebloating(
            gates, environment.settings, timers, self.times.active_ms
        )
        self._register_metrics(gates)
        self._stall_watch: Final = TaskWatchdog(
            f"{environment.vertex.name} ({environment.attempt_id.subtask_index + 1})",
            gates,
            self._writers,
            environment.settings,
            timers,
        )
        self.chain = OperatorChain(
            environment,
            types,
            specs,
            self._writers,
            timers,
            self.counters,
            mailbox,
            self.times.back_pressured_ms,
        )
        self.checkpoints: Final = SubtaskCheckpoints(
            environment, self.chain, self._writers, timers, self._fail_soon
        )
        self._reads: Final = QueryableState(
            self.chain.read_operator, environment.clock, mailbox.put
        )
        self._ending: Final = EndOfTask(
            self._writers,
            mailbox.wake,
            takes_checkpoints=_has_final_checkpoint(environment.settings),
        )

    def _fail_soon(self, error: BaseException) -> None:
        """Fail with `error` between two batches. Any thread."""

        def fail() -> None:
            raise error

        self._mailbox.put(fail)

    def open(self) -> None:
        """Open the operators; if they had finished before the restore, only report that again."""
        self.checkpoints.channels.restore()
        self.chain.open()
        if self.chain.is_finished:
            for writer in self._writers:
                writer.emit_marker(Watermark(MAX_WATERMARK))
            self._end(StopMode.DRAIN)
        self._debloating.start()
        self._stall_watch.start()

    def become_busy(self) -> None:
        """Count the time from now on as busy, also for mails and timers, until `process` sets the next occupation."""
        self.times.occupy(Occupation.BUSY)

    def process(self) -> Progress:
        """Process a batch or a part of one, unless an output is full, and account for the time."""
        for index, writer in enumerate(self._writers):
            if not writer.is_available:
                writer.on_available(self._mailbox.wake)
                self.times.occupy(Occupation.BACK_PRESSURED)
                self._edge_times.blame(index)
                return self._held_up()
        self._edge_times.blame(None)
        self.become_busy()
        if not self.chain.can_take_input:
            # Its operators are full, for example of running calls; it does not wait for its outputs.
            return self._held_up()
        progress = self._proceed()
        self._account_for_blocking()
        if self._debloating.is_resting:
            self._debloating.resume()
        if progress is Progress.NO_INPUT:
            self.times.occupy(Occupation.IDLE)
        return progress

    def _held_up(self) -> Progress:
        """Process only priority events, because an output is full."""
        return Progress.MORE if self._process_priority_event() else Progress.NO_OUTPUT

    def _process_priority_event(self) -> bool:
        """Process a priority event of an input, if there is one."""
        return False

    def _proceed(self) -> Progress:
        if self._stop_mode is None:
            progress = self._process_one()
            if progress is not Progress.FINISHED:
                return progress
            self._stop_mode = self._mode_of_inputs()
        if not self._has_ended:
            if self._stop_mode is StopMode.DRAIN and not self.chain.finish():
                return Progress.NO_INPUT
            self._end(self._stop_mode)
        progress = self._await_inputs()
        if not self._ending.may_leave:
            return Progress.NO_INPUT
        for writer in self._writers:
            writer.finish()
        return progress

    def _register_metrics(self, gates: Sequence[SingleInputGate]) -> None:
        group, counters = self.environment.metrics, self.counters
        is_detailed = self.environment.settings.get_option(DETAILED_METRICS)
        register_task_metrics(group, gates, self._writers, is_detailed=is_detailed)
        register_debloating_metrics(group, self._debloating)
        group.rate(names.NUM_RECORDS_IN_PER_SECOND, lambda: counters.records_in)
        group.rate(names.NUM_RECORDS_OUT_PER_SECOND, lambda: counters.records_out)
        group.gauge(
            names.CHECKPOINT_ALIGNMENT_TIME, lambda: self._barrier_times.alignment_ms * _NS_PER_MS
        )
        group.gauge(
            names.CHECKPOINT_START_DELAY, lambda: self._barrier_times.start_delay_ms * _NS_PER_MS
        )
        group.rate(names.MAILBOX_MAILS_PER_SECOND, lambda: self._mailbox.taken_count)
        for index, writer in enumerate(self._writers):

            def held_up_ms(index: int = index, writer: RecordWriter = writer) -> float:
                return self._edge_times.soft_ms(index) + writer.hard_back_pressured_ns / 1e6

            group.gauge(f"output.{index}.{names.EDGE_BACK_PRESSURED_TIME.name}", held_up_ms)

    @abstractmethod
    def _process_one(self) -> Progress:
        """Process a batch or a part of one. FINISHED once the inputs have ended and everything was processed."""

    def _await_inputs(self) -> Progress:
        """Wait until the inputs are finished, after the end of the data."""
        return Progress.FINISHED

    def _mode_of_inputs(self) -> StopMode:
        """Return the mode in which the inputs ended: DRAIN unless an upstream task was stopped without draining."""
        return StopMode.DRAIN

    def _end(self, mode: StopMode) -> None:
        """End the subtask after all rows were emitted, or stay for a checkpoint that is still to come."""
        self._stop_mode = mode
        self._has_ended = True
        self._timers.quiesce()
        self.chain.stop_mail()
        if mode is StopMode.NO_DRAIN and not self.chain.is_finished:
            self.chain.emit_held()
        for writer in self._writers:
            writer.emit_event(EndOfData(mode))
        self.checkpoints.operators_have_finished = mode is StopMode.DRAIN
        self._ending.begin(waits=self._stop_barrier is not None)
        if not self._ending.may_leave:
            self.environment.listener.data_ended(self.environment.attempt_id)
        if self._stop_barrier is not None:
            self.take_checkpoint(self._stop_barrier, BarrierTimes())

    def checkpoint_progress(self, checkpoint_id: int) -> CheckpointProgress:
        """Return this subtask's progress with a checkpoint. Any thread, because the task may be stuck."""
        queued_bytes = sum(each.gate.queued_bytes for each in self.environment.inputs)
        return msgspec.structs.replace(
            self.checkpoints.progress(checkpoint_id),
            queued_bytes=queued_bytes,
            occupation=self.times.occupation.name,
        )

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Start a checkpoint of the coordinator at this task."""
        now_ms = self.environment.clock.now_ms()
        times = BarrierTimes(start_delay_ms=max(0, now_ms - barrier.timestamp_ms))
        self.take_checkpoint(barrier, times)

    def take_checkpoint(self, barrier: CheckpointBarrier, times: BarrierTimes) -> None:
        """Take part in a checkpoint, after all data before the barrier has been processed."""
        self._barrier_times = times
        if self.checkpoints.take(barrier, times):
            self._ending.checkpoint_taken(barrier.checkpoint_id)
            if barrier.options.kind.is_synchronous:
                self._ending.wait_for(barrier.checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Record that a checkpoint is published."""
        self.checkpoints.notify_complete(checkpoint_id)
        self._ending.checkpoint_completed(self.checkpoints.latest_completed_id)
        self._mailbox.wake()

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """Record that a checkpoint failed."""
        self.checkpoints.notify_aborted(checkpoint_id, latest_completed_id)
        self._ending.checkpoint_completed(self.checkpoints.latest_completed_id)
        self._mailbox.wake()

    def _account_for_blocking(self) -> None:
        total_ns = sum(writer.hard_back_pressured_ns for writer in self._writers)
        if total_ns != self._hard_back_pressured_ns:
            self.times.hard_back_pressured(total_ns - self._hard_back_pressured_ns)
            self._hard_back_pressured_ns = total_ns

    def deliver_event(self, operator_id: OperatorId, payload: bytes) -> None:
        """Pass a coordinator's event to an operator; events after the end of the data are dropped."""
        if not self._has_ended:
            self.chain.deliver_event(operator_id, payload)

    def read_state(self, read: StateRead) -> None:
        """Start reading the current state of an operator."""
        self._reads.begin(read)

    def close(self) -> None:
        """Close operators; gates and writers are closed by the task."""
        self._timers.quiesce()
        self._reads.close()
        self.checkpoints.close()
        self.chain.close()


class SourceStreamTask(StreamTask):
    """Polls the source at the head of the chain."""

    _source: SourceOperator
    _has_source_ended = False
    # Checkpoints triggered during a batch: the source's position is already behind the whole batch.
    _triggered: tuple[CheckpointBarrier, ...] = ()

    def open(self) -> None:
        super().open()
        source = self.chain.head
        assert isinstance(source, SourceOperator)
        self._source = source
        emitter = LatencyMarkerEmitter(
            self.chain.head_id,
            self.environment.attempt_id.subtask_index,
            self.environment.settings,
            self._timers,
            self._has_room,
            self.chain.head_output.emit_latency_marker,
        )
        if not self.chain.is_finished:
            emitter.start()

    def _has_room(self, again: Callable[[], None]) -> bool:
        """Return whether no output is full; if one is, call `again` once there is room, unless the data ended."""

        def mail() -> None:
            self._mailbox.put(lambda: None if self._has_ended else again())

        for writer in self._writers:
            if not writer.is_available:
                writer.on_available(mail)
                return False
        return True

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Start a checkpoint; before a savepoint that stops the job, the data ends."""
        if self.chain.is_amid_batch:
            self._triggered += (barrier,)
        else:
            self._begin_checkpoint(barrier)

    def _begin_checkpoint(self, barrier: CheckpointBarrier) -> None:
        kind = barrier.options.kind
        if not kind.is_synchronous or self._stop_mode is not None:
            super().trigger_checkpoint(barrier)
            return
        reach(Failpoint.STOPPING)
        self._stop_barrier = barrier
        self._stop_mode = StopMode.NO_DRAIN
        if kind.is_drained:
            self._stop_mode = StopMode.DRAIN
            self.chain.emit_end_of_time()
        self._mailbox.wake()

    def _process_one(self) -> Progress:
        if self.chain.is_amid_batch:
            return self._go_on_with_batch()
        if self._has_source_ended:
            return Progress.FINISHED
        progress = self._poll_source()
        return Progress.MORE if self.chain.is_amid_batch else progress

    def _go_on_with_batch(self) -> Progress:
        self.chain.go_on_with_batch()
        if not self.chain.is_amid_batch:
            triggered, self._triggered = self._triggered, ()
            for barrier in triggered:
                self._begin_checkpoint(barrier)
        return Progress.MORE

    def _poll_source(self) -> Progress:
        output = self.chain.head_output
        records_out = output.records_out
        status = self._source.poll(output)
        if output.records_out != records_out:
            self.counters.records_in += output.records_out - records_out
        match status:
            case InputStatus.MORE_AVAILABLE:
                return Progress.MORE
            case InputStatus.NOTHING_AVAILABLE:
                return Progress.NO_INPUT
            case InputStatus.END_OF_INPUT:
                self._has_source_ended = True
                self.chain.emit_end_of_time()
                return Progress.FINISHED


def _typed_gates(environment: TaskEnvironment, head: OperatorTypes) -> list[SingleInputGate]:
    """Return the task's gates, and set the type of the rows that the head of the chain reads from each."""
    for gate_input in environment.inputs:
        gate_input.gate.read_as(head.inputs[gate_input.descriptor.input_number])
    return [gate_input.gate for gate_input in environment.inputs]


def _has_final_checkpoint(settings: Settings) -> bool:
    """Return whether a checkpoint will come after the end of the data: False if checkpoints end with finished tasks."""
    is_on = settings.duration_ms(CHECKPOINTING_INTERVAL) > 0
    return is_on and settings.get_option(AFTER_TASKS_FINISH)

"""Task: runs one attempt of a subtask from deployment to its end, driven by a runner.

`start`, `cancel`, `fail_externally` and `deliver_operator_event` may be called from any thread; everything else runs
on the task's own. The final state is reported once, when all resources are released. Source: Flink Task.
"""

import threading
from collections.abc import Callable
from typing import Final

from headrace.checkpoint.errors import (
    CheckpointFailureReason,
    StateReadError,
    SubtaskNotReadableError,
)
from headrace.checkpoint.handles import CheckpointProgress
from headrace.core.barriers import CheckpointBarrier, CheckpointOptions
from headrace.core.elements import CancelTaskException
from headrace.core.errors import UserCodeError
from headrace.core.ids import ExecutionAttemptId, OperatorId, ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.core.process.failpoints import Failpoint, reach
from headrace.core.process.process_log import PRINT_PREFIX, print_prefix
from headrace.core.threads import ThreadIds, own_thread_ids
from headrace.graph.job_graph import VertexPayloads
from headrace.metrics import names
from headrace.metrics.groups import samples_of
from headrace.metrics.latency import LatencyStats
from headrace.network.gates.partition_requests import AnswerVerdict, ProducerVerdict
from headrace.task.chain.queryable_state import StateRead
from headrace.task.environment import TaskEnvironment
from headrace.task.input_stream_tasks import create_stream_task
from headrace.task.mailbox import Mailbox, MailboxTimers
from headrace.task.metrics import MailboxLatency, TaskSamples
from headrace.task.stream_task import Progress, StreamTask
from headrace.task.task_runner import Step, TaskRunner

_MAILBOX_LATENCIES: Final = 60
"""Number of mails whose latency is remembered; one is sent for each reading of the metrics."""
_NS_PER_MS: Final = 1_000_000


class Task:
    """Runs the loop of one attempt.

    CREATED -> DEPLOYING -> INITIALIZING -> RUNNING -> FINISHED; CANCELING -> CANCELED after `cancel`; FAILED after an
    error of its own or `fail_externally`. An error during cancellation ends as CANCELED.

    Without `payloads` it waits in DEPLOYING for `deliver_payloads`; its partitions exist meanwhile.
    """

    def __init__(
        self,
        environment: TaskEnvironment,
        runner: TaskRunner,
        payloads: VertexPayloads | None = None,
    ) -> None:
        self._environment = environment
        self._runner = runner
        self._payloads = payloads
        self._early_events: list[tuple[OperatorId, bytes]] = []
        self.mailbox: Final = Mailbox()
        self._timers: Final = MailboxTimers(environment.clock)
        self._mailbox_latency: Final = MailboxLatency(environment.clock, self.mailbox.put)
        self._mailbox_latencies: Final = environment.metrics.histogram(
            names.MAILBOX_LATENCY, _MAILBOX_LATENCIES
        )
        self._stream_task: StreamTask | None = None
        self._thread_ids: ThreadIds | None = None
        # Guards `_state` and `_external_error` only: cancel comes from the control thread.
        self._lock: Final = threading.Lock()
        self._state = ExecutionState.CREATED
        self._external_error: BaseException | None = None
        self._work: Callable[[], Step] = self._deploy
        for gate_input in environment.inputs:
            gate_input.gate.check_producers_with(self._check_producer)

    @property
    def attempt_id(self) -> ExecutionAttemptId:
        """Id of this attempt."""
        return self._environment.attempt_id

    @property
    def state(self) -> ExecutionState:
        """Current state."""
        return self._state

    @property
    def thread_ids(self) -> ThreadIds | None:
        """Ids of the thread that runs the task's loop, or None before its first step. Any thread."""
        return self._thread_ids

    def start(self) -> None:
        """Start the task's loop."""
        name = f"{self._environment.vertex.name} ({self.attempt_id.subtask_index + 1})"
        self._runner.run(name, self)

    def cancel(self) -> None:
        """Stop as soon as possible; ends in CANCELED. No effect on a task that is ending or has ended."""
        with self._lock:
            if self._state.is_terminal or self._state is ExecutionState.CANCELING:
                return
            self._state = ExecutionState.CANCELING
        self._environment.listener.state_changed(self.attempt_id, ExecutionState.CANCELING, None)
        reach(Failpoint.CANCELLING)
        self._interrupt(CancelTaskException("the task was cancelled"))

    def fail_externally(self, error: BaseException) -> None:
        """Stop as soon as possible; ends in FAILED with `error`. No effect on a task that is ending or has ended."""
        with self._lock:
            if self._state.is_terminal or self._state is ExecutionState.CANCELING:
                return
            if self._external_error is None:
                self._external_error = error
        self._interrupt(error)

    def deliver_operator_event(self, operator_id: OperatorId, payload: bytes) -> None:
        """Pass an event of a coordinator to an operator; dropped if the task has ended."""

        def deliver() -> None:
            if self._stream_task is None:
                self._early_events.append((operator_id, payload))
            else:
                self._stream_task.deliver_event(operator_id, payload)

        self.mailbox.put(deliver)

    def checkpoint_progress(self, checkpoint_id: int) -> CheckpointProgress | None:
        """Return this task's progress with a checkpoint, or None while it is not running yet. Any thread."""
        stream_task = self._stream_task
        return None if stream_task is None else stream_task.checkpoint_progress(checkpoint_id)

    def trigger_checkpoint(
        self, checkpoint_id: int, timestamp_ms: int, options: CheckpointOptions
    ) -> None:
        """Start a checkpoint at this task; declined if the task is not running yet. Any thread."""

        def trigger() -> None:
            if self._stream_task is None or self._state is not ExecutionState.RUNNING:
                self._environment.listener.checkpoint_declined(
                    self.attempt_id,
                    checkpoint_id,
                    CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_NOT_READY,
                    f"the task is {self._state.name}",
                )
            else:
                self._stream_task.trigger_checkpoint(
                    CheckpointBarrier(checkpoint_id, timestamp_ms, options)
                )

        self.mailbox.put(trigger)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Record that a checkpoint is published. Any thread."""

        def notify() -> None:
            reach(Failpoint.NOTIFIED)
            if self._stream_task is not None:
                self._stream_task.notify_checkpoint_complete(checkpoint_id)

        self.mailbox.put(notify)

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """Record that a checkpoint failed. Any thread."""

        def notify() -> None:
            if self._stream_task is not None:
                self._stream_task.notify_checkpoint_aborted(checkpoint_id, latest_completed_id)

        self.mailbox.put(notify)

    def read_state(self, read: StateRead) -> None:
        """Start reading the state of an operator between two batches. Any thread.

        If the task ends meanwhile, the read may get no answer; the caller is notified of the end.
        """

        def begin() -> None:
            if self._stream_task is None or self._state is not ExecutionState.RUNNING:
                read.answer(self._not_readable())
            else:
                self._stream_task.read_state(read)

        if not self.mailbox.put(begin):
            read.answer(self._ended())

    def _not_readable(self) -> SubtaskNotReadableError:
        return SubtaskNotReadableError("the subtask", f"it is {self._state.name}")

    def _ended(self) -> StateReadError:
        """Return the error for a read after the mailbox closed, which is some time before the task's final state."""
        name = self._environment.vertex.subtask_name(self.attempt_id.subtask_index)
        state = self._state
        reason = f"is {state.name}" if state.is_terminal else "is ending"
        return StateReadError(
            f"the state of '{name}' cannot be read because it {reason}: read the job's last checkpoint instead"
        )

    def deliver_payloads(self, payloads: VertexPayloads) -> None:
        """Deliver the payloads that were not in the task's descriptor. Any thread."""

        def deliver() -> None:
            self._payloads = payloads

        self.mailbox.put(deliver)

    def metrics_snapshot(self) -> dict[str, float]:
        """Return the task's metrics under plain names and its operators' as `<operator>.<metric>`.

        May be called from any thread, also after the end.
        """
        self._mailbox_latency.measure(self._mailbox_latencies)
        # Metrics of the task's gates and writers, registered in its group; its sub-groups are the operators.
        values = dict(self._environment.metrics.own_snapshot())
        values.update(self._snapshot())
        stream_task = self._stream_task
        if stream_task is not None:
            values.update(stream_task.chain.metrics_snapshot())
        return values

    def user_counters(self) -> tuple[str, ...]:
        """Return the names of counters in `metrics_snapshot` that user functions created."""
        stream_task = self._stream_task
        return () if stream_task is None else stream_task.chain.user_counters()

    def metric_samples(self) -> TaskSamples:
        """Return the metrics of `metrics_snapshot` with the operators and sub-groups that they belong to."""
        self._mailbox_latency.measure(self._mailbox_latencies)
        group, stream_task = self._environment.metrics, self._stream_task
        own = [
            *group.own_samples(),
            *samples_of(self._snapshot()),
            *LatencyStats.samples_of(group),
        ]
        operators = {} if stream_task is None else stream_task.chain.metric_samples()
        return TaskSamples(own, operators)

    def _snapshot(self) -> dict[str, float]:
        """Return the metrics that the task keeps outside its metric group."""
        values: dict[str, float] = {names.MAILBOX_QUEUE_SIZE.name: self.mailbox.size}
        stream_task = self._stream_task
        if stream_task is not None:
            values.update(stream_task.counters.snapshot())
            values.update(stream_task.times.snapshot())
        return values

    def delay_to_next_timer_ms(self) -> float | None:
        return self._timers.delay_to_next_ms()

    def step(self) -> Step:
        """Run mail, due timers and one default action; an error ends the task."""
        try:
            self._check_interrupted()
            return self._work()
        except BaseException as error:
            self._terminate(error)
            return Step.DONE

    def _deploy(self) -> Step:
        self._thread_ids = own_thread_ids()
        parallelism = self._environment.vertex.parallelism
        PRINT_PREFIX.set(print_prefix(self.attempt_id.subtask_index, parallelism))
        self._reach(ExecutionState.DEPLOYING)
        self._work = self._initialize
        return Step.AGAIN

    def _initialize(self) -> Step:
        if self._payloads is None:
            for mail in self.mailbox.take_all():
                mail()
        # Large payloads are released as soon as they are loaded.
        payloads, self._payloads = self._payloads, None
        if payloads is None:
            return Step.WAIT
        self._stream_task = create_stream_task(
            self._environment, payloads, self.mailbox, self._timers
        )
        del payloads
        self._reach(ExecutionState.INITIALIZING)
        begun_ns = self._environment.clock.monotonic_ns()
        self._stream_task.open()
        if self._environment.restore is not None:
            reach(Failpoint.RESTORE_DONE)
        for gate_input in self._environment.inputs:
            gate_input.gate.request_partitions()
        took_ms = (self._environment.clock.monotonic_ns() - begun_ns) / _NS_PER_MS
        self._environment.metrics.gauge(names.INITIALIZATION_TIME, lambda: took_ms)
        self._reach(ExecutionState.RUNNING)
        for operator_id, payload in self._early_events:
            self._stream_task.deliver_event(operator_id, payload)
        self._early_events.clear()
        self._work = self._run
        return Step.AGAIN

    def _run(self) -> Step:
        stream_task = self._stream_task
        assert stream_task is not None
        mails = self.mailbox.take_all()
        if mails:
            stream_task.become_busy()
        for mail in mails:
            mail()
        self._timers.fire_due(stream_task.become_busy)
        self.mailbox.forget_wake_ups()
        # A cancellation meanwhile woke the task for this check, and that wake-up may have been forgotten.
        self._check_interrupted()
        match stream_task.process():
            case Progress.MORE:
                return Step.AGAIN
            case Progress.NO_INPUT | Progress.NO_OUTPUT:
                return Step.WAIT
            case Progress.FINISHED:
                self._terminate(None)
                return Step.DONE

    def _check_producer(self, partition_id: ResultPartitionId, answer: AnswerVerdict) -> None:
        def answered(verdict: ProducerVerdict) -> None:
            if verdict is ProducerVerdict.CANCEL:
                self.cancel()
            answer(verdict)

        self._environment.listener.check_producer(self.attempt_id, partition_id, answered)

    def _reach(self, state: ExecutionState) -> None:
        with self._lock:
            if self._state is ExecutionState.CANCELING:
                return
            self._state = state
        self._environment.listener.state_changed(self.attempt_id, state, None)

    def _check_interrupted(self) -> None:
        if self._state is ExecutionState.CANCELING:
            raise CancelTaskException("the task was cancelled")
        if self._external_error is not None:
            raise self._external_error

    def _interrupt(self, error: BaseException) -> None:
        """Wake the task wherever it waits: in its mailbox, in a gate or for a buffer."""
        for output in self._environment.outputs:
            output.partition.fail(error)
        for gate_input in self._environment.inputs:
            gate_input.gate.close()
        self.mailbox.interrupt(error)

    def _terminate(self, error: BaseException | None) -> None:
        """Release all resources, then report the final state."""
        error = self._release(error)
        with self._lock:
            if self._state is ExecutionState.CANCELING:
                final, error = ExecutionState.CANCELED, None
            elif self._external_error is not None:
                # Closing gates while a task reads them causes various errors; the given error is the cause.
                final, error = ExecutionState.FAILED, self._external_error
            elif error is not None:
                final = ExecutionState.FAILED
            else:
                final = ExecutionState.FINISHED
            self._state = final
        self._environment.listener.state_changed(self.attempt_id, final, self._located(error))

    def _release(self, error: BaseException | None) -> BaseException | None:
        self.mailbox.close()
        stream_task = self._stream_task
        if stream_task is not None:
            try:
                stream_task.close()
            except Exception as close_error:
                error = error or close_error
        for output in self._environment.outputs:
            if error is not None:
                output.partition.fail(error)
            if output.partition.is_finished:
                output.partition.close()
            else:
                output.partition.fail(None)
        for gate_input in self._environment.inputs:
            gate_input.gate.close()
        return error

    def _located(self, error: BaseException | None) -> BaseException | None:
        if isinstance(error, UserCodeError) and self._stream_task is not None:
            return self._stream_task.chain.blame(error)
        return error

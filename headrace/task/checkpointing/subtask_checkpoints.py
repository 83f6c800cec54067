"""SubtaskCheckpoints: takes one subtask's part of each checkpoint, in the order that exactly-once requires.

In one mail between two batches, everything that belongs before the barrier is emitted, the barrier goes to every
output, and the operators' states are frozen. Another thread writes the frozen states and answers the coordinator.
Source: Flink SubtaskCheckpointCoordinatorImpl, AsyncCheckpointRunnable.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import (
    CheckpointMetrics,
    CheckpointProgress,
    OperatorSubtaskState,
    StateChunk,
    StateTable,
    SubtaskPhase,
    TaskStateSnapshot,
)
from headrace.checkpoint.storage.snapshot_files import RevocableWriter
from headrace.core.barriers import CancelCheckpointMarker, CheckpointBarrier, CheckpointOptions
from headrace.core.ids import OperatorId
from headrace.core.process.failpoints import Failpoint, reach
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.writers.record_writer import RecordWriter
from headrace.state.backend import FrozenState, StateNotStorableError
from headrace.task.chain.operator_chain import FrozenOperator, OperatorChain
from headrace.task.checkpointing.channel_state import ChannelStates, InFlightData
from headrace.task.environment import TaskEnvironment
from headrace.task.mailbox import MailboxTimers

_LOG = logging.getLogger(__name__)

_ABORTED_IDS_MAX: Final = 128


@dataclass(frozen=True)
class BarrierTimes:
    """Start delay and alignment time of a checkpoint in ms, and the bytes of input processed meanwhile."""

    start_delay_ms: int = 0
    alignment_ms: int = 0
    processed_bytes: int = 0


class SubtaskCheckpoints:
    """Takes a subtask's part in checkpoints. Mailbox thread only, except for the asynchronous parts that it starts."""

    def __init__(
        self,
        environment: TaskEnvironment,
        chain: OperatorChain,
        writers: Sequence[RecordWriter],
        timers: MailboxTimers,
        fail: Callable[[BaseException], object],
    ) -> None:
        """Set up the checkpoints of one task. `fail` lets the task fail with an error; any thread."""
        self._fail: Final = fail
        self._environment: Final = environment
        self._chain: Final = chain
        self._writers: Final = writers
        self._timers: Final = timers
        self.channels: Final = ChannelStates(environment, writers)
        """Captures and restores the in-flight data."""
        self._last_id = 0
        # Aborts that arrived before the barriers; bounded, since most never concern this task.
        self._aborted: deque[int] = deque(maxlen=_ABORTED_IDS_MAX)
        self._running: dict[int, AsynchronousPart] = {}
        self._latest_completed = 0
        self.operators_have_finished = False
        """True once the operators have finished: later checkpoints hold their final state."""

    @property
    def latest_completed_id(self) -> int:
        """Latest checkpoint that is known to be published; 0 before the first."""
        return self._latest_completed

    def progress(self, checkpoint_id: int) -> CheckpointProgress:
        """Return the phase of the subtask's part in a checkpoint; the wait for input barriers is not included.

        Any thread.
        """
        part = self._running.get(checkpoint_id)
        if part is not None and not part.is_done:
            elapsed_ns = self._environment.clock.monotonic_ns() - part.frozen_at_ns
            return CheckpointProgress(SubtaskPhase.WRITING, elapsed_ns // 1_000_000)
        is_over = checkpoint_id <= self._last_id
        return CheckpointProgress(SubtaskPhase.ANSWERED if is_over else SubtaskPhase.NOT_SEEN)

    def take(self, barrier: CheckpointBarrier, times: BarrierTimes) -> bool:
        """Take part in a checkpoint; return False if it is already over. An error fails the task."""
        checkpoint_id, options = barrier.checkpoint_id, barrier.options
        if checkpoint_id <= self._last_id:
            return False
        self._last_id = checkpoint_id
        if checkpoint_id in self._aborted:
            self._broadcast(CancelCheckpointMarker(checkpoint_id))
            return False
        clock = self._environment.clock
        started_ns = clock.monotonic_ns()
        if not self.operators_have_finished:
            self._chain.prepare_snapshot_pre_barrier(checkpoint_id)
        in_flight = self.channels.snapshot(checkpoint_id, self._emit_barrier(barrier, times))
        frozen = [] if self._chain.is_finished else self._chain.freeze(checkpoint_id, options)
        sync_ms = (clock.monotonic_ns() - started_ns) // 1_000_000
        metrics = CheckpointMetrics(
            start_delay_ms=times.start_delay_ms,
            alignment_ms=times.alignment_ms,
            sync_ms=sync_ms,
            is_unaligned=options.is_unaligned,
            processed_bytes=times.processed_bytes,
        )
        has_finished = self.operators_have_finished
        part = AsynchronousPart(
            self._environment, barrier, frozen, in_flight, metrics, has_finished, self._fail
        )
        self._running = {key: one for key, one in self._running.items() if not one.is_done}
        self._running[checkpoint_id] = part
        # If the barrier may still overtake, the part starts once it has, or was taken in order.
        in_flight.on_ready(part.start)
        return True

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, text: str) -> None:
        """Decline a checkpoint: tell the coordinator and downstream tasks."""
        self.give_up(checkpoint_id)
        attempt_id = self._environment.attempt_id
        self._environment.listener.checkpoint_declined(attempt_id, checkpoint_id, reason, text)

    def give_up(self, checkpoint_id: int) -> None:
        """Abandon a checkpoint, and tell downstream tasks not to wait for its barrier."""
        self._last_id = max(self._last_id, checkpoint_id)
        self._broadcast(CancelCheckpointMarker(checkpoint_id))

    def notify_complete(self, checkpoint_id: int) -> None:
        """Record a published checkpoint, which also completes earlier ones without a notification."""
        if checkpoint_id > self._latest_completed:
            self._latest_completed = checkpoint_id
            self._chain.notify_checkpoint_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """Record a failed checkpoint, after the latest completed one if its notification was lost."""
        if latest_completed_id > 0:
            self.notify_complete(latest_completed_id)
        part = self._running.pop(checkpoint_id, None)
        if part is not None:
            part.cancel()
        if checkpoint_id > self._last_id:
            self._aborted.append(checkpoint_id)
        self._chain.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Cancel the parts that are still being written, because the task ends."""
        for part in self._running.values():
            part.cancel()
        self._running.clear()

    def _emit_barrier(
        self, barrier: CheckpointBarrier, times: BarrierTimes
    ) -> list[InFlightOutput]:
        """Send a barrier to all outputs; return the data that it overtakes in each."""
        elapsed_ms = times.start_delay_ms + times.alignment_ms
        passed_on = msgspec.structs.replace(barrier, elapsed_ms=elapsed_ms)
        forced = msgspec.structs.replace(
            passed_on, options=passed_on.options.with_forced_alignment()
        )
        captures = [
            writer.emit_barrier(passed_on if output.edge.supports_unaligned else forced)
            for output, writer in zip(self._environment.outputs, self._writers, strict=True)
        ]
        if not all(capture.is_done for capture in captures):
            left_ms = max(0, passed_on.options.aligned_timeout_ms - elapsed_ms)
            self._timers.schedule(
                self._timers.now_ms() + left_ms, self._time_out(barrier.checkpoint_id)
            )
        return captures

    def _time_out(self, checkpoint_id: int) -> Callable[[int], None]:
        """Return a timer callback that lets a barrier still queued in an output overtake the data before it."""

        def time_out(_time_ms: int) -> None:
            for writer in self._writers:
                writer.time_out_barrier(checkpoint_id)

        return time_out

    def _broadcast(self, marker: CancelCheckpointMarker) -> None:
        for writer in self._writers:
            writer.emit_event(marker)


class AsynchronousPart:
    """Writes frozen state and answers the coordinator; after `cancel` it releases the state without an answer.

    It deletes files that the coordinator does not know of.
    """

    def __init__(
        self,
        environment: TaskEnvironment,
        barrier: CheckpointBarrier,
        frozen: Sequence[FrozenOperator],
        in_flight: InFlightData,
        metrics: CheckpointMetrics,
        is_finished: bool,
        fail: Callable[[BaseException], object],
    ) -> None:
        self._fail: Final = fail
        self._environment: Final = environment
        self._checkpoint_id: Final = barrier.checkpoint_id
        self._options: Final[CheckpointOptions] = barrier.options
        self._frozen: Final = frozen
        self._in_flight: Final = in_flight
        self._metrics: Final = metrics
        self._is_finished: Final = is_finished
        self._writer: Final = RevocableWriter(
            environment.snapshots.writer(self._options, self._name()), self._options.exclusive_uri
        )
        # Guards the two flags: the first of answer and cancellation decides.
        self._lock: Final = threading.Lock()
        self._is_cancelled = False
        self.is_done = False
        self.frozen_at_ns: Final = environment.clock.monotonic_ns()

    def start(self) -> None:
        """Start writing on another thread; with nothing to write, finish at once."""
        if self._in_flight.is_abandoned:
            self.cancel()
        if any(operator.states for operator in self._frozen) or not self._in_flight.is_empty:
            self._environment.run_blocking(f"checkpoint {self._checkpoint_id}", self._run)
        else:
            self._run()

    def cancel(self) -> None:
        """Suppress the answer. Any thread."""
        with self._lock:
            self._is_cancelled = True
        self._in_flight.abandon()

    def _run(self) -> None:
        environment = self._environment
        started_ns = environment.clock.monotonic_ns()
        try:
            operators = self._write()
        except Exception as error:
            _LOG.warning("checkpoint %d of %s: %s", self._checkpoint_id, self._name(), error)
            if self._finish():
                self._answer_failure(error)
            self._writer.revoke()
            return
        finally:
            for state in self._states():
                state.discard()
        if operators is None or not self._finish():
            self._writer.revoke()
            return
        metrics = msgspec.structs.replace(
            self._metrics,
            async_ms=(environment.clock.monotonic_ns() - started_ns) // 1_000_000,
            written_bytes=sum(state.size_bytes for state in operators.values()),
            in_flight_bytes=sum(
                chunk.file.size_bytes
                for state in operators.values()
                for chunk in state.chunks
                if chunk.table is StateTable.CHANNELS
            ),
        )
        reach(Failpoint.UPLOAD_DONE)
        snapshot = TaskStateSnapshot(operators, self._is_finished)
        environment.listener.checkpoint_acknowledged(
            environment.attempt_id, self._checkpoint_id, snapshot, metrics
        )

    def _answer_failure(self, error: Exception) -> None:
        environment = self._environment
        if isinstance(error, StateNotStorableError):
            self._fail(
                error
            )  # the next checkpoint would fail on the same value, and so would a restarted task
            return
        environment.listener.checkpoint_declined(
            environment.attempt_id,
            self._checkpoint_id,
            CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
            f"{type(error).__name__}: {error}",
        )

    def _write(self) -> dict[OperatorId, OperatorSubtaskState] | None:
        """Write everything; return None once cancelled."""
        chunks: dict[OperatorId, list[StateChunk]] = {}
        if not self._in_flight.is_empty:
            chunks = self._in_flight.write(self._writer)
        for frozen in self._frozen:
            own = chunks.setdefault(frozen.operator_id, [])
            own.append(frozen.watermarks)
            for state in frozen.states:
                if self._is_cancelled:
                    return None
                own += state.write(self._writer)
                reach(Failpoint.UPLOAD_HALF)
        if self._is_cancelled:
            return None
        committables = {frozen.operator_id: tuple(frozen.committables) for frozen in self._frozen}
        return {
            operator_id: OperatorSubtaskState(tuple(own), committables.get(operator_id, ()))
            for operator_id, own in chunks.items()
        }

    def _finish(self) -> bool:
        """Return whether the answer may be sent."""
        with self._lock:
            self.is_done = True
            return not self._is_cancelled

    def _states(self) -> list[FrozenState]:
        return [state for frozen in self._frozen for state in frozen.states]

    def _name(self) -> str:
        attempt_id = self._environment.attempt_id
        vertex_id = attempt_id.execution_vertex_id.vertex_id.hex()[:8]
        return f"{vertex_id}-{attempt_id.subtask_index}-{attempt_id.attempt_number}"

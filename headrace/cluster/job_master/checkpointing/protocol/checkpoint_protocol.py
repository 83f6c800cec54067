"""CheckpointProtocol: decides when to take checkpoints, and follows each to its end. Pure: events in, actions out.

`events` shows the steps of one checkpoint; from any step before Publish it may end with NotifyAborted instead.
Coordinators of operators are snapshotted before any barrier is sent: work that they assign afterwards belongs to the
next checkpoint. One request at a time is between PrepareCheckpoint and SendTriggers, and one checkpoint at a time is
being published, so that ids complete in rising order. Times are monotonic milliseconds.
Source: Flink CheckpointCoordinator, CheckpointRequestDecider, PendingCheckpoint.
"""

from dataclasses import dataclass, field
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import TIMEOUT, UNALIGNED
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_failure_manager import (
    CheckpointFailureManager,
)
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_request_decider import (
    CheckpointRequestDecider,
    PeriodicSchedule,
    TooEarly,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import (
    BacklogChanged,
    BrakesChanged,
    CheckpointPrepared,
    CheckpointRequested,
    CheckpointStepFailed,
    CheckpointTimedOut,
    CoordinatorAction,
    CoordinatorEvent,
    CoordinatorsSnapshotted,
    DiscardFiles,
    FailJob,
    FailRequest,
    NotifyAborted,
    NotifyComplete,
    PeriodicTimerFired,
    PrepareCheckpoint,
    Publish,
    Published,
    RegisterSharedState,
    SchedulingStarted,
    SchedulingStopped,
    SendTriggers,
    SnapshotCoordinators,
    TaskAcknowledged,
    TaskDeclined,
    TaskGone,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import (
    AckVerdict,
    CheckpointRequest,
    PendingCheckpoint,
    PendingPhase,
    RecentCheckpoints,
)
from headrace.core.barriers import CheckpointOptions
from headrace.core.ids import ExecutionAttemptId
from headrace.core.randomness import SeededRandom

_R = CheckpointFailureReason
_SLOW_REMEDY: Final = (
    f"raise {TIMEOUT.key}, or set {UNALIGNED.key} so that barriers overtake records"
)


@dataclass
class _Trigger:
    """The only request between PrepareCheckpoint and SendTriggers.

    `gone`: attempts that ended during its preparation.
    """

    request: CheckpointRequest
    checkpoint_id: int | None = None
    gone: dict[ExecutionAttemptId, CheckpointFailureReason] = field(
        default_factory=dict[ExecutionAttemptId, CheckpointFailureReason]
    )


class CheckpointProtocol:
    """Checkpoints of one job under one JobMaster. `handle` returns actions for each event, to be performed in order."""

    def __init__(
        self, configuration: CheckpointCoordinatorConfiguration, random: SeededRandom
    ) -> None:
        self._configuration = configuration
        self._decider = CheckpointRequestDecider(configuration.max_concurrent)
        self._failures = CheckpointFailureManager(configuration.tolerable_failure_count)
        self._pending: dict[int, PendingCheckpoint] = {}
        self._over: Final = RecentCheckpoints()
        self._latest_completed_id = 0
        self._last_completion_ms = float("-inf")
        self._trigger: _Trigger | None = None
        self._schedule = PeriodicSchedule(configuration, random)
        self._is_shut_down = False
        self._cleaning_count = 0
        self._is_commit_backlog_full = False
        self._actions: list[CoordinatorAction] = []
        self._now_ms = 0.0

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        """Pending checkpoints, by id."""
        return tuple(self._pending.values())

    @property
    def latest_completed_id(self) -> int:
        """Id of the newest checkpoint that was published or restored; 0 before the first."""
        return self._latest_completed_id

    @property
    def is_publishing(self) -> bool:
        """Return whether a publication is in progress, which cannot be undone."""
        return any(each.phase is PendingPhase.PUBLISHING for each in self._pending.values())

    @property
    def is_triggering(self) -> bool:
        """Return whether a checkpoint is being prepared, and is not pending yet."""
        return self._trigger is not None and self._trigger.checkpoint_id is None

    def is_preparing(self, number: int) -> bool:
        """Return whether this request is being prepared, and was not aborted."""
        trigger = self._trigger
        return self.is_triggering and trigger is not None and trigger.request.number == number

    @property
    def is_idle(self) -> bool:
        """Return whether no checkpoint is pending, and no request waits."""
        return not self._pending and self._trigger is None and self._decider.is_empty

    def restored(self, checkpoint_id: int) -> None:
        """Start from the checkpoint that the job has restored."""
        self._latest_completed_id = max(self._latest_completed_id, checkpoint_id)

    def handle(self, event: CoordinatorEvent, monotonic_ms: float) -> list[CoordinatorAction]:
        """Process an event; return the actions to perform, in order."""
        self._actions = []
        self._now_ms = monotonic_ms
        self._dispatch(event)
        return self._actions

    def _dispatch(self, event: CoordinatorEvent) -> None:
        match event:
            case SchedulingStarted():
                if not self._is_shut_down:
                    self._actions += self._schedule.start(self._now_ms)
            case BacklogChanged(is_backlog):
                self._actions += self._schedule.backlog_changed(self._now_ms, is_backlog)
            case SchedulingStopped(reason):
                self._stop(reason)
            case PeriodicTimerFired(generation):
                self._timer_fired(generation)
            case CheckpointRequested(number, kind, target):
                forced = kind.is_savepoint and self._configuration.forces_savepoints
                self._want(CheckpointRequest(number, kind, False, forced, target))
            case BrakesChanged(cleaning_count, is_full):
                self._cleaning_count = cleaning_count
                self._is_commit_backlog_full = is_full
                self._try_next()
            case _:
                self._checkpoint_event(event)

    def _checkpoint_event(self, event: CoordinatorEvent) -> None:
        match event:
            case CheckpointPrepared():
                self._prepared(event)
            case CoordinatorsSnapshotted():
                self._coordinators_snapshotted(event)
            case CheckpointStepFailed():
                self._step_failed(event)
            case TaskAcknowledged():
                self._acknowledged(event)
            case TaskDeclined(attempt_id, checkpoint_id, reason, text):
                checkpoint = self._pending.get(checkpoint_id)
                if checkpoint is not None and checkpoint.concerns(attempt_id):
                    self._abort(checkpoint, reason, text or reason.value)
            case TaskGone(attempt_id, is_failure):
                self._task_gone(attempt_id, is_failure)
            case CheckpointTimedOut(checkpoint_id, text):
                self._timed_out(checkpoint_id, text)
            case Published(completed):
                self._published(completed)
            case _:
                raise AssertionError(event)

    # When

    def _timer_fired(self, generation: int) -> None:
        fired = self._schedule.fired(self._now_ms, generation)
        if fired is not None:
            timer, request = fired
            self._do(timer)
            self._want(request)

    def _stop(self, reason: CheckpointFailureReason) -> None:
        self._schedule.stop()
        if reason is _R.CHECKPOINT_COORDINATOR_SHUTDOWN:
            self._is_shut_down = True
        trigger, self._trigger = self._trigger, None
        if trigger is not None and trigger.checkpoint_id is None:
            self._do(FailRequest(trigger.request, reason, reason.value))
        for request in self._decider.clear():
            self._do(FailRequest(request, reason, reason.value))
        for checkpoint in self.pending:
            self._abort(checkpoint, reason, reason.value)

    def _want(self, request: CheckpointRequest) -> None:
        if self._is_shut_down:
            reason = _R.CHECKPOINT_COORDINATOR_SHUTDOWN
            self._do(FailRequest(request, reason, reason.value))
            return
        turned_away = self._decider.put(request)
        if turned_away is not None:
            reason = _R.TOO_MANY_CHECKPOINT_REQUESTS
            self._do(FailRequest(turned_away, reason, reason.value))
        self._try_next()

    def _try_next(self) -> None:
        if self._trigger is not None or self._is_commit_backlog_full:
            return
        pause_left_ms = self._last_completion_ms + self._configuration.min_pause_ms - self._now_ms
        chosen = self._decider.choose(
            pending_count=len(self._pending),
            cleaning_count=self._cleaning_count,
            pause_left_ms=pause_left_ms,
        )
        match chosen:
            case None:
                return
            case TooEarly(request, remaining_ms):
                reason = _R.MINIMUM_TIME_BETWEEN_CHECKPOINTS
                self._do(FailRequest(request, reason, reason.value))
                self._actions += self._schedule.put_off(self._now_ms, remaining_ms)
            case CheckpointRequest():
                self._begin(chosen)

    # The trigger

    def _begin(self, request: CheckpointRequest) -> None:
        self._trigger = _Trigger(request)
        if request.is_periodic and not self._schedule.is_on:
            reason = _R.PERIODIC_SCHEDULER_SHUTDOWN
            self._trigger_failed(reason, reason.value)
            return
        self._do(PrepareCheckpoint(request))

    def _prepared(self, event: CheckpointPrepared) -> None:
        trigger, checkpoint_id = self._trigger, event.checkpoint_id
        if trigger is None or trigger.request.number != event.number:
            self._do(DiscardFiles(checkpoint_id, event.options))
            return
        gone = next((each for each in event.plan.to_wait_for if each in trigger.gone), None)
        if gone is not None:
            self._do(DiscardFiles(checkpoint_id, event.options))
            self._trigger_failed(trigger.gone[gone], f"task {gone} has ended")
            return
        last_id = max(self._pending, default=self._latest_completed_id)
        assert checkpoint_id > last_id, f"id {checkpoint_id} was assigned after id {last_id}"
        trigger.checkpoint_id = checkpoint_id
        checkpoint = PendingCheckpoint(
            checkpoint_id, event.timestamp_ms, trigger.request, event.plan, event.options
        )
        self._pending[checkpoint_id] = checkpoint
        self._do(SnapshotCoordinators(checkpoint, self._configuration.timeout_ms))

    def _trigger_failed(self, reason: CheckpointFailureReason, text: str) -> None:
        """End a request that has no id yet."""
        trigger, self._trigger = self._trigger, None
        assert trigger is not None and trigger.checkpoint_id is None
        self._do(FailRequest(trigger.request, reason, text))
        why_job_fails = self._failures.why_job_fails(trigger.request.kind, reason, None)
        if why_job_fails:
            self._do(FailJob(why_job_fails.format(text), reason))
        self._try_next()

    def _coordinators_snapshotted(self, event: CoordinatorsSnapshotted) -> None:
        checkpoint = self._pending.get(event.checkpoint_id)
        if checkpoint is None:
            return
        checkpoint.coordinator_states = event.states
        checkpoint.phase = PendingPhase.TRIGGERED
        self._trigger = None
        self._do(SendTriggers(checkpoint))
        self._publish_if_ready()
        self._try_next()

    # Answers

    def _acknowledged(self, event: TaskAcknowledged) -> None:
        checkpoint = self._pending.get(event.checkpoint_id)
        if checkpoint is None or not checkpoint.kind.is_savepoint:
            # Record them even for an ended checkpoint: the task's next increment may refer to these files.
            self._do(RegisterSharedState(event.checkpoint_id, event.snapshot))
        verdict = AckVerdict.UNKNOWN
        if checkpoint is not None:
            verdict = checkpoint.acknowledge(event.attempt_id, event.snapshot, event.metrics)
        match verdict:
            case AckVerdict.UNKNOWN:
                if self._over.is_superfluous(event.checkpoint_id, self._latest_completed_id):
                    files = tuple(event.snapshot.files())
                    self._do(DiscardFiles(event.checkpoint_id, CheckpointOptions(), files))
            case AckVerdict.DUPLICATE:
                pass
            case AckVerdict.ACCEPTED:
                self._publish_if_ready()

    def _task_gone(self, attempt_id: ExecutionAttemptId, is_failure: bool) -> None:
        # A finished task does not answer either: checkpoints that wait for it would wait in vain.
        reason = _R.TASK_FAILURE if is_failure else _R.CHECKPOINT_DECLINED_TASK_CLOSING
        if self._trigger is not None:
            self._trigger.gone[attempt_id] = reason
        for checkpoint in self.pending:
            if checkpoint.waits_for(attempt_id):
                self._abort(checkpoint, reason, f"task {attempt_id}: {reason.value}")

    def _timed_out(self, checkpoint_id: int, text: str) -> None:
        checkpoint = self._pending.get(checkpoint_id)
        if checkpoint is not None:
            why = text or f"{len(checkpoint.waiting)} subtask(s) had not answered"
            reason = _R.CHECKPOINT_EXPIRED
            self._abort(checkpoint, reason, f"{reason.value}: {why}; {_SLOW_REMEDY}")

    # The end

    def _publish_if_ready(self) -> None:
        """Start to publish the lowest checkpoint that all subtasks have acknowledged."""
        if self.is_publishing:
            return
        for checkpoint in self._pending.values():
            if checkpoint.phase is PendingPhase.TRIGGERED and checkpoint.is_acknowledged:
                checkpoint.phase = PendingPhase.READY
        ready = [each for each in self._pending.values() if each.phase is PendingPhase.READY]
        if ready:
            ready[0].phase = PendingPhase.PUBLISHING
            self._over.publication_begun(ready[0].checkpoint_id)
            self._do(Publish(ready[0]))

    def _published(self, completed: CompletedCheckpoint) -> None:
        checkpoint_id = completed.checkpoint_id
        checkpoint = self._pending.pop(checkpoint_id)
        assert checkpoint.phase is PendingPhase.PUBLISHING
        self._last_completion_ms = self._now_ms
        self._failures.succeeded(checkpoint_id)
        if checkpoint.commits:
            self._latest_completed_id = max(self._latest_completed_id, checkpoint_id)
            self._over.completed(self._latest_completed_id)
            for other in self.pending:
                if other.checkpoint_id < checkpoint_id and other.is_subsumable:
                    reason = _R.CHECKPOINT_SUBSUMED
                    self._abort(other, reason, f"checkpoint {checkpoint_id} was complete first")
        self._do(NotifyComplete(checkpoint, completed))
        self._publish_if_ready()
        self._try_next()

    def _step_failed(self, event: CheckpointStepFailed) -> None:
        number = event.number
        if self.is_preparing(number):
            self._trigger_failed(event.reason, event.text)
            return
        checkpoint = next((each for each in self.pending if each.request.number == number), None)
        if checkpoint is None:
            return
        if checkpoint.phase is PendingPhase.PUBLISHING:
            checkpoint.phase = PendingPhase.READY
        self._abort(checkpoint, event.reason, event.text, keeps_files=event.keeps_files)
        self._publish_if_ready()

    def _abort(
        self,
        checkpoint: PendingCheckpoint,
        reason: CheckpointFailureReason,
        text: str,
        *,
        keeps_files: bool = False,
    ) -> None:
        """Abort a checkpoint, unless its publication is in progress: then the storage decides."""
        if checkpoint.phase is PendingPhase.PUBLISHING:
            return
        del self._pending[checkpoint.checkpoint_id]
        self._over.given_up(checkpoint.checkpoint_id)
        trigger = self._trigger
        if trigger is not None and trigger.checkpoint_id == checkpoint.checkpoint_id:
            self._trigger = None
        self._do(NotifyAborted(checkpoint, reason, text, self._latest_completed_id, keeps_files))
        self._do(FailRequest(checkpoint.request, reason, text))
        why_job_fails = self._failures.why_job_fails(
            checkpoint.kind,
            reason,
            checkpoint.checkpoint_id,
            is_awaited=checkpoint.is_awaited_by_tasks,
        )
        if why_job_fails:
            self._do(FailJob(why_job_fails.format(text), reason))
        self._try_next()

    def _do(self, action: CoordinatorAction) -> None:
        self._actions.append(action)

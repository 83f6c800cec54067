"""Events that the CheckpointProtocol receives, and actions that it requests.

    CheckpointRequested -> PrepareCheckpoint -> CheckpointPrepared -> SnapshotCoordinators -> CoordinatorsSnapshotted
    -> SendTriggers -> TaskAcknowledged (of all) -> Publish -> Published -> NotifyComplete

A checkpoint gets its id when it is prepared: until then it is identified by the number of its request, so that answers
to an abandoned request have no effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, StateFile, TaskStateSnapshot
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import CheckpointPlan
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import (
    CheckpointRequest,
    PendingCheckpoint,
)
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.ids import ExecutionAttemptId, OperatorId

# Events


@dataclass(frozen=True)
class SchedulingStarted:
    """The job runs, so that periodic checkpoints begin."""


@dataclass(frozen=True)
class SchedulingStopped:
    """The job does not run, for now or for good; all requests and pending checkpoints fail with `reason`."""

    reason: CheckpointFailureReason = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND


@dataclass(frozen=True)
class BacklogChanged:
    """A source has started to process a backlog, or none does any more."""

    is_backlog: bool


@dataclass(frozen=True)
class BrakesChanged:
    """The number of checkpoints being deleted, or the backlog of sinks' commits, has changed."""

    cleaning_count: int
    is_commit_backlog_full: bool = False


@dataclass(frozen=True)
class PeriodicTimerFired:
    """The timer of ArmPeriodicTimer has fired."""

    generation: int


@dataclass(frozen=True)
class CheckpointRequested:
    """A caller requests a checkpoint; `target` is the directory of a savepoint."""

    number: int
    kind: SnapshotKind
    target: str = ""


@dataclass(frozen=True)
class CheckpointPrepared:
    """Answers PrepareCheckpoint.

    `options` name the checkpoint's location; `timestamp_ms` is wall clock, for people. `plan`: as of PrepareCheckpoint.
    """

    number: int
    checkpoint_id: int
    timestamp_ms: int
    plan: CheckpointPlan
    options: CheckpointOptions


@dataclass(frozen=True)
class CoordinatorsSnapshotted:
    """Answers SnapshotCoordinators with the state of every operator coordinator."""

    checkpoint_id: int
    states: Mapping[OperatorId, bytes]


@dataclass(frozen=True)
class CheckpointStepFailed:
    """Answers PrepareCheckpoint, SnapshotCoordinators or Publish: the step failed.

    `keeps_files`: the checkpoint may be complete after all.
    """

    number: int
    reason: CheckpointFailureReason
    text: str
    keeps_files: bool = False


@dataclass(frozen=True)
class TaskAcknowledged:
    """A subtask has stored its part."""

    attempt_id: ExecutionAttemptId
    checkpoint_id: int
    snapshot: TaskStateSnapshot
    metrics: CheckpointMetrics


@dataclass(frozen=True)
class TaskDeclined:
    """A subtask declines its part."""

    attempt_id: ExecutionAttemptId
    checkpoint_id: int
    reason: CheckpointFailureReason
    text: str = ""


@dataclass(frozen=True)
class TaskGone:
    """An attempt has ended; `is_failure` means without finishing."""

    attempt_id: ExecutionAttemptId
    is_failure: bool = True


@dataclass(frozen=True)
class CheckpointTimedOut:
    """The time-out that SnapshotCoordinators set has passed. `text` names the subtasks that have not answered."""

    checkpoint_id: int
    text: str = ""


@dataclass(frozen=True)
class Published:
    """Answers Publish: the checkpoint is durable."""

    completed: CompletedCheckpoint


CoordinatorEvent = (
    SchedulingStarted
    | SchedulingStopped
    | BacklogChanged
    | BrakesChanged
    | PeriodicTimerFired
    | CheckpointRequested
    | CheckpointPrepared
    | CoordinatorsSnapshotted
    | CheckpointStepFailed
    | TaskAcknowledged
    | TaskDeclined
    | TaskGone
    | CheckpointTimedOut
    | Published
)

# Actions


@dataclass(frozen=True)
class ArmPeriodicTimer:
    """Send PeriodicTimerFired after `delay_ms`, and cancel any earlier timer."""

    generation: int
    delay_ms: float


@dataclass(frozen=True)
class PrepareCheckpoint:
    """Plan the participating subtasks, reserve the next id durably, and create the location.

    Answer with CheckpointPrepared or CheckpointStepFailed.
    """

    request: CheckpointRequest


@dataclass(frozen=True)
class SnapshotCoordinators:
    """Snapshot all operator coordinators and close their valves.

    Answer with CoordinatorsSnapshotted or CheckpointStepFailed. After `timeout_ms` send CheckpointTimedOut, unless
    Publish or NotifyAborted comes first.
    """

    checkpoint: PendingCheckpoint
    timeout_ms: float


@dataclass(frozen=True)
class SendTriggers:
    """Trigger the tasks that no barrier reaches otherwise."""

    checkpoint: PendingCheckpoint


@dataclass(frozen=True)
class RegisterSharedState:
    """Record that the snapshot's shared files exist and belong to this checkpoint, even if it fails."""

    checkpoint_id: int
    snapshot: TaskStateSnapshot


@dataclass(frozen=True)
class DiscardFiles:
    """Delete the location in `options`, if any, and those of `files` that are not shared."""

    checkpoint_id: int
    options: CheckpointOptions
    files: tuple[StateFile, ...] = ()


@dataclass(frozen=True)
class Publish:
    """Store the metadata; answer with Published or CheckpointStepFailed."""

    checkpoint: PendingCheckpoint


@dataclass(frozen=True)
class NotifyComplete:
    """Complete the request; if the checkpoint commits, commit its output and notify its tasks and all coordinators."""

    checkpoint: PendingCheckpoint
    completed: CompletedCheckpoint


@dataclass(frozen=True)
class NotifyAborted:
    """Delete the checkpoint's files, unless `keeps_files`, and notify its tasks and all coordinators."""

    checkpoint: PendingCheckpoint
    reason: CheckpointFailureReason
    text: str
    latest_completed_id: int
    keeps_files: bool = False


@dataclass(frozen=True)
class FailRequest:
    """Fail the request of a snapshot at its caller."""

    request: CheckpointRequest
    reason: CheckpointFailureReason
    text: str


@dataclass(frozen=True)
class FailJob:
    """Fail the job: more checkpoints failed than are tolerated, or tasks wait for one that failed.

    `reason` is that of the last failed checkpoint.
    """

    text: str
    reason: CheckpointFailureReason


CoordinatorAction = (
    ArmPeriodicTimer
    | PrepareCheckpoint
    | SnapshotCoordinators
    | SendTriggers
    | RegisterSharedState
    | DiscardFiles
    | Publish
    | NotifyComplete
    | NotifyAborted
    | FailRequest
    | FailJob
)

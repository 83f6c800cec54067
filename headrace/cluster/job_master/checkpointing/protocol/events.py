"""What the checkpoint coordinator hears (events) and what it wants done (actions).

Steps of one trigger carry the request's number, so that answers to a trigger that was given up change nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointPlan
from headrace.cluster.job_master.checkpointing.protocol.request_queue import CheckpointRequest
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.ids import ExecutionAttemptId, OperatorId

# Events


@dataclass(frozen=True)
class SchedulingStarted:
    """The job runs: periodic checkpoints begin."""


@dataclass(frozen=True)
class SchedulingStopped:
    """The job does not run, for now or for good; whatever is under way comes to nothing."""

    reason: CheckpointFailureReason = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND


@dataclass(frozen=True)
class BacklogChanged:
    """Some source works off a backlog from now on, or none does any more."""

    is_backlog: bool


@dataclass(frozen=True)
class PeriodicTimerFired:
    """The timer that ArmPeriodicTimer asked for."""

    generation: int


@dataclass(frozen=True)
class CheckpointRequested:
    """Somebody wants one; `target` is the directory of a savepoint."""

    number: int
    kind: SnapshotKind
    target: str = ""


@dataclass(frozen=True)
class PlanCalculated:
    """Answers CalculatePlan."""

    number: int
    plan: CheckpointPlan


@dataclass(frozen=True)
class IdTaken:
    """Answers TakeId. `timestamp_ms` is wall clock, for people."""

    number: int
    checkpoint_id: int
    timestamp_ms: int


@dataclass(frozen=True)
class TriggerFailed:
    """A step between the plan and the storage location failed."""

    number: int
    reason: CheckpointFailureReason
    text: str


@dataclass(frozen=True)
class LocationCreated:
    """Answers CreateLocation."""

    checkpoint_id: int
    options: CheckpointOptions


@dataclass(frozen=True)
class CoordinatorsSnapshotted:
    """Answers SnapshotCoordinators: every operator coordinator's state."""

    checkpoint_id: int
    states: Mapping[OperatorId, bytes]


@dataclass(frozen=True)
class CheckpointStepFailed:
    """A step of a checkpoint that has its id failed: location, coordinators, or its publication."""

    checkpoint_id: int
    reason: CheckpointFailureReason
    text: str


@dataclass(frozen=True)
class TaskAcknowledged:
    """A subtask's part is stored."""

    attempt_id: ExecutionAttemptId
    checkpoint_id: int
    snapshot: TaskStateSnapshot
    metrics: CheckpointMetrics


@dataclass(frozen=True)
class TaskDeclined:
    """A subtask does not take its part."""

    attempt_id: ExecutionAttemptId
    checkpoint_id: int
    reason: CheckpointFailureReason
    text: str = ""


@dataclass(frozen=True)
class TaskGone:
    """An attempt has ended; `is_failure`: without finishing."""

    attempt_id: ExecutionAttemptId
    is_failure: bool = True


@dataclass(frozen=True)
class CheckpointTimedOut:
    """The timer that ArmTimeout asked for. `text` says who has not answered."""

    checkpoint_id: int
    text: str = ""


@dataclass(frozen=True)
class Published:
    """Answers Publish: the checkpoint is durable."""

    checkpoint_id: int


@dataclass(frozen=True)
class BrakesChanged:
    """How many checkpoints are being deleted now, and whether too many wait for their sinks' commits."""

    cleaning_count: int
    is_commit_backlog_full: bool = False


CoordinatorEvent = (
    SchedulingStarted
    | SchedulingStopped
    | PeriodicTimerFired
    | BacklogChanged
    | CheckpointRequested
    | PlanCalculated
    | IdTaken
    | TriggerFailed
    | LocationCreated
    | CoordinatorsSnapshotted
    | CheckpointStepFailed
    | TaskAcknowledged
    | TaskDeclined
    | TaskGone
    | CheckpointTimedOut
    | Published
    | BrakesChanged
)

# Actions


@dataclass(frozen=True)
class ArmPeriodicTimer:
    """Send PeriodicTimerFired after `delay_ms`; it takes the place of any earlier one."""

    generation: int
    delay_ms: float


@dataclass(frozen=True)
class CalculatePlan:
    """Answer with PlanCalculated or TriggerFailed."""

    number: int


@dataclass(frozen=True)
class TakeId:
    """Take the next id of the lineage, durably; answer with IdTaken or TriggerFailed."""

    number: int


@dataclass(frozen=True)
class ArmTimeout:
    """Send CheckpointTimedOut after `delay_ms`."""

    checkpoint_id: int
    delay_ms: float


@dataclass(frozen=True)
class CancelTimeout:
    """The checkpoint needs no timeout any more."""

    checkpoint_id: int


@dataclass(frozen=True)
class CreateLocation:
    """Make the place of its files; answer with LocationCreated or CheckpointStepFailed."""

    checkpoint_id: int
    kind: SnapshotKind
    target: str


@dataclass(frozen=True)
class DiscardLocation:
    """The checkpoint was given up while its place was being made."""

    checkpoint_id: int
    options: CheckpointOptions


@dataclass(frozen=True)
class SnapshotCoordinators:
    """Snapshot all operator coordinators and close their gates.

    Answer with CoordinatorsSnapshotted or CheckpointStepFailed.
    """

    checkpoint_id: int


@dataclass(frozen=True)
class SendTriggers:
    """Tell these tasks to begin."""

    checkpoint: PendingCheckpoint


@dataclass(frozen=True)
class RegisterSharedState:
    """The snapshot's shared files exist and belong to this checkpoint, whatever becomes of it."""

    checkpoint_id: int
    snapshot: TaskStateSnapshot


@dataclass(frozen=True)
class DiscardState:
    """Delete what is the snapshot's alone: nobody counts it."""

    checkpoint_id: int
    snapshot: TaskStateSnapshot


@dataclass(frozen=True)
class Publish:
    """Store the metadata; answer with Published or CheckpointStepFailed."""

    checkpoint: PendingCheckpoint


@dataclass(frozen=True)
class NotifyComplete:
    """Commit what it prepared; tell its tasks and all coordinators."""

    checkpoint: PendingCheckpoint


@dataclass(frozen=True)
class NotifyAborted:
    """Delete what it stored; tell its tasks and all coordinators."""

    checkpoint: PendingCheckpoint
    reason: CheckpointFailureReason
    text: str
    latest_completed_id: int


@dataclass(frozen=True)
class CompleteRequest:
    """What was asked for is there."""

    request: CheckpointRequest


@dataclass(frozen=True)
class FailRequest:
    """What was asked for does not come."""

    request: CheckpointRequest
    reason: CheckpointFailureReason
    text: str


@dataclass(frozen=True)
class FailJob:
    """More checkpoints failed than are tolerated, or a failed one has left tasks waiting; `reason`: of the last one."""

    text: str
    reason: CheckpointFailureReason


CoordinatorAction = (
    ArmPeriodicTimer
    | CalculatePlan
    | TakeId
    | ArmTimeout
    | CancelTimeout
    | CreateLocation
    | DiscardLocation
    | SnapshotCoordinators
    | SendTriggers
    | RegisterSharedState
    | DiscardState
    | Publish
    | NotifyComplete
    | NotifyAborted
    | CompleteRequest
    | FailRequest
    | FailJob
)

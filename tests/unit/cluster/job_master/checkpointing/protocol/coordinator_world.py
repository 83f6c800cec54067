"""A CheckpointProtocol with a shell that answers every step at once, and a clock that the test moves."""

from dataclasses import dataclass, field
from typing import TypeVar

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import CheckpointPlan
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_protocol import (
    CheckpointProtocol,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import (
    ArmPeriodicTimer,
    CheckpointPrepared,
    CheckpointRequested,
    CheckpointTimedOut,
    CoordinatorAction,
    CoordinatorEvent,
    CoordinatorsSnapshotted,
    PeriodicTimerFired,
    PrepareCheckpoint,
    Publish,
    Published,
    SchedulingStarted,
    SnapshotCoordinators,
    TaskAcknowledged,
    TaskDeclined,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import (
    CheckpointRequest,
    PendingCheckpoint,
)
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.ids import ExecutionAttemptId
from headrace.core.randomness import SeededRandom
from tests.unit.cluster.cluster_samples import JOB, attempt

A = TypeVar("A")

SOURCE, SINK = attempt(0, vertex=1), attempt(0, vertex=2)
PLAN = CheckpointPlan((SOURCE,), (SOURCE, SINK))
NO_STATE = TaskStateSnapshot()
STEPS = (PrepareCheckpoint, SnapshotCoordinators, Publish)


@dataclass
class CoordinatorWorld:
    """`held` names the steps that are not answered by themselves."""

    configuration: CheckpointCoordinatorConfiguration = field(
        default_factory=lambda: CheckpointCoordinatorConfiguration(None)
    )
    held: tuple[type, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        self.coordinator = CheckpointProtocol(self.configuration, SeededRandom(self.seed))
        self.now_ms = 0.0
        self.done: list[CoordinatorAction] = []
        self.next_id = 1
        self.next_number = 1
        self.timer: tuple[int, float] | None = None
        self.timeouts: dict[int, float] = {}

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        """Send an event, and answer what follows from it; returns everything that was done."""
        before = len(self.done)
        events = [event]
        while events:
            for action in self.coordinator.handle(events.pop(0), self.now_ms):
                self.done.append(action)
                events += self._answer(action)
        return self.done[before:]

    def prepared(self, request: CheckpointRequest) -> CheckpointPrepared:
        """The answer to a PrepareCheckpoint, with the next id."""
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        options = CheckpointOptions(request.kind)
        return CheckpointPrepared(request.number, checkpoint_id, 1_000, PLAN, options)

    def _answer(self, action: CoordinatorAction) -> list[CoordinatorEvent]:
        if isinstance(action, SnapshotCoordinators):
            self.timeouts[action.checkpoint.checkpoint_id] = self.now_ms + action.timeout_ms
        if isinstance(action, self.held):
            return []
        match action:
            case ArmPeriodicTimer(generation, delay_ms):
                self.timer = (generation, self.now_ms + delay_ms)
            case PrepareCheckpoint(request):
                return [self.prepared(request)]
            case SnapshotCoordinators(checkpoint):
                return [CoordinatorsSnapshotted(checkpoint.checkpoint_id, {})]
            case Publish(checkpoint):
                return [published(checkpoint)]
            case _:
                pass
        return []

    def start(self) -> None:
        """The job runs."""
        self.handle(SchedulingStarted())

    def request(self, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> list[CoordinatorAction]:
        """Somebody wants one."""
        self.next_number += 1
        return self.handle(CheckpointRequested(self.next_number, kind))

    def acknowledge(
        self, checkpoint_id: int, *attempts: ExecutionAttemptId
    ) -> list[CoordinatorAction]:
        """These attempts acknowledge; without any, all do."""
        done: list[CoordinatorAction] = []
        for attempt_id in attempts or PLAN.to_wait_for:
            done += self.handle(
                TaskAcknowledged(attempt_id, checkpoint_id, NO_STATE, CheckpointMetrics())
            )
        return done

    def decline(
        self,
        checkpoint_id: int,
        reason: CheckpointFailureReason = CheckpointFailureReason.CHECKPOINT_DECLINED,
    ) -> list[CoordinatorAction]:
        """The sink declines."""
        return self.handle(TaskDeclined(SINK, checkpoint_id, reason))

    def pass_time(self, until_ms: float) -> list[CoordinatorAction]:
        """Let timers fire until then."""
        before = len(self.done)
        while True:
            due: list[tuple[float, CheckpointTimedOut | PeriodicTimerFired]] = [
                (at, CheckpointTimedOut(key)) for key, at in self.timeouts.items()
            ]
            if self.timer is not None:
                due.append((self.timer[1], PeriodicTimerFired(self.timer[0])))
            at_ms, event = min(due, key=lambda each: each[0], default=(until_ms + 1, None))
            if event is None or at_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            if isinstance(event, CheckpointTimedOut):
                del self.timeouts[event.checkpoint_id]
            else:
                self.timer = None
            self.handle(event)
        self.now_ms = until_ms
        return self.done[before:]

    def of(self, kind: type[A]) -> list[A]:
        """Everything of one kind that was done so far."""
        return [action for action in self.done if isinstance(action, kind)]


def published(checkpoint: PendingCheckpoint) -> Published:
    """The answer to a Publish."""
    metadata = CheckpointMetadata(
        checkpoint.checkpoint_id, checkpoint.kind, checkpoint.timestamp_ms, JOB, "job", "lineage", 1
    )
    return Published(CompletedCheckpoint(metadata, ""))


def only(actions: list[CoordinatorAction], kind: type[A]) -> list[A]:
    """Those of one kind."""
    return [action for action in actions if isinstance(action, kind)]

"""A CheckpointProtocol with a shell that answers every step at once, and a clock that the test moves."""

from dataclasses import dataclass, field
from typing import TypeVar

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_protocol import (
    CheckpointProtocol,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import (
    ArmPeriodicTimer,
    ArmTimeout,
    CalculatePlan,
    CheckpointRequested,
    CheckpointTimedOut,
    CoordinatorAction,
    CoordinatorEvent,
    CoordinatorsSnapshotted,
    CreateLocation,
    IdTaken,
    LocationCreated,
    PeriodicTimerFired,
    PlanCalculated,
    Publish,
    Published,
    SchedulingStarted,
    SnapshotCoordinators,
    TakeId,
    TaskAcknowledged,
    TaskDeclined,
)
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointPlan
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.ids import ExecutionAttemptId
from headrace.core.randomness import SeededRandom
from tests.unit.cluster.cluster_samples import attempt

A = TypeVar("A")

SOURCE, SINK = attempt(0, vertex=1), attempt(0, vertex=2)
PLAN = CheckpointPlan((SOURCE,), (SOURCE, SINK))
NO_STATE = TaskStateSnapshot()
STEPS = (CalculatePlan, TakeId, CreateLocation, SnapshotCoordinators, Publish)


@dataclass
class CoordinatorWorld:
    """`held` names the steps that are not answered by themselves."""

    rules: CheckpointCoordinatorConfiguration = field(
        default_factory=lambda: CheckpointCoordinatorConfiguration(None)
    )
    held: tuple[type, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        self.coordinator = CheckpointProtocol(self.rules, SeededRandom(self.seed))
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

    def _answer(self, action: CoordinatorAction) -> list[CoordinatorEvent]:
        if isinstance(action, self.held):
            return []
        match action:
            case ArmPeriodicTimer(generation, delay_ms):
                self.timer = (generation, self.now_ms + delay_ms)
            case ArmTimeout(checkpoint_id, delay_ms):
                self.timeouts[checkpoint_id] = self.now_ms + delay_ms
            case CalculatePlan(number):
                return [PlanCalculated(number, PLAN)]
            case TakeId(number):
                self.next_id += 1
                return [IdTaken(number, self.next_id - 1, 1_000)]
            case CreateLocation(checkpoint_id, kind, _):
                return [LocationCreated(checkpoint_id, CheckpointOptions(kind))]
            case SnapshotCoordinators(checkpoint_id):
                return [CoordinatorsSnapshotted(checkpoint_id, {})]
            case Publish(checkpoint):
                return [Published(checkpoint.checkpoint_id)]
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


def only(actions: list[CoordinatorAction], kind: type[A]) -> list[A]:
    """Those of one kind."""
    return [action for action in actions if isinstance(action, kind)]

"""PendingCheckpoint: one checkpoint from its id to its end, with its request. Pure.

RecentCheckpoints remembers ended checkpoints, to decide whether the state of a late acknowledgement may be deleted.
Source: Flink PendingCheckpoint, CheckpointCoordinator.recentExpiredCheckpoints.
"""

import enum
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import CheckpointPlan
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.ids import ExecutionAttemptId, OperatorId

EXPIRED_REMEMBERED: Final = 16
"""Number of aborted checkpoints that are remembered, whose answers are late instead of invalid."""


@dataclass(frozen=True)
class CheckpointRequest:
    """Request for a checkpoint. `number` rises; `is_forced` requests ignore the limit of concurrent checkpoints.

    `target`: the directory of a savepoint.
    """

    number: int
    kind: SnapshotKind
    is_periodic: bool = False
    is_forced: bool = False
    target: str = ""

    @property
    def order(self) -> tuple[bool, bool, bool, int]:
        """Sort key: savepoints first, then forced requests, then those of callers, then older ones."""
        return (not self.kind.is_savepoint, not self.is_forced, self.is_periodic, self.number)


class PendingPhase(enum.Enum):
    """Phases of a pending checkpoint."""

    PREPARING = "PREPARING"
    """Operator coordinators are being snapshotted; no task has been triggered."""
    TRIGGERED = "TRIGGERED"
    READY = "READY"
    """All tasks have acknowledged, while another checkpoint is being published."""
    PUBLISHING = "PUBLISHING"
    """The metadata is being stored, so that the checkpoint can no longer be aborted."""


class AckVerdict(enum.Enum):
    """Result of handling an acknowledgement."""

    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    UNKNOWN = "UNKNOWN"


class PendingCheckpoint:
    """Checkpoint in progress: collects the acknowledgements of its subtasks."""

    def __init__(
        self,
        checkpoint_id: int,
        timestamp_ms: int,
        request: CheckpointRequest,
        plan: CheckpointPlan,
        options: CheckpointOptions,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.timestamp_ms = timestamp_ms
        self.request = request
        self.plan = plan
        self.phase = PendingPhase.PREPARING
        self.options = options
        self.coordinator_states: Mapping[OperatorId, bytes] = {}
        self.snapshots: dict[ExecutionAttemptId, TaskStateSnapshot] = {}
        self.metrics: dict[ExecutionAttemptId, CheckpointMetrics] = {}
        self._waiting = dict.fromkeys(plan.to_wait_for)

    @property
    def kind(self) -> SnapshotKind:
        """Kind of snapshot that was requested."""
        return self.request.kind

    @property
    def is_subsumable(self) -> bool:
        """Return whether the completion of a later checkpoint makes this one superfluous; False for a savepoint."""
        return not self.kind.is_savepoint

    @property
    def commits(self) -> bool:
        """Return whether the completion makes output visible and counts for recovery.

        A savepoint of a job that goes on does neither: the job never restarts from it.
        """
        return not self.kind.is_savepoint or self.kind.is_synchronous

    @property
    def is_awaited_by_tasks(self) -> bool:
        """Return whether tasks have stopped for this checkpoint, and go on only once it is complete or they restart."""
        return self.kind.is_synchronous and self.phase is not PendingPhase.PREPARING

    @property
    def waiting(self) -> tuple[ExecutionAttemptId, ...]:
        """Attempts that have not answered yet."""
        return tuple(self._waiting)

    @property
    def is_acknowledged(self) -> bool:
        """Return whether every subtask has answered."""
        return not self._waiting

    @property
    def committable_keys(self) -> dict[OperatorId, set[str]]:
        """Return the keys of all prepared output that came with the acknowledgements, by operator."""
        keys: dict[OperatorId, set[str]] = {}
        for snapshot in self.snapshots.values():
            for operator_id, state in snapshot.operators.items():
                keys.setdefault(operator_id, set()).update(one.key for one in state.committables)
        return keys

    def waits_for(self, attempt_id: ExecutionAttemptId) -> bool:
        """Return whether this attempt has not answered yet."""
        return attempt_id in self._waiting

    def concerns(self, attempt_id: ExecutionAttemptId) -> bool:
        """Return whether this attempt must answer, or has answered."""
        return attempt_id in self._waiting or attempt_id in self.snapshots

    def acknowledge(
        self,
        attempt_id: ExecutionAttemptId,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> AckVerdict:
        """Record a subtask's acknowledgement."""
        if attempt_id in self.snapshots:
            return AckVerdict.DUPLICATE
        if attempt_id not in self._waiting:
            return AckVerdict.UNKNOWN
        del self._waiting[attempt_id]
        self.snapshots[attempt_id] = snapshot
        self.metrics[attempt_id] = metrics
        return AckVerdict.ACCEPTED

    def __repr__(self) -> str:
        return f"PendingCheckpoint({self.checkpoint_id}, {self.phase.value}, waits for {len(self._waiting)})"


class RecentCheckpoints:
    """Remembers aborted checkpoints, and those whose publication has begun.

    A repeated acknowledgement of the latter must not delete state that may be published.
    """

    def __init__(self) -> None:
        self._given_up: deque[int] = deque(maxlen=EXPIRED_REMEMBERED)
        # Only ids above the latest completed one.
        self._publication_begun: set[int] = set()

    def publication_begun(self, checkpoint_id: int) -> None:
        """Remember a checkpoint that every subtask has acknowledged."""
        self._publication_begun.add(checkpoint_id)

    def completed(self, latest_completed_id: int) -> None:
        """Forget the publications up to the newest completed checkpoint."""
        self._publication_begun = {
            each for each in self._publication_begun if each > latest_completed_id
        }

    def given_up(self, checkpoint_id: int) -> None:
        """Remember a checkpoint that failed."""
        if checkpoint_id not in self._publication_begun:
            self._given_up.append(checkpoint_id)

    def is_superfluous(self, checkpoint_id: int, latest_completed_id: int) -> bool:
        """Return whether the state of an acknowledgement that no pending checkpoint waits for may be deleted."""
        if checkpoint_id in self._publication_begun:
            return False
        return checkpoint_id > latest_completed_id or checkpoint_id in self._given_up

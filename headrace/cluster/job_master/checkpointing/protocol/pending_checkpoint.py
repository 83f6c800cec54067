"""PendingCheckpoint: one checkpoint between its id and its end. Pure.

Source: Flink PendingCheckpoint.

RecentCheckpoints: decides whether the state of a late acknowledgement may be deleted. Pure.

Source: Flink CheckpointCoordinator.recentExpiredCheckpoints.
"""

import enum
from collections import deque
from collections.abc import Mapping
from typing import Final

from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointPlan
from headrace.cluster.job_master.checkpointing.protocol.request_queue import CheckpointRequest
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.ids import ExecutionAttemptId, OperatorId


class PendingPhase(enum.Enum):
    """Phases of a pending checkpoint."""

    PREPARING = "PREPARING"
    """Its place is made, coordinators are snapshotted; no task knows of it."""
    TRIGGERED = "TRIGGERED"
    READY = "READY"
    """All have acknowledged; another one is being published."""
    PUBLISHING = "PUBLISHING"
    """From here on only the storage decides what becomes of it."""


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
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.timestamp_ms = timestamp_ms
        self.request = request
        self.plan = plan
        self.phase = PendingPhase.PREPARING
        self.options = CheckpointOptions(request.kind)
        self.coordinator_states: Mapping[OperatorId, bytes] = {}
        self.snapshots: dict[ExecutionAttemptId, TaskStateSnapshot] = {}
        self.metrics: dict[ExecutionAttemptId, CheckpointMetrics] = {}
        self._waiting = dict.fromkeys(plan.to_wait_for)

    @property
    def kind(self) -> SnapshotKind:
        """Return the kind of snapshot that was requested."""
        return self.request.kind

    @property
    def is_subsumable(self) -> bool:
        """Whether the completion of a later checkpoint makes it superfluous; a savepoint somebody waits for."""
        return not self.kind.is_savepoint

    @property
    def commits(self) -> bool:
        """Whether its completion makes output visible and counts for recovery.

        A savepoint while the job goes on does not: the job would have to remember it for that.
        """
        return not self.kind.is_savepoint or self.kind.is_synchronous

    @property
    def is_awaited_by_tasks(self) -> bool:
        """Whether tasks have stopped for it, and go on only once it is complete or they are restarted."""
        return self.kind.is_synchronous and self.phase is not PendingPhase.PREPARING

    @property
    def waiting(self) -> tuple[ExecutionAttemptId, ...]:
        """Return the attempts that have not answered yet."""
        return tuple(self._waiting)

    @property
    def is_acknowledged(self) -> bool:
        """Whether everybody has answered."""
        return not self._waiting

    def waits_for(self, attempt_id: ExecutionAttemptId) -> bool:
        """Whether this attempt has not answered yet."""
        return attempt_id in self._waiting

    def concerns(self, attempt_id: ExecutionAttemptId) -> bool:
        """Whether this attempt is to answer, or has."""
        return attempt_id in self._waiting or attempt_id in self.snapshots

    def acknowledge(
        self,
        attempt_id: ExecutionAttemptId,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> AckVerdict:
        """Take a subtask's answer."""
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


EXPIRED_REMEMBERED: Final = 16
"""Of so many checkpoints that were given up it is known that answers to them are late, not wrong."""


class RecentCheckpoints:
    """Those that were given up, and those whose publication was begun, which a repeated answer must not spoil."""

    def __init__(self) -> None:
        self._given_up: deque[int] = deque(maxlen=EXPIRED_REMEMBERED)
        # All had answered, so that what comes is a repetition. Only those above the latest completed one.
        self._publication_begun: set[int] = set()

    def publication_begun(self, checkpoint_id: int) -> None:
        """Everybody has answered."""
        self._publication_begun.add(checkpoint_id)

    def completed(self, latest_completed_id: int) -> None:
        """The newest one that is published."""
        self._publication_begun = {
            each for each in self._publication_begun if each > latest_completed_id
        }

    def given_up(self, checkpoint_id: int) -> None:
        """It came to nothing."""
        if checkpoint_id not in self._publication_begun:
            self._given_up.append(checkpoint_id)

    def is_superfluous(self, checkpoint_id: int, latest_completed_id: int) -> bool:
        """Whether state that nobody waits for may go: a repeated answer must not delete what was published."""
        if checkpoint_id in self._publication_begun:
            return False
        return checkpoint_id > latest_completed_id or checkpoint_id in self._given_up

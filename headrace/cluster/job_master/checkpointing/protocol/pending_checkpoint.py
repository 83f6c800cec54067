"""PendingCheckpoint: one checkpoint between its id and its end. Pure.

Source: Flink PendingCheckpoint.
"""

import enum
from collections.abc import Mapping

from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointPlan
from headrace.cluster.job_master.checkpointing.protocol.request_queue import CheckpointRequest
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.ids import ExecutionAttemptId, OperatorId


class PendingPhase(enum.Enum):
    """How far a checkpoint has come."""

    PREPARING = "PREPARING"
    """Its place is made, coordinators are snapshotted; no task knows of it."""
    TRIGGERED = "TRIGGERED"
    READY = "READY"
    """All have acknowledged; another one is being published."""
    PUBLISHING = "PUBLISHING"
    """From here on only the storage decides what becomes of it."""


class AckVerdict(enum.Enum):
    """What an acknowledgement meant."""

    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    UNKNOWN = "UNKNOWN"


class PendingCheckpoint:
    """Who has answered so far, and with what."""

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
        """What was asked for."""
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
        """Who has not answered."""
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

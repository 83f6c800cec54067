"""CheckpointFailureManager: decides whether a job survives a failed checkpoint. Pure.

Used by CheckpointProtocol. Source: Flink CheckpointFailureManager.
"""

from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.options import TOLERABLE_FAILURES
from headrace.core.barriers import SnapshotKind

TOO_MANY_FAILED: Final = (
    "{} (more checkpoints failed in a row than " + TOLERABLE_FAILURES.key + " allows)"
)
STOPPED_FOR_NOTHING: Final = (
    "{} (so the savepoint that was to stop the job failed, and its tasks restart)"
)

_R = CheckpointFailureReason
_OF_A_TASK: Final = frozenset(
    {
        _R.CHECKPOINT_DECLINED,
        _R.CHECKPOINT_ASYNC_EXCEPTION,
        _R.CHANNEL_STATE_SHARED_STREAM_EXCEPTION,
    }
)
_RESTARTS_ANYWAY: Final = frozenset(
    {
        _R.TASK_FAILURE,
        _R.CHECKPOINT_COORDINATOR_SUSPEND,
        _R.CHECKPOINT_COORDINATOR_SHUTDOWN,
        _R.JOB_FAILOVER_REGION,
    }
)
"""Failure reasons after which the tasks of the checkpoint restart anyway."""


class CheckpointFailureManager:
    """Counts consecutive failures. A checkpoint counts once, and only if it is newer than the last success."""

    def __init__(self, tolerable_count: int) -> None:
        self._tolerable_count = tolerable_count
        self._last_success_id = 0
        self._counted_ids: set[int] = set()
        self.count = 0

    def succeeded(self, checkpoint_id: int) -> None:
        """Record that a checkpoint was published."""
        self._last_success_id = max(self._last_success_id, checkpoint_id)
        self._reset()

    def why_job_fails(
        self,
        kind: SnapshotKind,
        reason: CheckpointFailureReason,
        checkpoint_id: int | None,
        *,
        is_awaited: bool = False,
    ) -> str:
        """Count a failure; return why the job fails, with a placeholder for the cause, or nothing if the job goes on.

        `checkpoint_id` is None if it failed before it had an id. `is_awaited`: the tasks have stopped for this
        checkpoint, so that only a restart lets them continue.
        """
        is_too_many = self._is_too_many(kind, reason, checkpoint_id)
        if not is_awaited:
            return TOO_MANY_FAILED if is_too_many else ""
        return "" if reason in _RESTARTS_ANYWAY else STOPPED_FOR_NOTHING

    def _is_too_many(
        self, kind: SnapshotKind, reason: CheckpointFailureReason, checkpoint_id: int | None
    ) -> bool:
        # A savepoint that fails on the JobMaster's side only concerns its requester.
        if not reason.is_counted or (kind.is_savepoint and reason not in _OF_A_TASK):
            return False
        if checkpoint_id is not None:
            if checkpoint_id <= self._last_success_id or checkpoint_id in self._counted_ids:
                return False
            self._counted_ids.add(checkpoint_id)
        self.count += 1
        if self.count <= self._tolerable_count:
            return False
        self._reset()
        return True

    def _reset(self) -> None:
        self.count = 0
        self._counted_ids.clear()

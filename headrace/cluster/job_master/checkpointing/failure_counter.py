"""CheckpointFailureCounter: whether the job survives that a checkpoint came to nothing. Pure.

Source: Flink CheckpointFailureManager.
"""

from headrace.checkpoint.failure_reasons import CheckpointFailureReason
from headrace.core.checkpoints import SnapshotKind


class CheckpointFailureCounter:
    """Counts failures in a row. A checkpoint counts once, and only if it is newer than the last success."""

    def __init__(self, tolerable_count: int) -> None:
        self._tolerable_count = tolerable_count
        self._last_success_id = 0
        self._counted_ids: set[int] = set()
        self.count = 0

    def succeeded(self, checkpoint_id: int) -> None:
        """A checkpoint was published."""
        self._last_success_id = max(self._last_success_id, checkpoint_id)
        self._reset()

    def failed(
        self,
        kind: SnapshotKind,
        reason: CheckpointFailureReason,
        checkpoint_id: int | None,
        *,
        is_of_task: bool = False,
    ) -> bool:
        """Count; True where the job is to fail. `checkpoint_id` is None for what failed before it had one.

        A savepoint that fails on the side of the JobMaster concerns only who asked for it.
        """
        if kind.is_savepoint and not is_of_task:
            return False
        if not reason.is_counted:
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

"""FinalCheckpoint: the last checkpoint of a job that ends by itself, which commits its last output.

Tasks that have processed all their data wait for the completion of a checkpoint that records this. The notification may
be lost, so it is repeated. Runs on the JobMaster's main thread.
Source: Flink SchedulerBase.notifyEndOfData, FLIP-147.
"""

from collections.abc import Callable
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.cluster.job_master.checkpointing.checkpoint_tasks import CheckpointTasks
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import (
    CheckpointRequest,
    PendingCheckpoint,
)
from headrace.core.clock import Cancellable

_SOMEBODY_HAS_LEFT: Final = frozenset(
    {
        CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING,
        CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM,
    }
)


class FinalCheckpoint:
    """Takes the last checkpoint of a job.

    `request` requests a checkpoint and returns its number; `is_idle` returns whether none is pending or requested.
    """

    def __init__(
        self,
        tasks: CheckpointTasks,
        *,
        request: Callable[[], int],
        is_idle: Callable[[], bool],
        later: Callable[[float, Callable[[], None]], Cancellable],
        reminder_ms: float,
    ) -> None:
        self._tasks: Final = tasks
        self._request: Final = request
        self._is_idle: Final = is_idle
        self._later: Final = later
        self._reminder_ms: Final = reminder_ms
        self._last_published_id = 0
        self._reminder: Cancellable | None = None
        # Number of the request for the last checkpoint, until a checkpoint taken for it is complete.
        self._number: int | None = None

    def data_ended(self, *, is_stopping: bool) -> None:
        """Take the last checkpoint if no task has data left, after one more task has processed all its data.

        `is_stopping`: the tasks wait for a savepoint in progress.
        """
        if self._tasks.has_all_data_ended and not is_stopping:
            self._number = self._request()
        if self._reminder is None:
            self._remind_later()

    def published(self, checkpoint: PendingCheckpoint) -> None:
        """Remember the published checkpoint, which tasks are being notified of."""
        self._last_published_id = checkpoint.checkpoint_id
        if checkpoint.request.number == self._number:
            self._number = None

    def failed(self, request: CheckpointRequest, reason: CheckpointFailureReason) -> None:
        """Take another last checkpoint at once if this one failed because some tasks have ended.

        For those tasks an earlier checkpoint was the last one, which each task can cause only once. After any other
        failure the reminder takes the next one.
        """
        is_last = request.number == self._number and self._tasks.has_all_data_ended
        if is_last and reason in _SOMEBODY_HAS_LEFT and self._tasks.ending:
            self._number = self._request()

    def _remind_later(self) -> None:
        self._reminder = self._later(self._reminder_ms, self._remind)

    def _remind(self) -> None:
        self._reminder = None
        if not self._tasks.ending:
            return
        for attempt_id in self._tasks.ending:
            self._tasks.notify_complete(attempt_id, self._last_published_id)
        if self._number is not None and self._is_idle() and self._tasks.has_all_data_ended:
            # The last checkpoint failed.
            self._number = self._request()
        self._remind_later()

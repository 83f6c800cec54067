"""FinalCheckpoint: the last one of a job that ends by itself, without which its last output would not be committed.

Tasks that have processed all their data wait for a checkpoint that says so, and have nothing else to learn from that it
is complete: what may have been lost on its way is said again. Runs on the JobMaster's main thread.
Source: Flink SchedulerBase.notifyEndOfData, FLIP-147.
"""

from collections.abc import Callable
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.cluster.job_master.checkpointing.collaborators import CheckpointedTasks
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.request_queue import CheckpointRequest
from headrace.core.clock import Cancellable

_SOMEBODY_HAS_LEFT: Final = frozenset(
    {
        CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING,
        CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM,
    }
)


class FinalCheckpoint:
    """`request` asks for a checkpoint and returns its number; `is_idle`: whether none is under way or waits."""

    def __init__(
        self,
        tasks: CheckpointedTasks,
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
        # The request for the last checkpoint, until one that was taken for it is complete.
        self._number: int | None = None

    def data_ended(self, *, is_stopping: bool) -> None:
        """A task has processed all its data. Where nobody has any left, the last checkpoint is taken at once.

        `is_stopping`: they wait for a savepoint that is under way.
        """
        if self._tasks.has_all_data_ended and not is_stopping:
            self._number = self._request()
        if self._reminder is None:
            self._remind_later()

    def published(self, checkpoint: PendingCheckpoint) -> None:
        """Tasks are being told of this one."""
        self._last_published_id = checkpoint.checkpoint_id
        if checkpoint.request.number == self._number:
            self._number = None

    def failed(self, request: CheckpointRequest, reason: CheckpointFailureReason) -> None:
        """A request came to nothing.

        A checkpoint before it may have been the last one for some tasks, which then left in the midst of this one:
        those that stay have another taken at once. Each task can be the cause of that only once. What failed for
        another reason waits for the reminder.
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
            self._tasks.notify_checkpoint_complete(attempt_id, self._last_published_id)
        if self._number is not None and self._is_idle() and self._tasks.has_all_data_ended:
            # It came to nothing.
            self._number = self._request()
        self._remind_later()

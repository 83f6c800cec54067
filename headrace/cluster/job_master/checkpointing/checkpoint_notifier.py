"""CheckpointNotifier: notifies tasks, coordinators and the user of the end of a checkpoint.

Notifications of tasks may be lost. Runs on the JobMaster's main thread.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from headrace.cluster.job_master.checkpointing.checkpoint_tasks import CheckpointTasks
from headrace.cluster.job_master.checkpointing.protocol.events import (
    CoordinatorAction,
    FailJob,
    FailRequest,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.coordinators.operator_coordinators import OperatorCoordinators
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.core.errors import HeadraceError
from headrace.gateways.errors import CheckpointFailedError

_LOG = logging.getLogger(__name__)
_HELD_UP_MS: Final = 60_000.0


class CheckpointNotifier:
    """Notifies tasks, coordinators and the user that a checkpoint has ended.

    `on_failed` is called with a coordinator's error, which does not change the checkpoint; `on_notified` is called
    whenever the coordinators were notified.
    """

    def __init__(
        self,
        job_name: str,
        tasks: CheckpointTasks,
        coordinators: OperatorCoordinators,
        job_notices: JobNotices,
        *,
        on_failed: Callable[[HeadraceError], None],
        on_notified: Callable[[], None],
    ) -> None:
        self._job_name: Final = job_name
        self._job_notices: Final = job_notices
        # Reasons for which no more checkpoints are taken; the user is told each only once.
        self._given_up: Final[set[str]] = set()
        # Cause of the delay, newest checkpoint, and start of the delay; None once the user was told.
        self._held_up: tuple[str, int] = ("", 0)
        self._held_up_since_ms: float | None = None
        self._tasks: Final = tasks
        self._coordinators: Final = coordinators
        self._on_failed: Final = on_failed
        self._on_notified: Final = on_notified

    def tell_user(self, actions: Sequence[CoordinatorAction]) -> None:
        """Report failed checkpoints with a remedy, unless the job fails because of them or a caller waits for them."""
        if any(isinstance(action, FailJob) for action in actions):
            return
        for action in actions:
            if not isinstance(action, FailRequest) or action.request.kind.is_savepoint:
                continue
            if action.reason.is_told:
                text = f"a checkpoint of job '{self._job_name}' failed, but the job goes on: {action.text}"
                self._job_notices.tell("checkpoints", text)

    def given_up(self, why: str) -> None:
        """Report once that no checkpoint can be taken before tasks restart."""
        if why not in self._given_up:
            self._given_up.add(why)
            text = f"job '{self._job_name}' takes no more checkpoints: {why}"
            self._job_notices.tell("checkpoints given up", text)

    def held_up(self, why: str, newest_id: int, monotonic_ms: float) -> None:
        """Report what delays checkpoints once the cause has been the same for a minute. Call with every periodic timer.

        `why` is empty if nothing delays them, or only a cause that expires by itself. `newest_id`: the last complete
        one.
        """
        if self._held_up != (why, newest_id):
            self._held_up, self._held_up_since_ms = (why, newest_id), monotonic_ms
        since_ms = self._held_up_since_ms
        if why and since_ms is not None and monotonic_ms - since_ms >= _HELD_UP_MS:
            self._held_up_since_ms = None
            held_s = (monotonic_ms - since_ms) / 1000
            text = f"job '{self._job_name}' has taken no checkpoint for {held_s:.0f} s: {why}"
            self._job_notices.tell("checkpoints held up", text)

    def complete(self, checkpoint: PendingCheckpoint) -> None:
        """Notify coordinators and tasks that a checkpoint is published, so that the job may restart from it."""
        checkpoint_id = checkpoint.checkpoint_id
        self._tell_coordinators(lambda: self._coordinators.checkpoint_completed(checkpoint_id))
        for attempt_id in checkpoint.plan.to_wait_for:
            self._tasks.notify_complete(attempt_id, checkpoint_id)

    def aborted(self, checkpoint: PendingCheckpoint, latest_completed_id: int) -> None:
        """Notify coordinators and tasks that a checkpoint failed."""
        checkpoint_id = checkpoint.checkpoint_id
        self.over(checkpoint_id)
        for attempt_id in checkpoint.plan.to_wait_for:
            self._tasks.notify_aborted(attempt_id, checkpoint_id, latest_completed_id)

    def over(self, checkpoint_id: int) -> None:
        """Notify the coordinators that a checkpoint was aborted, or commits nothing.

        Their events to subtasks without a part in it were held back until its end.
        """
        self._tell_coordinators(lambda: self._coordinators.checkpoint_aborted(checkpoint_id))

    def _tell_coordinators(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except HeadraceError as error:
            self._on_failed(error)
        except Exception as error:
            _LOG.exception("an operator coordinator failed")
            self._on_failed(CheckpointFailedError(f"{type(error).__name__}: {error}"))
        self._on_notified()

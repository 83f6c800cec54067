"""What the checkpoints of a job need of its tasks and of its operator coordinators."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from headrace.checkpoint.handles import CheckpointProgress
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointPlan
from headrace.core.barriers import CheckpointOptions
from headrace.core.ids import ExecutionAttemptId, OperatorId


class CheckpointedTasks(Protocol):
    """The job's tasks. Calls to them return at once, and may be lost."""

    def plan(self) -> CheckpointPlan:
        """Who takes part in a checkpoint that begins now; CheckpointRefusedError."""
        ...

    @property
    def ending(self) -> Sequence[ExecutionAttemptId]:
        """Those that have processed all their data and wait for a checkpoint that says so."""
        ...

    @property
    def has_all_data_ended(self) -> bool:
        """Whether nobody has any data left."""
        ...

    def trigger_checkpoint(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        timestamp_ms: int,
        options: CheckpointOptions,
    ) -> None:
        """Have a task begin."""
        ...

    async def checkpoint_progress(
        self, attempt_id: ExecutionAttemptId, checkpoint_id: int
    ) -> CheckpointProgress | None:
        """How far a task is with a checkpoint; None where it does not say in time."""
        ...

    def notify_checkpoint_complete(
        self, attempt_id: ExecutionAttemptId, checkpoint_id: int
    ) -> None:
        """Tell a task of a published checkpoint."""
        ...

    def notify_checkpoint_aborted(
        self, attempt_id: ExecutionAttemptId, checkpoint_id: int, latest_completed_id: int
    ) -> None:
        """Tell a task of a checkpoint that came to nothing."""
        ...


class CheckpointedCoordinators(Protocol):
    """The job's operator coordinators."""

    @property
    def can_be_snapshotted(self) -> bool:
        """Whether no event of theirs is on its way, or waits for the barrier of an earlier checkpoint."""
        ...

    def when_quiet(self, action: Callable[[], None]) -> None:
        """Have `action` called whenever the last event that was on its way has arrived."""
        ...

    def when_backlog_changes(self, action: Callable[[bool], None]) -> None:
        """Have `action` called with True when the first source begins to work off a backlog, False when none does."""
        ...

    def checkpoint(self, checkpoint_id: int) -> Mapping[OperatorId, bytes]:
        """Take their part, and hold back what they say from now on."""
        ...

    def acknowledged(self, attempt_id: ExecutionAttemptId, checkpoint_id: int) -> None:
        """A subtask's part is taken: what they said to it may go on."""
        ...

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """It is published."""
        ...

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """It came to nothing, or commits nothing."""
        ...

"""Why a checkpoint came to nothing, and whether that counts against the tolerable failures.

Source: Flink CheckpointFailureReason, CheckpointFailureManager.
"""

import enum


class CheckpointFailureReason(enum.Enum):
    """Flink's names; the value is what people read."""

    PERIODIC_SCHEDULER_SHUTDOWN = "periodic checkpoints have been stopped"
    TOO_MANY_CHECKPOINT_REQUESTS = "too many checkpoints wait to be taken"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "the least pause between checkpoints is not over"
    NOT_ALL_REQUIRED_TASKS_RUNNING = "not all required tasks are running"
    BLOCKING_OUTPUT_EXIST = "the job has blocking exchanges"
    IO_EXCEPTION = "the checkpoint storage cannot be written"
    CHECKPOINT_ASYNC_EXCEPTION = "writing a task's state failed"
    CHECKPOINT_DECLINED = "a task declined"
    CHECKPOINT_EXPIRED = "it was not complete in time"
    FINALIZE_CHECKPOINT_FAILURE = "its metadata could not be written"
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = "a file shared with another task failed"
    CHECKPOINT_SUBSUMED = "a later one was complete first"
    CHECKPOINT_DECLINED_TASK_NOT_READY = "a task was not ready"
    CHECKPOINT_DECLINED_TASK_CLOSING = "a task was ending"
    CHECKPOINT_DECLINED_SUBSUMED = "a later barrier came first"
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = "a task upstream gave it up"
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = "an input of a task ended"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "the job has ended"
    CHECKPOINT_COORDINATOR_SUSPEND = "the job does not run any more"
    JOB_FAILOVER_REGION = "a region of the job restarts"
    TASK_FAILURE = "a task failed"
    TASK_CHECKPOINT_FAILURE = "a task failed while it took its part"
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = "a task could not be notified"
    TRIGGER_CHECKPOINT_FAILURE = "it could not be triggered"

    @property
    def is_counted(self) -> bool:
        """Whether it counts towards `execution.checkpointing.tolerable-failed-checkpoints`."""
        return self in _COUNTED

    @property
    def is_told(self) -> bool:
        """Whether the user is told of a checkpoint that came to nothing for it: something may have to be mended."""
        return self.is_counted or self is CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE


_COUNTED = frozenset(
    {
        CheckpointFailureReason.IO_EXCEPTION,
        CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
        CheckpointFailureReason.CHECKPOINT_DECLINED,
        CheckpointFailureReason.CHECKPOINT_EXPIRED,
        CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
)

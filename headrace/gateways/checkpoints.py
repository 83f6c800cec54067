"""Messages that show people and clients a job's checkpoints and failures.

Source: Flink CheckpointingStatistics, JobExceptionsInfoWithHistory.
"""

import msgspec

from headrace.checkpoint.handles import CheckpointMetrics
from headrace.core.barriers import SnapshotKind
from headrace.core.ids import ResourceId
from headrace.gateways.messages import ErrorInfo


class CheckpointCounts(msgspec.Struct, frozen=True):
    """Since the JobMaster started; savepoints included."""

    triggered: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    restored: int = 0


class CheckpointInfo(msgspec.Struct, frozen=True):
    """A checkpoint or savepoint that is complete. `duration_ms`: from its trigger to its publication.

    `size_bytes`: all its state, files of older checkpoints included; `written_bytes`: what was written for it.
    `uri` is empty where it lies in the driver's memory. `slowest`: each duration as long as in the subtask where it
    was longest, bytes of all of them; `is_unaligned` where any subtask took it unaligned, `unaligned_count` of them.
    """

    checkpoint_id: int
    kind: SnapshotKind
    timestamp_ms: int
    duration_ms: int
    size_bytes: int
    written_bytes: int
    uri: str
    slowest: CheckpointMetrics = CheckpointMetrics()
    unaligned_count: int = 0


class FailedCheckpointInfo(msgspec.Struct, frozen=True):
    """One that came to nothing. `reason` is Flink's name for it."""

    checkpoint_id: int
    kind: SnapshotKind
    timestamp_ms: int
    duration_ms: int
    reason: str
    text: str


class PendingCheckpointInfo(msgspec.Struct, frozen=True):
    """One that is under way. `phase`: PREPARING, TRIGGERED, READY or PUBLISHING."""

    checkpoint_id: int
    kind: SnapshotKind
    timestamp_ms: int
    phase: str
    acknowledged_count: int
    subtask_count: int
    waiting_for: tuple[str, ...]


class CheckpointOverview(msgspec.Struct, frozen=True):
    """All of a job's. `uncommitted_ids`: those whose output is not all visible, and `blocking_sinks` why.

    `paused_because` says why none is begun although one is due.
    """

    counts: CheckpointCounts = CheckpointCounts()
    latest_completed: CheckpointInfo | None = None
    latest_savepoint: CheckpointInfo | None = None
    latest_failed: FailedCheckpointInfo | None = None
    restored_id: int | None = None
    pending: tuple[PendingCheckpointInfo, ...] = ()
    uncommitted_ids: tuple[int, ...] = ()
    blocking_sinks: tuple[str, ...] = ()
    paused_because: str = ""


class ExceptionInfo(msgspec.Struct, frozen=True):
    """A failure. `task` and `resource_id` are empty where the job failed as a whole."""

    error: ErrorInfo
    timestamp_ms: int
    task: str = ""
    resource_id: ResourceId | None = None


class RootExceptionInfo(msgspec.Struct, frozen=True):
    """A failure that made something restart, or ended the job, and those that came with it."""

    root: ExceptionInfo
    concurrent: tuple[ExceptionInfo, ...] = ()

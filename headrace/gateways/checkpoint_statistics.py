"""Messages that show people and clients a job's checkpoints: an overview of the newest, and statistics with history.

Source: Flink CheckpointStatsSnapshot, CheckpointStatistics, CheckpointingStatistics, CheckpointConfigInfo.
"""

import enum
from typing import Final

import msgspec

from headrace.checkpoint.handles import CheckpointMetrics
from headrace.core.barriers import SnapshotKind
from headrace.core.ids import JobVertexId

NO_PERIODIC_CHECKPOINTS_MS: Final = 2**63 - 1
"""Interval of a job without periodic checkpoints, as in Flink."""


class CheckpointCounts(msgspec.Struct, frozen=True):
    """Numbers of checkpoints since the JobMaster started, including savepoints."""

    triggered: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    restored: int = 0


class StatisticsSummary(msgspec.Struct, frozen=True):
    """Values of one measure over completed checkpoints. Quantiles use the newest ones, and are NaN if there are none.

    `minimum`, `maximum` and `average` are 0 if there are none.
    """

    minimum: int = 0
    maximum: int = 0
    average: int = 0
    p50: float = float("nan")
    p90: float = float("nan")
    p95: float = float("nan")
    p99: float = float("nan")
    p999: float = float("nan")


class CheckpointSummary(msgspec.Struct, frozen=True):
    """Summaries over all completed checkpoints and savepoints: bytes, and milliseconds."""

    checkpointed_size: StatisticsSummary = StatisticsSummary()
    state_size: StatisticsSummary = StatisticsSummary()
    end_to_end_duration: StatisticsSummary = StatisticsSummary()
    alignment_buffered: StatisticsSummary = StatisticsSummary()
    processed_data: StatisticsSummary = StatisticsSummary()
    persisted_data: StatisticsSummary = StatisticsSummary()


class CheckpointStatus(enum.StrEnum):
    """States of a checkpoint in its history."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class SubtaskCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """One subtask's acknowledged part in a checkpoint. Times are by the JobMaster's clock.

    `checkpointed_size_bytes`: the bytes that it wrote; `state_size_bytes`: all its state, including files of older
    checkpoints. `processed_bytes` and `persisted_bytes`: input during the alignment that was processed or stored.
    `alignment_buffered_bytes` is 0, as in Flink, because nothing is stored outside channels. `is_aborted`: it did not
    take its part, so sizes and durations of phases are 0.
    """

    subtask_index: int
    ack_timestamp_ms: int
    end_to_end_duration_ms: int
    checkpointed_size_bytes: int = 0
    state_size_bytes: int = 0
    sync_duration_ms: int = 0
    async_duration_ms: int = 0
    alignment_duration_ms: int = 0
    alignment_buffered_bytes: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0
    start_delay_ms: int = 0
    is_unaligned: bool = False
    is_aborted: bool = False


class TaskCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """Sums over those subtasks of a vertex that have acknowledged a checkpoint.

    `latest_ack_timestamp_ms` and `end_to_end_duration_ms` are -1 before the first acknowledgement.
    """

    vertex_id: JobVertexId
    status: CheckpointStatus
    latest_ack_timestamp_ms: int
    checkpointed_size_bytes: int
    state_size_bytes: int
    end_to_end_duration_ms: int
    alignment_buffered_bytes: int
    processed_bytes: int
    persisted_bytes: int
    subtask_count: int
    acknowledged_subtask_count: int


class CheckpointRecord(msgspec.Struct, frozen=True):
    """A checkpoint or savepoint in the history.

    `savepoint_format`: CANONICAL or NATIVE, empty for checkpoints. `end_to_end_duration_ms`: from the trigger to the
    publication or the failure, -1 before. `external_path`: the folder of a completed one, without passwords, empty if
    it is in the driver's memory. `is_discarded`: newer ones have replaced it. `failure_timestamp_ms` is -1 unless it
    failed.
    """

    checkpoint_id: int
    kind: SnapshotKind
    status: CheckpointStatus
    savepoint_format: str
    trigger_timestamp_ms: int
    latest_ack_timestamp_ms: int
    checkpointed_size_bytes: int
    state_size_bytes: int
    end_to_end_duration_ms: int
    alignment_buffered_bytes: int
    processed_bytes: int
    persisted_bytes: int
    subtask_count: int
    acknowledged_subtask_count: int
    is_unaligned: bool
    external_path: str = ""
    is_discarded: bool = False
    failure_timestamp_ms: int = -1
    failure_message: str = ""


class TaskCheckpointDetails(msgspec.Struct, frozen=True):
    """A vertex in a checkpoint: its sums, and those of its subtasks that have answered, by index."""

    task: TaskCheckpoint
    subtasks: tuple[SubtaskCheckpoint, ...]


class CheckpointDetails(msgspec.Struct, frozen=True):
    """A checkpoint with its vertices and subtasks."""

    checkpoint: CheckpointRecord
    tasks: tuple[TaskCheckpointDetails, ...]


class RestoredCheckpoint(msgspec.Struct, frozen=True):
    """The snapshot from which the job, or a part of it, was last restored."""

    checkpoint_id: int
    restore_timestamp_ms: int
    kind: SnapshotKind
    external_path: str


class CheckpointStatistics(msgspec.Struct, frozen=True):
    """The history of a job's checkpoints, with summaries, as dashboards show it.

    `history`: newest first. `is_enabled`: True if checkpoints are taken periodically.
    """

    is_enabled: bool = False
    counts: CheckpointCounts = CheckpointCounts()
    summary: CheckpointSummary = CheckpointSummary()
    latest_completed: CheckpointRecord | None = None
    latest_savepoint: CheckpointRecord | None = None
    latest_failed: CheckpointRecord | None = None
    restored: RestoredCheckpoint | None = None
    history: tuple[CheckpointRecord, ...] = ()


class CheckpointInfo(msgspec.Struct, frozen=True):
    """A complete checkpoint or savepoint. `duration_ms`: from its trigger to its publication.

    `size_bytes`: all its state, files of older checkpoints included; `written_bytes`: what was written for it.
    `uri` is empty where it lies in the driver's memory. `slowest`: each duration as long as in the subtask where it
    was longest, bytes of all of them; `is_unaligned` where any subtask took it unaligned. `metadata_bytes`: size of the
    file that makes it complete.
    """

    checkpoint_id: int
    kind: SnapshotKind
    timestamp_ms: int
    duration_ms: int
    size_bytes: int
    written_bytes: int
    uri: str
    slowest: CheckpointMetrics = CheckpointMetrics()
    metadata_bytes: int = 0


class FailedCheckpointInfo(msgspec.Struct, frozen=True):
    """A checkpoint or savepoint that failed. `reason` is Flink's name for it."""

    checkpoint_id: int
    kind: SnapshotKind
    timestamp_ms: int
    duration_ms: int
    reason: str
    text: str


class CheckpointOverview(msgspec.Struct, frozen=True):
    """The newest checkpoints of a job at the moment, for JobDetails and metrics; without history.

    `uncommitted_ids`: those whose output is not all visible, and `blocking_sinks` why. `paused_because` says why none
    is begun although one is due. `restored_timestamp_ms`: when the job, or a part of it, last began with one; -1 if
    never.
    """

    counts: CheckpointCounts = CheckpointCounts()
    latest_completed: CheckpointInfo | None = None
    latest_savepoint: CheckpointInfo | None = None
    latest_failed: FailedCheckpointInfo | None = None
    restored_id: int | None = None
    uncommitted_ids: tuple[int, ...] = ()
    blocking_sinks: tuple[str, ...] = ()
    paused_because: str = ""
    restored_timestamp_ms: int = -1


class CheckpointConfiguration(msgspec.Struct, frozen=True):
    """Settings of a job's checkpoints. Names of classes are Flink's.

    `interval_ms` is NO_PERIODIC_CHECKPOINTS_MS unless `is_enabled`. The changelog is not supported, so its fields have
    Flink's defaults.
    """

    is_enabled: bool
    mode: str
    interval_ms: int
    timeout_ms: int
    min_pause_ms: int
    max_concurrent: int
    is_externalized: bool
    deletes_on_cancellation: bool
    state_backend: str
    checkpoint_storage: str
    is_unaligned: bool
    tolerable_failure_count: int
    aligned_timeout_ms: int
    checkpoints_after_tasks_finish: bool
    is_changelog_enabled: bool = False
    changelog_materialization_interval_ms: int = 600_000
    changelog_storage: str = "memory"

"""Shapes of checkpoints and savepoints: statistics, details, configuration, requests and their results."""

from typing import Literal

from pydantic import Field

from headrace.rest.models.base_models import (
    CamelModel,
    KebabModel,
    Milliseconds,
    RequestedBoolean,
    SnakeModel,
    TriggerId,
    left_out,
)
from headrace.rest.models.jobs import FailureCause, OperationStatus

ClassName = Literal["in_progress", "completed", "failed"]


class CheckpointStatisticsCounts(SnakeModel):
    """Numbers of checkpoints, including savepoints."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Stats(SnakeModel):
    """Distribution of a figure over checkpoints or subtasks; percentiles are `NaN` if there are no values."""

    min: int
    max: int
    avg: int
    p50: float | str
    p90: float | str
    p95: float | str
    p99: float | str
    p999: float | str


class CheckpointStatisticsSummary(SnakeModel):
    """Distributions over the completed checkpoints."""

    checkpointed_size: Stats
    state_size: Stats
    end_to_end_duration: Stats
    alignment_buffered: Stats
    processed_data: Stats
    persisted_data: Stats


class CheckpointFigures(SnakeModel):
    """Figures of a checkpoint, or of one vertex's part in it."""

    id: int
    status: str
    latest_ack_timestamp: Milliseconds
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class Checkpoint(CheckpointFigures):
    """One checkpoint. `tasks` is only filled in the answer for a single checkpoint."""

    class_name: ClassName = Field(serialization_alias="className")
    is_savepoint: bool
    savepoint_format: str | None = Field(serialization_alias="savepointFormat")
    trigger_timestamp: Milliseconds
    checkpoint_type: str
    tasks: dict[str, CheckpointFigures]
    external_path: str | None = left_out()
    discarded: bool | None = left_out()
    failure_timestamp: int | None = left_out()
    failure_message: str | None = left_out()


class RestoredCheckpointStatistics(SnakeModel):
    """The snapshot from which the job was restored."""

    id: int
    restore_timestamp: Milliseconds
    is_savepoint: bool
    external_path: str | None


class LatestCheckpoints(SnakeModel):
    """The newest checkpoint of each kind."""

    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: RestoredCheckpointStatistics | None


class CheckpointingStatistics(SnakeModel):
    """All recorded checkpoints of a job, newest first."""

    counts: CheckpointStatisticsCounts
    summary: CheckpointStatisticsSummary
    latest: LatestCheckpoints
    history: list[Checkpoint]


class CheckpointPhases(SnakeModel):
    """Durations of the phases of a subtask's snapshot, in milliseconds."""

    sync: int
    # `async` is a word of the language.
    asynchronous: int = Field(serialization_alias="async")


class Alignment(SnakeModel):
    """Alignment of barriers in a subtask; bytes and milliseconds."""

    buffered: int
    processed: int
    persisted: int
    duration: int


class SubtaskCheckpointStatistics(SnakeModel):
    """A subtask's part; a subtask that has not answered only has class name, index and status."""

    class_name: Literal["completed", "pending"] = Field(serialization_alias="className")
    index: int
    status: str
    ack_timestamp: int | None = left_out()
    end_to_end_duration: int | None = left_out()
    checkpointed_size: int | None = left_out()
    state_size: int | None = left_out()
    checkpoint: CheckpointPhases | None = left_out()
    alignment: Alignment | None = left_out()
    start_delay: int | None = left_out()
    unaligned_checkpoint: bool | None = left_out()
    aborted: bool | None = left_out()


class CheckpointPhaseStats(SnakeModel):
    """Distributions of the phases."""

    sync: Stats
    asynchronous: Stats = Field(serialization_alias="async")


class AlignmentStats(SnakeModel):
    """Distributions of the alignment."""

    buffered: Stats
    processed: Stats
    persisted: Stats
    duration: Stats


class SubtaskSummary(SnakeModel):
    """Distributions over the subtasks of a vertex."""

    checkpointed_size: Stats
    state_size: Stats
    end_to_end_duration: Stats
    checkpoint_duration: CheckpointPhaseStats
    alignment: AlignmentStats
    start_delay: Stats


class VertexCheckpoint(CheckpointFigures):
    """A vertex's part of a checkpoint with all its subtasks."""

    summary: SubtaskSummary
    subtasks: list[SubtaskCheckpointStatistics]


class Externalization(SnakeModel):
    """Retention of checkpoints after the end of their job."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfigInfo(SnakeModel):
    """Settings of a job's checkpoints; times in milliseconds."""

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str


class CheckpointTriggerRequest(CamelModel):
    """Request for a checkpoint. INCREMENTAL is refused."""

    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] = "CONFIGURED"
    trigger_id: TriggerId | None = None


class SavepointTriggerRequest(KebabModel):
    """Request for a savepoint."""

    target_directory: str | None = None
    cancel_job: RequestedBoolean = False
    format_type: Literal["CANONICAL", "NATIVE"] = Field(
        default="CANONICAL", validation_alias="formatType"
    )
    trigger_id: TriggerId | None = Field(default=None, validation_alias="triggerId")


class StopRequest(CamelModel):
    """Request to stop a job with a savepoint. `drain`: event time advances to its end before."""

    target_directory: str | None = None
    drain: RequestedBoolean = False
    format_type: Literal["CANONICAL", "NATIVE"] = "CANONICAL"
    trigger_id: TriggerId | None = None


class SavepointDisposalRequest(KebabModel):
    """Request to delete a savepoint."""

    savepoint_path: str
    trigger_id: TriggerId | None = Field(default=None, validation_alias="triggerId")


class SavepointOutcome(KebabModel):
    """Location of a savepoint, or the failure."""

    location: str | None = left_out()
    failure_cause: FailureCause | None = left_out()


class SavepointOperationResult(SnakeModel):
    """Status and outcome of a requested savepoint."""

    status: OperationStatus
    operation: SavepointOutcome | None


class CheckpointOutcome(CamelModel):
    """Id of a checkpoint, or the failure."""

    checkpoint_id: int | None = left_out()
    failure_cause: FailureCause | None = left_out()


class CheckpointOperationResult(SnakeModel):
    """Status and outcome of a requested checkpoint."""

    status: OperationStatus
    operation: CheckpointOutcome | None

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
    """Numbers of checkpoints, savepoints included."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Stats(SnakeModel):
    """Spread of a figure over checkpoints or subtasks; percentiles are `NaN` where there is none."""

    min: int
    max: int
    avg: int
    p50: float | str
    p90: float | str
    p95: float | str
    p99: float | str
    p999: float | str


class CheckpointStatisticsSummary(SnakeModel):
    """Spreads over the completed checkpoints."""

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
    """One checkpoint. `tasks` is filled in its own answer only."""

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
    """The snapshot that the job went on from."""

    id: int
    restore_timestamp: Milliseconds
    is_savepoint: bool
    external_path: str | None


class LatestCheckpoints(SnakeModel):
    """The newest one of each kind."""

    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: RestoredCheckpointStatistics | None


class CheckpointingStatistics(SnakeModel):
    """All that is remembered of a job's checkpoints, newest first."""

    counts: CheckpointStatisticsCounts
    summary: CheckpointStatisticsSummary
    latest: LatestCheckpoints
    history: list[Checkpoint]


class CheckpointPhases(SnakeModel):
    """Milliseconds of a subtask's snapshot."""

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
    """A subtask's part; one that has not answered has class name, index and status alone."""

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
    """Spreads of the phases."""

    sync: Stats
    asynchronous: Stats = Field(serialization_alias="async")


class AlignmentStats(SnakeModel):
    """Spreads of the alignment."""

    buffered: Stats
    processed: Stats
    persisted: Stats
    duration: Stats


class SubtaskSummary(SnakeModel):
    """Spreads over the subtasks of a vertex."""

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
    """Whether checkpoints outlive their job."""

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
    """A checkpoint that is asked for. INCREMENTAL is refused."""

    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] = "CONFIGURED"
    trigger_id: TriggerId | None = None


class SavepointTriggerRequest(KebabModel):
    """A savepoint that is asked for."""

    target_directory: str | None = None
    cancel_job: RequestedBoolean = False
    format_type: Literal["CANONICAL", "NATIVE"] = Field(
        default="CANONICAL", validation_alias="formatType"
    )
    trigger_id: TriggerId | None = Field(default=None, validation_alias="triggerId")


class StopRequest(CamelModel):
    """A job is to end with a savepoint. `drain`: event time goes to its end before."""

    target_directory: str | None = None
    drain: RequestedBoolean = False
    format_type: Literal["CANONICAL", "NATIVE"] = "CANONICAL"
    trigger_id: TriggerId | None = None


class SavepointDisposalRequest(KebabModel):
    """A savepoint is to be deleted."""

    savepoint_path: str
    trigger_id: TriggerId | None = Field(default=None, validation_alias="triggerId")


class SavepointOutcome(KebabModel):
    """Place of a savepoint, or why there is none."""

    location: str | None = left_out()
    failure_cause: FailureCause | None = left_out()


class SavepointOperationResult(SnakeModel):
    """State and outcome of a savepoint that was asked for."""

    status: OperationStatus
    operation: SavepointOutcome | None


class CheckpointOutcome(CamelModel):
    """Id of a checkpoint, or why there is none."""

    checkpoint_id: int | None = left_out()
    failure_cause: FailureCause | None = left_out()


class CheckpointOperationResult(SnakeModel):
    """State and outcome of a checkpoint that was asked for."""

    status: OperationStatus
    operation: CheckpointOutcome | None

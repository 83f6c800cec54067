"""Handlers of checkpoints: statistics, one checkpoint, one vertex's part in it, configuration."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headrace.core.ids import JobId
from headrace.gateways.checkpoint_statistics import (
    CheckpointDetails,
    CheckpointRecord,
    CheckpointStatus,
    StatisticsSummary,
    SubtaskCheckpoint,
    TaskCheckpoint,
    TaskCheckpointDetails,
)
from headrace.metrics.instruments import interpolated_quantile
from headrace.rest.handler_errors import NotFoundError
from headrace.rest.handlers.parameters import (
    CheckpointId,
    ClusterParameter,
    JobParameter,
    VertexParameter,
)
from headrace.rest.models import checkpoints as models
from headrace.rest.models.base_models import NOT_A_NUMBER

_CLASS_NAMES: Final[Mapping[CheckpointStatus, models.ClassName]] = {
    CheckpointStatus.IN_PROGRESS: "in_progress",
    CheckpointStatus.COMPLETED: "completed",
    CheckpointStatus.FAILED: "failed",
}
_SHARES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Shares of the quantiles in a StatisticsSummary."""


async def checkpoint_statistics(
    cluster: ClusterParameter, job: JobParameter
) -> models.CheckpointingStatistics:
    """Show counts, a summary and the newest checkpoints of a job."""
    found = await cluster.checkpoints(job)
    if not found.is_enabled and not found.counts.triggered:
        raise NotFoundError("Checkpointing has not been enabled for this job.")
    counts, summary, restored = found.counts, found.summary, found.restored
    return models.CheckpointingStatistics(
        counts=models.CheckpointStatisticsCounts(
            restored=counts.restored,
            total=counts.triggered,
            in_progress=counts.in_progress,
            completed=counts.completed,
            failed=counts.failed,
        ),
        summary=models.CheckpointStatisticsSummary(
            checkpointed_size=stats_of(summary.checkpointed_size),
            state_size=stats_of(summary.state_size),
            end_to_end_duration=stats_of(summary.end_to_end_duration),
            alignment_buffered=stats_of(summary.alignment_buffered),
            processed_data=stats_of(summary.processed_data),
            persisted_data=stats_of(summary.persisted_data),
        ),
        latest=models.LatestCheckpoints(
            completed=_checkpoint_or_none(found.latest_completed),
            savepoint=_checkpoint_or_none(found.latest_savepoint),
            failed=_checkpoint_or_none(found.latest_failed),
            restored=None
            if restored is None
            else models.RestoredCheckpointStatistics(
                id=restored.checkpoint_id,
                restore_timestamp=restored.restore_timestamp_ms,
                is_savepoint=restored.kind.is_savepoint,
                external_path=with_scheme(restored.external_path) or None,
            ),
        ),
        history=[checkpoint_of(each) for each in found.history],
    )


async def checkpoint_details(
    cluster: ClusterParameter, job: JobParameter, checkpoint_id: CheckpointId
) -> models.Checkpoint:
    """Show one checkpoint with each vertex's part."""
    found = await _find(cluster, job, checkpoint_id)
    tasks = {each.task.vertex_id.hex(): _figures(checkpoint_id, each.task) for each in found.tasks}
    return checkpoint_of(found.checkpoint, tasks)


async def vertex_checkpoint(
    cluster: ClusterParameter,
    job: JobParameter,
    checkpoint_id: CheckpointId,
    vertex: VertexParameter,
) -> models.VertexCheckpoint:
    """Show one vertex's part in a checkpoint with all its subtasks."""
    found = await _find(cluster, job, checkpoint_id)
    for each in found.tasks:
        if each.task.vertex_id == vertex:
            return _vertex_checkpoint(found.checkpoint, each)
    raise NotFoundError(f"There is no checkpoint statistics for task {vertex.hex()}.")


async def checkpoint_config(
    cluster: ClusterParameter, job: JobParameter
) -> models.CheckpointConfigInfo:
    """Show the settings of a job's checkpoints."""
    found = await cluster.checkpoint_configuration(job)
    if not found.is_enabled:
        raise NotFoundError("Checkpointing is not enabled for this job.")
    return models.CheckpointConfigInfo(
        mode=found.mode.lower(),
        interval=found.interval_ms,
        timeout=found.timeout_ms,
        min_pause=found.min_pause_ms,
        max_concurrent=found.max_concurrent,
        externalization=models.Externalization(
            enabled=found.is_externalized, delete_on_cancellation=found.deletes_on_cancellation
        ),
        state_backend=found.state_backend,
        checkpoint_storage=found.checkpoint_storage,
        unaligned_checkpoints=found.is_unaligned,
        tolerable_failed_checkpoints=found.tolerable_failure_count,
        aligned_checkpoint_timeout=found.aligned_timeout_ms,
        checkpoints_after_tasks_finish=found.checkpoints_after_tasks_finish,
        state_changelog_enabled=found.is_changelog_enabled,
        changelog_periodic_materialization_interval=found.changelog_materialization_interval_ms,
        changelog_storage=found.changelog_storage,
    )


def checkpoint_of(
    record: CheckpointRecord, tasks: dict[str, models.CheckpointFigures] | None = None
) -> models.Checkpoint:
    """Return a checkpoint in the model for dashboards."""
    is_completed = record.status is CheckpointStatus.COMPLETED
    is_failed = record.status is CheckpointStatus.FAILED
    return models.Checkpoint(
        **_figures(record.checkpoint_id, record).model_dump(),
        class_name=_CLASS_NAMES[record.status],
        is_savepoint=record.kind.is_savepoint,
        savepoint_format=record.savepoint_format or None,
        trigger_timestamp=record.trigger_timestamp_ms,
        checkpoint_type=_type_of(record),
        tasks=tasks or {},
        external_path=with_scheme(record.external_path or "<checkpoint-not-externally-addressable>")
        if is_completed
        else None,
        discarded=record.is_discarded if is_completed else None,
        failure_timestamp=record.failure_timestamp_ms if is_failed else None,
        failure_message=record.failure_message if is_failed else None,
    )


def with_scheme(path: str) -> str:
    """Return the path of a snapshot as a URI, as Flink does, even if it is a path of this host."""
    return f"file:{path}" if path.startswith("/") else path


def stats_of(summary: StatisticsSummary) -> models.Stats:
    """Return a summary; percentiles are `NaN` if there are no values."""
    return models.Stats(
        min=summary.minimum,
        max=summary.maximum,
        avg=summary.average,
        p50=_or_nan(summary.p50),
        p90=_or_nan(summary.p90),
        p95=_or_nan(summary.p95),
        p99=_or_nan(summary.p99),
        p999=_or_nan(summary.p999),
    )


def stats_over(values: Sequence[int]) -> models.Stats:
    """Return a summary of `values`."""
    ordered = sorted(values)
    if not ordered:
        return stats_of(StatisticsSummary())
    quantiles = (interpolated_quantile(ordered, share) for share in _SHARES)
    average = sum(ordered) // len(ordered)
    return stats_of(StatisticsSummary(ordered[0], ordered[-1], average, *quantiles))


def _or_nan(value: float) -> float | str:
    return NOT_A_NUMBER if math.isnan(value) else value


def _checkpoint_or_none(record: CheckpointRecord | None) -> models.Checkpoint | None:
    return None if record is None else checkpoint_of(record)


def _type_of(record: CheckpointRecord) -> str:
    if not record.kind.is_savepoint:
        return "UNALIGNED_CHECKPOINT" if record.is_unaligned else "CHECKPOINT"
    return "SYNC_SAVEPOINT" if record.kind.is_synchronous else "SAVEPOINT"


async def _find(cluster: ClusterParameter, job: JobId, checkpoint_id: int) -> CheckpointDetails:
    found = await cluster.checkpoint(job, checkpoint_id)
    if found is None:
        raise NotFoundError(
            f"Could not find checkpointing statistics for checkpoint {checkpoint_id}."
        )
    return found


def _figures(
    checkpoint_id: int, sums: CheckpointRecord | TaskCheckpoint
) -> models.CheckpointFigures:
    """Return the figures that a checkpoint has both as a whole and for each vertex."""
    return models.CheckpointFigures(
        id=checkpoint_id,
        status=sums.status,
        latest_ack_timestamp=sums.latest_ack_timestamp_ms,
        checkpointed_size=sums.checkpointed_size_bytes,
        state_size=sums.state_size_bytes,
        end_to_end_duration=sums.end_to_end_duration_ms,
        alignment_buffered=sums.alignment_buffered_bytes,
        processed_data=sums.processed_bytes,
        persisted_data=sums.persisted_bytes,
        num_subtasks=sums.subtask_count,
        num_acknowledged_subtasks=sums.acknowledged_subtask_count,
    )


def _vertex_checkpoint(
    checkpoint: CheckpointRecord, found: TaskCheckpointDetails
) -> models.VertexCheckpoint:
    done = {each.subtask_index: each for each in found.subtasks}

    def over(read: Callable[[SubtaskCheckpoint], int]) -> models.Stats:
        return stats_over([read(each) for each in found.subtasks])

    return models.VertexCheckpoint(
        **_figures(checkpoint.checkpoint_id, found.task).model_dump(),
        summary=models.SubtaskSummary(
            checkpointed_size=over(lambda each: each.checkpointed_size_bytes),
            state_size=over(lambda each: each.state_size_bytes),
            end_to_end_duration=over(lambda each: each.end_to_end_duration_ms),
            checkpoint_duration=models.CheckpointPhaseStats(
                sync=over(lambda each: each.sync_duration_ms),
                asynchronous=over(lambda each: each.async_duration_ms),
            ),
            alignment=models.AlignmentStats(
                buffered=over(lambda each: each.alignment_buffered_bytes),
                processed=over(lambda each: each.processed_bytes),
                persisted=over(lambda each: each.persisted_bytes),
                duration=over(lambda each: each.alignment_duration_ms),
            ),
            start_delay=over(lambda each: each.start_delay_ms),
        ),
        subtasks=[
            _subtask(done[index])
            if index in done
            else models.SubtaskCheckpointStatistics(
                class_name="pending", index=index, status="pending_or_failed"
            )
            for index in range(found.task.subtask_count)
        ],
    )


def _subtask(done: SubtaskCheckpoint) -> models.SubtaskCheckpointStatistics:
    return models.SubtaskCheckpointStatistics(
        class_name="completed",
        index=done.subtask_index,
        status="completed",
        ack_timestamp=done.ack_timestamp_ms,
        end_to_end_duration=done.end_to_end_duration_ms,
        checkpointed_size=done.checkpointed_size_bytes,
        state_size=done.state_size_bytes,
        checkpoint=models.CheckpointPhases(
            sync=done.sync_duration_ms, asynchronous=done.async_duration_ms
        ),
        alignment=models.Alignment(
            buffered=done.alignment_buffered_bytes,
            processed=done.processed_bytes,
            persisted=done.persisted_bytes,
            duration=done.alignment_duration_ms,
        ),
        start_delay=done.start_delay_ms,
        unaligned_checkpoint=done.is_unaligned,
        aborted=done.is_aborted,
    )

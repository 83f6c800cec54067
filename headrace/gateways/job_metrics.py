"""Metrics of a job and of the cluster, under Flink's names, computed from the messages for clients. Pure.

Source: Flink UpTimeGauge, DownTimeGauge, JobStatusMetrics, CheckpointStatsTracker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.checkpoint_statistics import CheckpointInfo, CheckpointOverview
from headrace.gateways.job_master import DeploymentPhase, JobDetails
from headrace.gateways.resource_manager import ResourceOverview
from headrace.metrics import cluster_names as names
from headrace.metrics.groups import MetricSample

_TIMES: Final = {
    JobStatus.CREATED: names.CREATED_TIME,
    JobStatus.RUNNING: names.RUNNING_TIME,
    JobStatus.RESTARTING: names.RESTARTING_TIME,
    JobStatus.CANCELLING: names.CANCELLING_TIME,
    JobStatus.FAILING: names.FAILING_TIME,
}
_PHASE_TIMES: Final = {
    DeploymentPhase.DEPLOYING: names.DEPLOYING_TIME,
    DeploymentPhase.INITIALIZING: names.INITIALIZING_TIME,
    DeploymentPhase.ALL_RUNNING_OR_FINISHED: names.ALL_RUNNING_TIME,
}
_DOWN: Final = (JobStatus.RESTARTING, JobStatus.FAILING)


@dataclass(frozen=True)
class OperatorMetrics:
    """The metrics of one operator's coordinator; `variables` name the operator and its vertex."""

    variables: Mapping[str, str]
    samples: Sequence[MetricSample]


@dataclass(frozen=True)
class JobMetrics:
    """The metrics of one job, and those of its operators' coordinators."""

    job_id: JobId
    name: str
    metrics: dict[str, float]
    operators: tuple[OperatorMetrics, ...] = ()
    has_ended: bool = False


@dataclass(frozen=True)
class JobFacts:
    """The facts of a job from which its metrics are computed, named as in JobDetails, which can be used instead."""

    status: JobStatus
    status_timestamps_ms: Mapping[str, int]
    checkpoints: CheckpointOverview
    restart_count: int
    deployment_phase: DeploymentPhase
    deployment_since_ms: int


def job_metrics(facts: JobFacts | JobDetails, now_ms: int) -> dict[str, float]:
    """Return the metrics of a job; those of its last checkpoint are left out before the first one."""
    status = facts.status
    since_ms = max(0, now_ms - facts.status_timestamps_ms.get(status.name, now_ms))
    values: dict[str, float] = {row.name: 0 for row in _TIMES.values()}
    if status in _TIMES:
        values[_TIMES[status].name] = since_ms
    values[names.UPTIME.name] = since_ms if status is JobStatus.RUNNING else 0
    down_ms = since_ms if status in _DOWN else 0
    has_ended = status.is_globally_terminal_state()
    values[names.DOWNTIME.name] = -1 if has_ended else down_ms
    if has_ended:
        values[names.UPTIME.name] = -1
    values |= {row.name: 0 for row in _PHASE_TIMES.values()}
    if facts.deployment_phase in _PHASE_TIMES and not has_ended:
        phase_ms = max(0, now_ms - facts.deployment_since_ms)
        values[_PHASE_TIMES[facts.deployment_phase].name] = phase_ms
    values[names.NUM_RESTARTS.name] = facts.restart_count
    values[names.NUM_RESCALES.name] = 0
    return values | _checkpoint_metrics(facts.checkpoints)


def _checkpoint_metrics(checkpoints: CheckpointOverview) -> dict[str, float]:
    counts = checkpoints.counts
    values: dict[str, float] = {
        names.CHECKPOINTS_COMPLETED.name: counts.completed,
        names.CHECKPOINTS_FAILED.name: counts.failed,
        names.CHECKPOINTS_IN_PROGRESS.name: counts.in_progress,
        names.CHECKPOINTS_TOTAL.name: counts.triggered,
        names.LAST_CHECKPOINT_RESTORED.name: checkpoints.restored_timestamp_ms,
    }
    last = last_checkpoint(checkpoints)
    if last is not None:
        values |= {
            names.LAST_CHECKPOINT_ID.name: last.checkpoint_id,
            names.LAST_CHECKPOINT_SIZE.name: last.written_bytes,
            names.LAST_CHECKPOINT_FULL_SIZE.name: last.size_bytes,
            names.LAST_CHECKPOINT_METADATA_SIZE.name: last.metadata_bytes,
            names.LAST_CHECKPOINT_PROCESSED.name: 0,
            names.LAST_CHECKPOINT_DURATION.name: last.duration_ms,
            names.LAST_CHECKPOINT_PERSISTED.name: last.slowest.in_flight_bytes,
            names.LAST_CHECKPOINT_COMPLETED.name: last.timestamp_ms + last.duration_ms,
        }
    return values


def last_checkpoint(checkpoints: CheckpointOverview) -> CheckpointInfo | None:
    """Return the newest complete checkpoint or savepoint, or None."""
    completed = filter(None, (checkpoints.latest_completed, checkpoints.latest_savepoint))
    return max(completed, key=lambda each: each.checkpoint_id, default=None)


def cluster_metrics(resources: ResourceOverview, running_job_count: int) -> dict[str, float]:
    """Return the metrics of a cluster."""
    task_managers = resources.task_managers
    return {
        names.NUM_TASK_MANAGERS.name: len(task_managers),
        names.NUM_PENDING_TASK_MANAGERS.name: resources.pending_worker_count,
        names.START_WORKER_FAILURE_RATE.name: resources.start_failures_per_second,
        names.NUM_RUNNING_JOBS.name: running_job_count,
        names.SLOTS_AVAILABLE.name: sum(each.free_slot_count for each in task_managers),
        names.SLOTS_TOTAL.name: sum(each.slot_count for each in task_managers),
    }

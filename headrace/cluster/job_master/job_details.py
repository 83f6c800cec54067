"""Details of a job for people and clients, per vertex and subtask, with metrics combined over subtasks. Pure."""

from typing import Final

from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import ExceptionEntry
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.ids import ExecutionVertexId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.job_master import (
    CheckpointOverview,
    ExceptionInfo,
    JobDetails,
    JobNotice,
    RootExceptionInfo,
    SubtaskDetails,
    VertexDetails,
)
from headrace.gateways.messages import ErrorInfo
from headrace.metrics import names
from headrace.metrics.names import combine_metrics

_EVERY_OPERATOR: Final = frozenset(
    row.name
    for row in (
        names.NUM_RECORDS_IN,
        names.NUM_RECORDS_OUT,
        names.CURRENT_INPUT_WATERMARK,
        names.CURRENT_OUTPUT_WATERMARK,
        names.CURRENT_EMIT_EVENT_TIME_LAG,
        names.SOURCE_IDLE_TIME,
        names.PENDING_RECORDS,
        names.NUM_RECORDS_SEND,
        names.NUM_FIRED_TIMERS,
    )
)
"""Metrics that the runtime has for operators of any program: no operator publishes them as a result."""


def describe_job(
    scheduler: Scheduler,
    checkpoints: CheckpointOverview,
    notices: tuple[JobNotice, ...],
    explanation: str = "",
) -> JobDetails:
    """The job as it stands; `explanation` says what it waits for, `notices` what its user was told."""
    graph = scheduler.graph
    vertices: list[VertexDetails] = []
    for vertex in graph.vertices:
        subtasks = tuple(
            _subtask(scheduler.executions.current(ExecutionVertexId(vertex.vertex_id, index)))
            for index in range(vertex.parallelism)
        )
        vertices.append(
            VertexDetails(
                vertex.vertex_id,
                vertex.name,
                vertex.parallelism,
                subtasks,
                combine_metrics(subtask.metrics for subtask in subtasks),
            )
        )
    return JobDetails(
        graph.job_id,
        graph.name,
        scheduler.status,
        dict(scheduler.status_timestamps_ms),
        tuple(vertices),
        failure_of(scheduler),
        explanation,
        checkpoints,
        tuple(
            RootExceptionInfo(
                _exception(entry.root), tuple(_exception(each) for each in entry.concurrent)
            )
            for entry in scheduler.history.entries
        ),
        notices,
        restart_count=scheduler.history.restart_count,
    )


def result_of(scheduler: Scheduler) -> JobResult:
    """Return the result of a job that has ended."""
    times = scheduler.status_timestamps_ms
    started_ms = times[JobStatus.CREATED.name]
    return JobResult(
        scheduler.graph.job_id,
        scheduler.graph.name,
        scheduler.status,
        max(times.values()) - started_ms,
        _accumulators(scheduler),
        failure_of(scheduler),
    )


def failure_of(scheduler: Scheduler) -> ErrorInfo | None:
    """The cause that people should read: of a job that fails or has failed, or that restarts or was cancelled then."""
    history, status = scheduler.history, scheduler.status
    if history.cause is None:
        return None
    is_cancelled = status in (JobStatus.CANCELLING, JobStatus.CANCELED) and not history.is_overcome
    is_failure = status in (JobStatus.FAILING, JobStatus.FAILED, JobStatus.RESTARTING)
    return history.cause.error if is_failure or is_cancelled else None


def _subtask(execution: Execution) -> SubtaskDetails:
    return SubtaskDetails(
        execution.attempt_id.subtask_index,
        execution.attempt_id.attempt_number,
        execution.state,
        None if execution.slot is None else execution.slot.resource_id,
        dict(execution.metrics),
    )


def _exception(entry: ExceptionEntry) -> ExceptionInfo:
    task = entry.task
    return ExceptionInfo(
        entry.failure.error,
        entry.timestamp_ms,
        "" if task is None else task.name,
        None if task is None else task.resource_id,
    )


def _accumulators(scheduler: Scheduler) -> dict[str, float]:
    """Metrics of operators (`<operator>.<metric>`), combined over all subtasks."""
    combined = combine_metrics(execution.metrics for execution in scheduler.executions)
    return {
        name: value
        for name, value in combined.items()
        if "." in name and name.rpartition(".")[2] not in _EVERY_OPERATOR
    }

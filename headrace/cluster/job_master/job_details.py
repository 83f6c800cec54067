"""Details of a job for people and clients, per vertex and subtask, with metrics combined over subtasks. Pure."""

import itertools
import operator
from typing import Final

from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import ExceptionEntry
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.config import Settings
from headrace.core.ids import JobVertexId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobOverview, JobResult
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
from headrace.graph.job_graph import JobGraph, JobVertex
from headrace.graph.job_plan import JOB_TYPE
from headrace.graph.pipeline_options import MAX_PARALLELISM
from headrace.metrics import names
from headrace.metrics.names import combine_metrics

_EVERY_OPERATOR: Final = frozenset(
    row.name
    for row in (
        names.NUM_RECORDS_IN,
        names.NUM_RECORDS_OUT,
        names.NUM_RECORDS_IN_PER_SECOND,
        names.NUM_RECORDS_OUT_PER_SECOND,
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


class VertexDescriber:
    """Describes a job's vertices; what has not changed since it was asked last is not described anew.

    One per job, because it is asked every few seconds, and a job may have many thousands of subtasks.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Final = scheduler
        self._vertices: dict[JobVertexId, VertexDetails] = {}

    def describe(self) -> tuple[VertexDetails, ...]:
        """Return the vertices as they stand, in topological order."""
        executions = iter(self._scheduler.executions)
        return tuple(
            self._vertex(vertex, list(itertools.islice(executions, vertex.parallelism)))
            for vertex in self._scheduler.graph.vertices
        )

    def _vertex(self, vertex: JobVertex, executions: list[Execution]) -> VertexDetails:
        known = self._vertices.get(vertex.vertex_id)
        if known is not None and known.max_parallelism == vertex.max_parallelism:
            subtasks = tuple(map(self._subtask, executions, known.subtasks))
            if all(map(operator.is_, subtasks, known.subtasks)):
                return known
        else:
            subtasks = tuple(self._subtask(each, None) for each in executions)
        described = self._vertices[vertex.vertex_id] = VertexDetails(
            vertex.vertex_id,
            vertex.name,
            vertex.parallelism,
            subtasks,
            combine_metrics(subtask.metrics for subtask in subtasks),
            vertex.max_parallelism,
            vertex.slot_sharing_group,
        )
        return described

    def _subtask(self, execution: Execution, known: SubtaskDetails | None) -> SubtaskDetails:
        attempt_id = execution.attempt_id
        if (
            known is None
            or known.state is not execution.state
            or known.endpoint is not execution.endpoint
            or known.attempt_number != attempt_id.attempt_number
            or known.error is not execution.error
        ):
            times_ms = execution.named_timestamps_ms
            earlier = self._scheduler.executions.earlier_attempts(attempt_id.execution_vertex_id)
        elif known.metrics is execution.metrics:
            return known
        else:
            times_ms, earlier = known.timestamps_ms, known.earlier_attempts
        return SubtaskDetails(
            attempt_id.subtask_index,
            attempt_id.attempt_number,
            execution.state,
            execution.resource_id,
            execution.metrics,
            execution.endpoint,
            times_ms,
            execution.error,
            earlier,
        )


def describe_job(
    scheduler: Scheduler,
    vertices: tuple[VertexDetails, ...],
    checkpoints: CheckpointOverview,
    notices: tuple[JobNotice, ...],
    explanation: str = "",
) -> JobDetails:
    """The job as it stands; `explanation` says what it waits for, `notices` what its user was told."""
    graph = scheduler.graph
    return JobDetails(
        graph.job_id,
        graph.name,
        scheduler.status,
        dict(scheduler.status_timestamps_ms),
        vertices,
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
        max_parallelism=stated_max_parallelism(graph),
        job_type=JOB_TYPE,
        exceptions_truncated=scheduler.history.is_truncated,
        restart_count=scheduler.history.restart_count,
        deployment_phase=scheduler.executions.counts.phase,
        deployment_since_ms=scheduler.executions.counts.phase_since_ms,
    )


def overview_of(scheduler: Scheduler) -> JobOverview:
    """Return the line of a job in a list; its subtasks are counted as they change, not here."""
    graph, status, times = scheduler.graph, scheduler.status, scheduler.status_timestamps_ms
    end_ms = times[status.name] if status.is_globally_terminal_state() else -1
    counts = scheduler.executions.counts
    return JobOverview(
        graph.job_id,
        graph.name,
        status,
        times[JobStatus.CREATED.name],
        end_ms,
        max(end_ms, counts.changed_ms),
        JOB_TYPE,
        counts.by_name,
        stated_max_parallelism(graph),
    )


def stated_max_parallelism(graph: JobGraph) -> int:
    """Return the max parallelism in a job's settings; -1 where there is none."""
    return Settings(graph.settings).get_option(MAX_PARALLELISM)


def result_of(scheduler: Scheduler) -> JobResult:
    """Return the result of a job that has ended."""
    times = scheduler.status_timestamps_ms
    started_ms = times[JobStatus.CREATED.name]
    return JobResult(
        scheduler.graph.job_id,
        scheduler.graph.name,
        scheduler.status,
        max(times.values()) - started_ms,
        accumulators_of(scheduler),
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


def _exception(entry: ExceptionEntry) -> ExceptionInfo:
    task = entry.task
    return ExceptionInfo(
        entry.failure.error,
        entry.timestamp_ms,
        "" if task is None else task.name,
        None if task is None else task.resource_id,
        "" if task is None else task.endpoint,
    )


def accumulators_of(scheduler: Scheduler) -> dict[str, float]:
    """Metrics of operators (`<operator>.<metric>`), combined over all subtasks."""
    combined = combine_metrics(
        {
            name: value
            for name, value in execution.metrics.items()
            if "." in name and name.rpartition(".")[2] not in _EVERY_OPERATOR
        }
        for execution in scheduler.executions
    )
    return combined

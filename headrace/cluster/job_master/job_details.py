"""Details of a job for people and clients: its configuration, vertices and subtasks, metrics combined. Pure."""

import itertools
import operator
from collections.abc import Callable
from typing import Final

from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import ExceptionEntry
from headrace.cluster.job_master.failover.restart_strategies import describe_restart_strategy
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.config import Settings
from headrace.core.ids import JobVertexId
from headrace.core.lifecycle import JobStatus
from headrace.core.redaction import shown_settings
from headrace.gateways.checkpoint_statistics import CheckpointOverview
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.job_master import (
    ExceptionInfo,
    JobConfiguration,
    JobDetails,
    JobNotice,
    RootExceptionInfo,
    SubtaskDetails,
    VertexDetails,
)
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import JobGraph, JobVertex
from headrace.graph.job_plan import job_type_of
from headrace.graph.pipeline_options import (
    MAX_PARALLELISM,
    OBJECT_REUSE,
    PARALLELISM,
    global_job_parameters,
)


class VertexDescriber:
    """Describes a job's vertices, and caches the descriptions of those that have not changed.

    One per job, because it is called every few seconds, and a job may have many thousands of subtasks.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        coordinator_metrics: Callable[[JobVertexId], dict[str, float]] = lambda vertex_id: {},
    ) -> None:
        self._scheduler: Final = scheduler
        self._coordinator_metrics: Final = coordinator_metrics
        self._vertices: dict[JobVertexId, VertexDetails] = {}

    def describe(self) -> tuple[VertexDetails, ...]:
        """Return the current details of all vertices, in topological order."""
        executions = iter(self._scheduler.executions)
        return tuple(
            self._vertex(vertex, list(itertools.islice(executions, vertex.parallelism)))
            for vertex in self._scheduler.graph.vertices
        )

    def _vertex(self, vertex: JobVertex, executions: list[Execution]) -> VertexDetails:
        known = self._vertices.get(vertex.vertex_id)
        of_coordinators = self._coordinator_metrics(vertex.vertex_id)
        if known is not None and known.max_parallelism == vertex.max_parallelism:
            subtasks = tuple(map(self._subtask, executions, known.subtasks))
            is_same = of_coordinators == known.coordinator_metrics
            if is_same and all(map(operator.is_, subtasks, known.subtasks)):
                return known
        else:
            subtasks = tuple(self._subtask(each, None) for each in executions)
        described = self._vertices[vertex.vertex_id] = VertexDetails(
            vertex.vertex_id,
            vertex.name,
            vertex.parallelism,
            subtasks,
            vertex.max_parallelism,
            vertex.slot_sharing_group,
            of_coordinators,
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
            execution.counters,
            None if execution.slot is None else execution.slot.allocation_id,
        )


def describe_job(
    scheduler: Scheduler,
    vertices: tuple[VertexDetails, ...],
    checkpoints: CheckpointOverview,
    notices: tuple[JobNotice, ...],
    explanation: str = "",
) -> JobDetails:
    """Return the job's current details; `explanation` is its reason to wait, `notices` its messages to the user."""
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
        job_type=job_type_of(graph),
        exceptions_truncated=scheduler.history.is_truncated,
        restart_count=scheduler.history.restart_count,
        deployment_phase=scheduler.executions.counts.phase,
        deployment_since_ms=scheduler.executions.counts.phase_since_ms,
    )


def describe_configuration(graph: JobGraph, cluster: Settings) -> JobConfiguration:
    """Return a job's settings over those of its cluster, with secrets masked."""
    settings = cluster.with_values(graph.settings)
    shown = shown_settings(settings)
    parallelism = settings.get_option(PARALLELISM)
    if parallelism < 1:
        parallelism = max((vertex.parallelism for vertex in graph.vertices), default=1)
    return JobConfiguration(
        shown,
        describe_restart_strategy(Settings(graph.settings)),
        parallelism,
        settings.get_option(OBJECT_REUSE),
        global_job_parameters(shown),
    )


def overview_of(scheduler: Scheduler) -> JobOverview:
    """Return the line of a job in a list. Its subtask counts are maintained, not computed here."""
    graph, status, times = scheduler.graph, scheduler.status, scheduler.status_timestamps_ms
    end_ms = times[status.name] if status.is_globally_terminal_state() else -1
    counts = scheduler.executions.counts
    return JobOverview(
        graph.job_id,
        graph.name,
        status,
        scheduler.started_ms,
        end_ms,
        max(end_ms, counts.changed_ms),
        job_type_of(graph),
        counts.by_name,
        stated_max_parallelism(graph),
    )


def stated_max_parallelism(graph: JobGraph) -> int:
    """Return the max parallelism in a job's settings, or -1 if it is not set."""
    return Settings(graph.settings).get_option(MAX_PARALLELISM)


def result_of(scheduler: Scheduler) -> JobResult:
    """Return the result of a job that has ended."""
    return JobResult(
        scheduler.graph.job_id,
        scheduler.graph.name,
        scheduler.status,
        max(scheduler.status_timestamps_ms.values()) - scheduler.started_ms,
        accumulators_of(scheduler),
        failure_of(scheduler),
    )


def failure_of(scheduler: Scheduler) -> ErrorInfo | None:
    """Return the failure to show: of a job that fails, has failed or restarts, or was cancelled in that state."""
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
    """Return the sum of each user counter (`<operator>.<counter>`) over all subtasks."""
    sums: dict[str, float] = {}
    for execution in scheduler.executions:
        for name in execution.counters:
            sums[name] = sums.get(name, 0) + execution.metrics.get(name, 0)
    return sums

"""Handlers of metrics: lists of names, values, and values combined over jobs, subtasks or TaskManagers.

An id is a metric's name with `_` for each character that is not a letter, digit, underscore or dot, as it contains
names of operators. A requested id may contain the original characters. Names of splits stay unchanged.
Source: Flink's AbstractMetricsHandler and AbstractAggregatingMetricsHandler.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

from fastapi import Query

from headrace.core.ids import JobId, ResourceId
from headrace.gateways.errors import UnknownJobError
from headrace.gateways.job_master import SubtaskDetails, VertexDetails
from headrace.gateways.job_metrics import job_metrics, last_checkpoint
from headrace.metrics.network_names import with_network_names
from headrace.rest.handler_errors import BadRequestError
from headrace.rest.handlers.checkpoints import with_scheme
from headrace.rest.handlers.parameters import (
    ClusterParameter,
    JobParameter,
    MetricNames,
    SubtaskIndex,
    TaskManagerId,
    VertexParameter,
)
from headrace.rest.handlers.vertices import find_subtask
from headrace.rest.models.cluster import AggregatedMetric, MetricValue
from headrace.rest.models.vertices import MetricsHistoryInfo

_AGGREGATIONS: Final = ("min", "max", "avg", "sum", "skew")
_SPLIT: Final = ".split."
_OTHER: Final = re.compile(r"[^A-Za-z0-9_.]|\.(?![A-Za-z0-9_])")
"""Characters other than letters, digits and underscores; dots between such stay, as those before a metric's name."""
_LAST_CHECKPOINT_EXTERNAL_PATH: Final = "lastCheckpointExternalPath"
"""Metric whose value is a text; it is shown over REST but not sent to reporters."""
_INDEX: Final = re.compile("[0-9]{1,9}")
_Aggregations = Annotated[str | None, Query(alias="agg", max_length=100)]
_Chosen = Annotated[str | None, Query(max_length=100_000)]


async def job_manager_metrics(cluster: ClusterParameter, get: MetricNames) -> list[MetricValue]:
    """List metrics of the driver's process and of the cluster."""
    return shown(await cluster.job_manager_metrics(), get)


async def task_manager_metrics(
    cluster: ClusterParameter, task_manager: TaskManagerId, get: MetricNames
) -> list[MetricValue]:
    """List metrics of a TaskManager's process."""
    return shown(await cluster.task_manager_metrics(ResourceId(task_manager)), get)


async def metrics_of_task_managers(
    cluster: ClusterParameter,
    get: MetricNames,
    agg: _Aggregations = None,
    taskmanagers: _Chosen = None,
) -> list[AggregatedMetric] | list[MetricValue]:
    """Combine metrics of all TaskManagers, or of the given ones."""
    overview = await cluster.resources()
    chosen = None if taskmanagers is None else set(taskmanagers.split(","))
    ids = [each.resource_id for each in overview.task_managers]
    found = await cluster.each(
        cluster.task_manager_metrics(one) for one in ids if chosen is None or str(one) in chosen
    )
    return combined(found, get, agg)


async def metrics_of_job(
    cluster: ClusterParameter, job: JobParameter, get: MetricNames
) -> list[MetricValue]:
    """List metrics of a job; empty for an unknown job."""
    try:
        return shown(await _of_job(cluster, job), get)
    except UnknownJobError:
        return []


async def metrics_of_jobs(
    cluster: ClusterParameter, get: MetricNames, agg: _Aggregations = None, jobs: _Chosen = None
) -> list[AggregatedMetric] | list[MetricValue]:
    """Combine metrics of all jobs, or of the given ones."""
    chosen = None if jobs is None else set(jobs.split(","))
    ids = [job.job_id for job in await cluster.jobs()]
    found = await cluster.each(
        _of_job(cluster, job) for job in ids if chosen is None or job.hex() in chosen
    )
    return combined(found, get, agg)


async def metrics_of_vertex(
    cluster: ClusterParameter, job: JobParameter, vertex: VertexParameter, get: MetricNames
) -> list[MetricValue]:
    """List metrics of all subtasks of a vertex; each name is preceded by the subtask's index."""
    found = await cluster.vertex(job, vertex)
    values = {
        f"{subtask.subtask_index}.{name}": value
        for subtask in found.subtasks
        for name, value in with_network_names(subtask.metrics, get).items()
    }
    return shown(values, get)


async def metrics_of_subtasks(
    cluster: ClusterParameter,
    job: JobParameter,
    vertex: VertexParameter,
    get: MetricNames,
    agg: _Aggregations = None,
    subtasks: _Chosen = None,
) -> list[AggregatedMetric] | list[MetricValue]:
    """Combine metrics of the subtasks of a vertex, or of the given ones, such as `1,3,5-9`."""
    found = await cluster.vertex(job, vertex)
    chosen = _chosen_subtasks(found, subtasks)
    return combined([with_network_names(each.metrics, get) for each in chosen], get, agg)


async def metrics_of_subtask(
    cluster: ClusterParameter,
    job: JobParameter,
    vertex: VertexParameter,
    subtask_index: SubtaskIndex,
    get: MetricNames,
) -> list[MetricValue]:
    """List metrics of one subtask."""
    found = await find_subtask(cluster, job, vertex, subtask_index)
    return shown(with_network_names(found.metrics, get), get)


async def metrics_of_coordinators(
    cluster: ClusterParameter, job: JobParameter, vertex: VertexParameter, get: MetricNames
) -> list[MetricValue]:
    """List metrics of the coordinators of a vertex, as `<operator>.coordinator.<metric>`."""
    return shown((await cluster.vertex(job, vertex)).coordinator_metrics, get)


async def job_metrics_history(cluster: ClusterParameter, job: JobParameter) -> MetricsHistoryInfo:
    """Show metrics of a job's vertices over time."""
    return await cluster.metrics_history(job)


def shown(values: Mapping[str, float | str], wanted: Sequence[str] | None) -> list[MetricValue]:
    """Return only names if `wanted` is None, else the existing wanted metrics with their values."""
    by_id = {metric_id(name): value for name, value in values.items()}
    if wanted is None:
        return [MetricValue(id=each) for each in sorted(by_id)]
    return [
        MetricValue(id=each, value=value_text(by_id[each]))
        for each in map(metric_id, wanted)
        if each in by_id
    ]


def metric_id(name: str) -> str:
    """Return the id of a metric."""
    scope, split, rest = name.partition(_SPLIT)
    return _OTHER.sub("_", scope) + split + rest


def combined(
    found: Iterable[Mapping[str, float | str]],
    wanted: Sequence[str] | None,
    aggregations: str | None,
) -> list[AggregatedMetric] | list[MetricValue]:
    """Return each metric combined over all that have it; BadRequestError for an unknown aggregation."""
    chosen = _AGGREGATIONS if aggregations is None else tuple(aggregations.split(","))
    for name in chosen:
        if name not in _AGGREGATIONS:
            raise BadRequestError(
                f'Bad request, could not parse parameters: Cannot resolve query parameter (agg) from value "{name}": '
                f"it must be one of {', '.join(_AGGREGATIONS)}"
            )
    values: dict[str, list[float]] = {}
    for metrics in found:
        for name, value in metrics.items():
            if not isinstance(value, str) and math.isfinite(value):
                values.setdefault(metric_id(name), []).append(value)
    if wanted is None:
        return [MetricValue(id=each) for each in sorted(values)]
    return [
        _aggregate(each, values[each], chosen) for each in map(metric_id, wanted) if each in values
    ]


def skew_percent(values: Sequence[float]) -> float:
    """Return the mean distance from the average, in percent of the average."""
    average = sum(values) / len(values)
    if not average:
        return 0.0
    distance = sum(abs(value - average) for value in values) / len(values)
    return distance / average * 100


def value_text(value: float | str) -> str:
    """Return a value as text in Flink's form: whole numbers without a fraction."""
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return str(int(value)) if value == math.floor(value) and abs(value) < 1e18 else str(value)


def _aggregate(name: str, values: Sequence[float], chosen: Sequence[str]) -> AggregatedMetric:
    found = {
        "min": min(values),
        "max": max(values),
        "avg": sum(values) / len(values),
        "sum": math.fsum(values),
        "skew": skew_percent(values),
    }
    return AggregatedMetric(id=name, **{each: found[each] for each in chosen})


async def _of_job(cluster: ClusterParameter, job: JobId) -> Mapping[str, float | str]:
    details = await cluster.details(job)
    values: dict[str, float | str] = {**job_metrics(details, cluster.clock.now_ms())}
    last = last_checkpoint(details.checkpoints)
    if last is not None and last.uri:
        values[_LAST_CHECKPOINT_EXTERNAL_PATH] = with_scheme(last.uri)
    return values


def _chosen_subtasks(vertex: VertexDetails, text: str | None) -> list[SubtaskDetails]:
    return [vertex.subtasks[index] for index in _indices(text, len(vertex.subtasks))]


def _indices(text: str | None, count: int) -> list[int]:
    """Return the existing subtasks that a text such as `1,3,5-9` names; BadRequestError if it is invalid."""
    if text is None:
        return list(range(count))
    found: set[int] = set()
    for part in text.split(","):
        first, separator, last = part.strip().partition("-")
        if not _INDEX.fullmatch(first) or (separator and not _INDEX.fullmatch(last)):
            raise BadRequestError(
                "Bad request, could not parse parameters: Cannot resolve query parameter (subtasks) from value "
                f'"{text}": it must be indices and ranges such as 1,3,5-9'
            )
        found.update(range(int(first), min(int(last or first), count - 1) + 1))
    return sorted(index for index in found if index < count)

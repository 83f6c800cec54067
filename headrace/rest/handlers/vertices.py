"""Handlers of vertices and subtasks: attempts, times, TaskManagers, back pressure, watermarks, accumulators."""

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Final

from headrace.core.ids import JobId, JobVertexId
from headrace.core.lifecycle import ExecutionState
from headrace.core.threads import run_in_thread
from headrace.gateways.job_master import SubtaskDetails, VertexDetails
from headrace.metrics import names
from headrace.rest.handler_errors import NotFoundError
from headrace.rest.handlers.parameters import (
    AttemptNumber,
    ClusterParameter,
    JobParameter,
    SubtaskIndex,
    VertexParameter,
)
from headrace.rest.handlers.subtasks import (
    AnyAttempt,
    aggregated,
    attempt_of,
    combined_io_metrics,
    duration_ms,
    end_ms,
    group_times,
    start_ms,
    state_counts,
    subtasks_by_task_manager,
    vertex_status,
)
from headrace.rest.models import vertices as models
from headrace.rest.models.cluster import MetricValue

_LOW: Final = 0.10
_HIGH: Final = 0.5
_NO_WATERMARK: Final = -(1 << 63)
_IDLE_TIME: Final = f".{names.SOURCE_IDLE_TIME.name}"
_SPLIT: Final = ".split."
_WATERMARK: Final = f".watermark.{names.SPLIT_CURRENT_WATERMARK.name}"
_SPLIT_METRIC: Final = re.compile(r"(.+\.split\..+)\.watermark\.[^.]+")
"""Any metric of a split: its watermark is absent before the first one, but other metrics exist."""


async def vertex_details(
    cluster: ClusterParameter, job: JobParameter, vertex: VertexParameter
) -> models.JobVertexDetailsInfo:
    """Show a vertex with the current attempt of each subtask."""
    found, now_ms = await cluster.vertex(job, vertex), cluster.clock.now_ms()
    return models.JobVertexDetailsInfo(
        id=vertex.hex(),
        name=found.name,
        parallelism=found.parallelism,
        max_parallelism=found.max_parallelism,
        now=now_ms,
        subtasks=[attempt_of(each.subtask_index, each, now_ms) for each in found.subtasks],
        aggregated=aggregated(found.subtasks, now_ms),
    )


async def subtask_attempt(
    cluster: ClusterParameter,
    job: JobParameter,
    vertex: VertexParameter,
    subtask_index: SubtaskIndex,
) -> models.Attempt:
    """Show the current attempt of a subtask."""
    subtask = await find_subtask(cluster, job, vertex, subtask_index)
    return attempt_of(subtask_index, subtask, cluster.clock.now_ms())


async def numbered_attempt(
    cluster: ClusterParameter,
    job: JobParameter,
    vertex: VertexParameter,
    subtask_index: SubtaskIndex,
    attempt: AttemptNumber,
) -> models.Attempt:
    """Show one attempt of a subtask, also one that has ended."""
    subtask = await find_subtask(cluster, job, vertex, subtask_index)
    return attempt_of(subtask_index, find_attempt(subtask, attempt), cluster.clock.now_ms())


async def subtask_times(
    cluster: ClusterParameter, job: JobParameter, vertex: VertexParameter
) -> models.SubtaskTimes:
    """Show the times at which the subtasks of a vertex entered their states."""
    found, now_ms = await cluster.vertex(job, vertex), cluster.clock.now_ms()
    return models.SubtaskTimes(
        id=vertex.hex(),
        name=found.name,
        now=now_ms,
        subtasks=[
            models.SubtaskTime(
                subtask=each.subtask_index,
                endpoint=each.endpoint or "(unassigned)",
                duration=duration_ms(start_ms(each), end_ms(each), now_ms),
                timestamps={
                    state.name: each.timestamps_ms.get(state.name, 0) for state in ExecutionState
                }
                | {"RECONCILING": 0},
            )
            for each in found.subtasks
        ],
    )


async def vertex_task_managers(
    cluster: ClusterParameter, job: JobParameter, vertex: VertexParameter
) -> models.VertexTaskManagers:
    """Show the subtasks of a vertex by TaskManager."""
    found, now_ms = await cluster.vertex(job, vertex), cluster.clock.now_ms()
    rows: list[models.VertexTaskManager] = []
    for place, subtasks in subtasks_by_task_manager(found).items():
        begin_ms, last_ms, duration = group_times(subtasks, now_ms)
        rows.append(
            models.VertexTaskManager(
                endpoint=subtasks[0].endpoint or "(unassigned)",
                taskmanager_id=place,
                status=vertex_status(subtasks).name,
                start_time=begin_ms,
                end_time=last_ms,
                duration=duration,
                metrics=combined_io_metrics(subtasks),
                status_counts=state_counts(subtasks),
                aggregated=aggregated(subtasks, now_ms),
            )
        )
    return models.VertexTaskManagers(
        id=vertex.hex(), name=found.name, now=now_ms, taskmanagers=rows
    )


async def back_pressure(
    cluster: ClusterParameter, job: JobParameter, vertex: VertexParameter
) -> models.BackPressure:
    """Show the share of time that the subtasks of a vertex wait for room in their output."""
    found, now_ms = await cluster.vertex(job, vertex), cluster.clock.now_ms()
    measured = [each for each in found.subtasks if names.BACK_PRESSURED_TIME.name in each.metrics]
    rows = [_back_pressure(each) for each in measured]
    level = back_pressure_level(max((row.ratio for row in rows), default=0.0))
    return models.BackPressure(
        status="ok" if rows else "deprecated",
        backpressure_level=level,
        backpressure_level_again=level,
        end_timestamp=now_ms,
        subtasks=rows,
    )


async def watermarks(
    cluster: ClusterParameter, job: JobParameter, vertex: VertexParameter
) -> list[MetricValue]:
    """List the last watermark that each subtask of a vertex has received; none for sources."""
    found = await cluster.vertex(job, vertex)
    plan = await cluster.plan(job)
    if any(node.vertex_id == vertex and not node.inputs for node in plan.nodes):
        return []
    name = names.CURRENT_INPUT_WATERMARK.name
    return [
        MetricValue(
            id=f"{each.subtask_index}.{name}",
            value=str(int(each.metrics.get(name, _NO_WATERMARK))),
        )
        for each in found.subtasks
    ]


async def job_watermarks(cluster: ClusterParameter, job: JobParameter) -> models.JobWatermarks:
    """Show the event time of each running subtask of a job, and of the splits that it reads."""
    vertices = (await cluster.details(job)).vertices
    # For 10,000 subtasks this takes 50 ms, too long for the loop on which other requests wait.
    subtasks = await run_in_thread("headrace-watermarks", lambda: _event_times(vertices))
    return models.JobWatermarks(jid=job.hex(), now=cluster.clock.now_ms(), subtasks=subtasks)


class _EventTimeMetrics:
    """Names of a subtask's metrics about event time. `splits`: watermark metrics by split id."""

    def __init__(self, metric_names: tuple[str, ...]) -> None:
        # A source is the first operator of its task; names of its metrics begin with its own.
        self.idle: Final = next((name for name in metric_names if name.endswith(_IDLE_TIME)), "")
        source = self.idle.removesuffix(_IDLE_TIME)
        self.records_read: Final = f"{source}.{names.NUM_RECORDS_OUT.name}" if source else ""
        self.splits: Final = {
            found[1].rpartition(_SPLIT)[2]: found[1] + _WATERMARK
            for name in metric_names
            if _SPLIT in name and (found := _SPLIT_METRIC.fullmatch(name))
        }


def _event_times(vertices: Iterable[VertexDetails]) -> list[models.SubtaskWatermarks]:
    # Subtasks that read no splits have metrics of the same names as others: these are searched once.
    search = functools.cache(_EventTimeMetrics)
    return [
        _event_time(vertex.vertex_id, each, search(tuple(each.metrics)))
        for vertex in vertices
        for each in vertex.subtasks
        if each.state is ExecutionState.RUNNING
    ]


def _event_time(
    vertex_id: JobVertexId, subtask: SubtaskDetails, found: _EventTimeMetrics
) -> models.SubtaskWatermarks:
    def whole(name: str) -> int | None:
        value = subtask.metrics.get(name)
        return None if value is None else int(value)

    return models.SubtaskWatermarks(
        vertex=vertex_id.hex(),
        subtask=subtask.subtask_index,
        start_time=start_ms(subtask),
        input_watermark=whole(names.CURRENT_INPUT_WATERMARK.name),
        output_watermark=whole(names.CURRENT_OUTPUT_WATERMARK.name),
        idle_time=whole(found.idle),
        records_read=whole(found.records_read),
        splits=[models.SplitWatermark(split, whole(name)) for split, name in found.splits.items()],
    )


async def vertex_accumulators(
    cluster: ClusterParameter, job: JobParameter, vertex: VertexParameter
) -> models.VertexAccumulators:
    """List the accumulators of a vertex: the counters of its functions, summed over subtasks."""
    found = await cluster.vertex(job, vertex)
    return models.VertexAccumulators(
        id=vertex.hex(), user_accumulators=_accumulators(found.subtasks)
    )


async def subtasks_accumulators(
    cluster: ClusterParameter, job: JobParameter, vertex: VertexParameter
) -> models.SubtasksAccumulators:
    """List the accumulators of each subtask of a vertex."""
    found = await cluster.vertex(job, vertex)
    return models.SubtasksAccumulators(
        id=vertex.hex(),
        parallelism=found.parallelism,
        subtasks=[
            models.SubtaskAccumulators(
                subtask=each.subtask_index,
                attempt=each.attempt_number,
                endpoint=each.endpoint or "(unassigned)",
                user_accumulators=_accumulators((each,)),
            )
            for each in found.subtasks
        ],
    )


async def attempt_accumulators(
    cluster: ClusterParameter,
    job: JobParameter,
    vertex: VertexParameter,
    subtask_index: SubtaskIndex,
    attempt: AttemptNumber,
) -> models.AttemptAccumulators:
    """List the accumulators of one attempt of a subtask."""
    subtask = await find_subtask(cluster, job, vertex, subtask_index)
    found = find_attempt(subtask, attempt)
    return models.AttemptAccumulators(
        subtask=subtask_index,
        attempt=attempt,
        id=f"{job.hex()}_{vertex.hex()}_{subtask_index}_{attempt}",
        user_accumulators=_accumulators((found,) if isinstance(found, SubtaskDetails) else ()),
    )


def back_pressure_level(ratio: float) -> str:
    """Return `ok`, `low` or `high` for a share of back-pressured time."""
    if ratio <= _LOW:
        return "ok"
    return "low" if ratio <= _HIGH else "high"


async def find_subtask(
    cluster: ClusterParameter, job: JobId, vertex: JobVertexId, subtask_index: int
) -> SubtaskDetails:
    """Return a subtask of a vertex; UnknownJobError or NotFoundError if there is none."""
    found = await cluster.vertex(job, vertex)
    if subtask_index >= len(found.subtasks):
        raise NotFoundError(f"Invalid subtask index for vertex {vertex.hex()}")
    return found.subtasks[subtask_index]


def find_attempt(subtask: SubtaskDetails, number: int) -> AnyAttempt:
    """Return an attempt of a subtask; NotFoundError if there is none."""
    for attempt in (subtask, *subtask.earlier_attempts):
        if attempt.attempt_number == number:
            return attempt
    raise NotFoundError(f"Invalid attempt num {number}")


def _back_pressure(subtask: SubtaskDetails) -> models.SubtaskBackPressure:
    ratio = subtask.metrics.get(names.BACK_PRESSURED_TIME.name, 0) / 1000
    level = back_pressure_level(ratio)
    return models.SubtaskBackPressure(
        subtask=subtask.subtask_index,
        attempt_number=subtask.attempt_number,
        backpressure_level=level,
        backpressure_level_again=level,
        ratio=ratio,
        idle_ratio=subtask.metrics.get(names.IDLE_TIME.name, 0) / 1000,
        busy_ratio=subtask.metrics.get(names.BUSY_TIME.name, 0) / 1000,
    )


def _accumulators(subtasks: Sequence[SubtaskDetails]) -> list[dict[str, str]]:
    """Return the counters of functions in the form of a job's result, summed over subtasks."""
    names_of_counters = {name for each in subtasks for name in each.counters}
    return [
        {
            "name": name,
            "type": "DoubleCounter",
            "value": str(sum(each.metrics.get(name, 0.0) for each in subtasks)),
        }
        for name in sorted(names_of_counters)
    ]

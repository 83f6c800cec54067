"""Shapes of vertices and subtasks: attempts, times, back pressure, flame graphs, and Headrace's metrics over time."""

from dataclasses import dataclass

from pydantic import Field, with_config

from headrace.rest.models.base_models import (
    KEBAB,
    CamelModel,
    KebabModel,
    Milliseconds,
    SnakeModel,
    left_out,
)
from headrace.rest.models.jobs import IOMetrics


class Attempt(KebabModel):
    """One attempt of a subtask. `status_duration`: milliseconds in each state before the end."""

    subtask: int
    status: str
    attempt: int
    endpoint: str
    start_time: Milliseconds
    # An older spelling, which clients of Flink 1 read.
    start_time_again: Milliseconds = Field(serialization_alias="start_time")
    end_time: Milliseconds
    duration: int
    metrics: IOMetrics
    taskmanager_id: str
    status_duration: dict[str, int]


class Spread(SnakeModel):
    """Distribution of a figure over the subtasks of a vertex."""

    min: float
    max: float
    avg: float
    sum: float
    median: float
    p25: float
    p75: float
    p95: float


class Aggregated(KebabModel):
    """Distributions of the I/O metrics and of the times in each state."""

    metrics: dict[str, Spread]
    status_duration: dict[str, Spread]


class JobVertexDetailsInfo(CamelModel):
    """A vertex with the current attempt of each of its subtasks."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int
    now: Milliseconds
    subtasks: list[Attempt]
    aggregated: Aggregated


class SubtaskTime(SnakeModel):
    """Times at which a subtask's attempt entered its states."""

    subtask: int
    endpoint: str
    duration: int
    timestamps: dict[str, Milliseconds]


class SubtaskTimes(SnakeModel):
    """Times of all subtasks of a vertex."""

    id: str
    name: str
    now: Milliseconds
    subtasks: list[SubtaskTime]


class VertexTaskManager(KebabModel):
    """The subtasks of a vertex on one TaskManager, together."""

    endpoint: str
    taskmanager_id: str
    status: str
    start_time: Milliseconds
    end_time: Milliseconds
    duration: int
    metrics: IOMetrics
    status_counts: dict[str, int]
    aggregated: Aggregated


class VertexTaskManagers(SnakeModel):
    """The subtasks of a vertex by TaskManager."""

    id: str
    name: str
    now: Milliseconds
    taskmanagers: list[VertexTaskManager]


class SubtaskBackPressure(CamelModel):
    """Back pressure of one subtask; ratios are shares of time from 0 to 1."""

    subtask: int
    backpressure_level: str
    backpressure_level_again: str = Field(serialization_alias="backpressure-level")
    ratio: float
    idle_ratio: float
    busy_ratio: float
    attempt_number: int | None = Field(default=None, serialization_alias="attempt-number")


class BackPressure(SnakeModel):
    """Back pressure of a vertex. `status`: `ok`, or `deprecated` if nothing was measured."""

    status: str
    backpressure_level: str = Field(serialization_alias="backpressureLevel")
    backpressure_level_again: str = Field(serialization_alias="backpressure-level")
    end_timestamp: Milliseconds = Field(serialization_alias="end-timestamp")
    subtasks: list[SubtaskBackPressure]


class VertexFlameGraphNode(SnakeModel):
    """A frame; `value`: number of samples that contain it."""

    name: str
    value: int
    children: list["VertexFlameGraphNode"]


class VertexFlameGraph(CamelModel):
    """Samples of a vertex. `end_timestamp`: -1 the vertex has ended, -2 flame graphs are off, -3 no samples yet."""

    end_timestamp: int
    data: VertexFlameGraphNode | None = left_out()


class VertexAccumulators(KebabModel):
    """Accumulators of a vertex."""

    id: str
    user_accumulators: list[dict[str, str]]


class SubtaskAccumulators(KebabModel):
    """Accumulators of one subtask."""

    subtask: int
    attempt: int
    endpoint: str
    user_accumulators: list[dict[str, str]]


class SubtasksAccumulators(KebabModel):
    """Accumulators of each subtask of a vertex."""

    id: str
    parallelism: int
    subtasks: list[SubtaskAccumulators]


class AttemptAccumulators(KebabModel):
    """Accumulators of one attempt of a subtask."""

    subtask: int
    attempt: int
    id: str
    user_accumulators: list[dict[str, str]]


@with_config(KEBAB)
@dataclass(slots=True)
class SplitWatermark:
    """Event time of a split, null before its first watermark."""

    id: str
    watermark: Milliseconds | None


@with_config(KEBAB)
@dataclass(slots=True)
class SubtaskWatermarks:
    """Event time of a running subtask; watermarks are null before the first.

    For sources only: `idle_time`, since the last record or the start, and `records_read`; else null.
    """

    vertex: str
    subtask: int
    start_time: Milliseconds
    input_watermark: Milliseconds | None
    output_watermark: Milliseconds | None
    idle_time: int | None
    records_read: int | None
    splits: list[SplitWatermark]


class JobWatermarks(KebabModel):
    """Event time of all running subtasks of a job."""

    jid: str
    now: Milliseconds
    subtasks: list[SubtaskWatermarks]


class VertexMetricsHistory(KebabModel):
    """Points of one vertex, one for each timestamp; null if a value is unknown.

    `busy` and `back-pressured`: milliseconds per second, the mean of its subtasks. `watermark-lag`: milliseconds by
    which its watermark was behind.
    """

    id: str
    name: str
    records_in_per_second: list[float | None]
    records_out_per_second: list[float | None]
    busy: list[float | None]
    back_pressured: list[float | None]
    watermark_lag: list[float | None]


class MetricsHistoryInfo(KebabModel):
    """Metrics of a job over time. `interval`: minimum time between two points, in milliseconds."""

    jid: str
    interval: int
    timestamps: list[Milliseconds]
    vertices: list[VertexMetricsHistory]

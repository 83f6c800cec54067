"""Shapes of the cluster as a whole: configuration of dashboards, overview, environment, threads, logs, errors."""

from typing import Literal

from pydantic import Field

from headrace.rest.models.base_models import CamelModel, KebabModel, SnakeModel, left_out


class ErrorBody(SnakeModel):
    """Body of every answer that is an error."""

    errors: list[str]


class Empty(SnakeModel):
    """An empty object, `{}`."""


class Features(KebabModel):
    """Pages that a dashboard shows. Headrace's own field: `web_spark`, the page of Spark."""

    web_submit: bool
    web_cancel: bool
    web_rescale: bool
    web_history: bool
    web_spark: bool


class DashboardConfiguration(KebabModel):
    """Configuration that a dashboard requests first."""

    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: Features


class ClusterOverview(KebabModel):
    """Numbers of the cluster's parts.

    Headrace's own field: `taskmanagers_decommissioned`, the number of TaskManagers that the host will remove soon.
    """

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str
    taskmanagers_decommissioned: int | None = left_out()


class Setting(SnakeModel):
    """One setting; the value of a secret setting is `******`."""

    key: str
    value: str


class InterpreterInfo(SnakeModel):
    """The Python interpreter, in the place where Flink shows its JVM."""

    version: str
    arch: str
    options: list[str]


class JobManagerEnvironment(SnakeModel):
    """The driver's interpreter and its module path."""

    jvm: InterpreterInfo
    classpath: list[str]


class LogFileInfo(SnakeModel):
    """A file of the log folder; `size` in bytes."""

    name: str
    size: int
    mtime: int


class LogFileList(SnakeModel):
    """All files of a log folder."""

    logs: list[LogFileInfo]


class ThreadDumpEntry(CamelModel):
    """A thread with its stack as text."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(CamelModel):
    """All threads of a process."""

    thread_infos: list[ThreadDumpEntry]


class ProfilingRequest(SnakeModel):
    """Request for a profile; the duration is in seconds."""

    mode: Literal["CPU", "ALLOC", "LOCK", "WALL", "ITIMER"]
    duration: int = Field(ge=1)


class Profiling(CamelModel):
    """A profile of a process; `outputFile` is present once the profile has FINISHED."""

    status: Literal["RUNNING", "FINISHED", "FAILED"]
    mode: Literal["CPU", "ALLOC", "LOCK", "WALL", "ITIMER"]
    trigger_time: int
    finished_time: int | None
    duration: int
    message: str | None
    output_file: str | None


class ProfilingList(CamelModel):
    """The newest profiles of a process, the newest first."""

    profiling_list: list[Profiling]


class DataSet(CamelModel):
    """A result that a job left in the cluster."""

    id: str
    is_complete: bool


class DataSetList(CamelModel):
    """All results that jobs left in the cluster."""

    data_sets: list[DataSet]


class MetricValue(SnakeModel):
    """A metric; without a value in a list of names."""

    id: str
    value: str | None = left_out()


class AggregatedMetric(SnakeModel):
    """A metric combined over several jobs, subtasks or TaskManagers; `skew` in percent."""

    id: str
    min: float | None = left_out()
    max: float | None = left_out()
    avg: float | None = left_out()
    sum: float | None = left_out()
    skew: float | None = left_out()


class TriggerAnswer(KebabModel):
    """Id of a running operation, for requests for its result."""

    request_id: str


class SessionRequest(SnakeModel):
    """The token with which a browser signs in."""

    token: str = Field(max_length=4096)


class LogUrl(SnakeModel):
    """Address of a page that shows logs."""

    url: str

"""Shapes of jobs and applications: lists, details, plan, configuration, exceptions, results."""

from pydantic import Field, computed_field

from headrace.rest.models.base_models import (
    CamelModel,
    KebabModel,
    Milliseconds,
    SnakeModel,
    left_out,
)
from headrace.rest.models.java_throwable import serialized_throwable


class JobIdWithStatus(SnakeModel):
    """A job with id and status only."""

    id: str
    status: str


class JobIds(SnakeModel):
    """All jobs."""

    jobs: list[JobIdWithStatus]


class JobOverviewInfo(KebabModel):
    """A job in the list of a dashboard. `tasks`: number of subtasks by state in lower case, and their `total`."""

    jid: str
    name: str
    job_type: str = Field(serialization_alias="jobType")
    scheduler_type: str = Field(serialization_alias="schedulerType")
    start_time: Milliseconds
    end_time: Milliseconds
    duration: int
    state: str
    last_modification: Milliseconds
    tasks: dict[str, int]
    pending_operators: int = 0


class JobList(SnakeModel):
    """Running and ended jobs."""

    jobs: list[JobOverviewInfo]


class IOMetrics(KebabModel):
    """Traffic and time of a subtask or vertex. The flags are false until every subtask has reported."""

    read_bytes: int
    read_bytes_complete: bool
    write_bytes: int
    write_bytes_complete: bool
    read_records: int
    read_records_complete: bool
    write_records: int
    write_records_complete: bool
    accumulated_backpressured_time: int
    accumulated_idle_time: int
    accumulated_busy_time: float | str


class JobVertexInfo(SnakeModel):
    """A vertex of a job's page. `tasks`: number of subtasks by state."""

    id: str
    slot_sharing_group_id: str = Field(serialization_alias="slotSharingGroupId")
    name: str
    max_parallelism: int = Field(serialization_alias="maxParallelism")
    parallelism: int
    status: str
    start_time: Milliseconds = Field(serialization_alias="start-time")
    end_time: Milliseconds = Field(serialization_alias="end-time")
    duration: int
    tasks: dict[str, int]
    metrics: IOMetrics


class PlanInputInfo(SnakeModel):
    """An edge of the plan. `num`: its position among the inputs of its consumer."""

    num: int
    id: str
    ship_strategy: str
    exchange: str


class PlanNodeInfo(SnakeModel):
    """A vertex of the plan. `description`: its operators, as lines of HTML."""

    id: str
    parallelism: int
    operator: str = ""
    operator_strategy: str = ""
    description: str
    inputs: list[PlanInputInfo] | None = left_out()
    optimizer_properties: dict[str, str] = Field(default_factory=dict)


class Plan(SnakeModel):
    """A job's graph, sinks first."""

    jid: str
    name: str
    type: str
    nodes: list[PlanNodeInfo]


class JobPlanInfo(SnakeModel):
    """Answer with a job's graph only."""

    plan: Plan


class JobDetailsInfo(KebabModel):
    """A job with its vertices, sources first. `timestamps` has every status, with 0 for one that was never entered."""

    jid: str
    application_id: str
    name: str
    is_stoppable: bool = Field(default=False, serialization_alias="isStoppable")
    state: str
    job_type: str
    scheduler_type: str = Field(serialization_alias="schedulerType")
    start_time: Milliseconds
    end_time: Milliseconds
    duration: int
    max_parallelism: int = Field(serialization_alias="maxParallelism")
    now: Milliseconds
    timestamps: dict[str, Milliseconds]
    vertices: list[JobVertexInfo]
    status_counts: dict[str, int]
    plan: Plan
    pending_operators: int = 0


class JobStatusInfo(SnakeModel):
    """Answer with a job's status only."""

    status: str


class FailureCause(KebabModel):
    """An error as text, and in the serialised form for Flink's Java client."""

    class_name: str = Field(serialization_alias="class")
    stack_trace: str

    @computed_field(alias="serialized-throwable")
    @property
    def serialized_throwable(self) -> str:
        """Return the bytes from which the Java client creates its exception."""
        return serialized_throwable(self.class_name, self.stack_trace)


class OperationStatus(SnakeModel):
    """Status of an operation: IN_PROGRESS or COMPLETED."""

    id: str


class JobResultInfo(KebabModel):
    """Result of a job that has ended. `application_status`: SUCCEEDED, FAILED, CANCELED or UNKNOWN."""

    id: str
    name: str
    application_status: str
    accumulator_results: dict[str, str]
    net_runtime: int
    application_id: str
    start_time: Milliseconds
    end_time: Milliseconds
    failure_cause: FailureCause | None = left_out()


class JobExecutionResultResponseBody(KebabModel):
    """The result of a job once it has ended."""

    status: OperationStatus
    job_execution_result: JobResultInfo | None = left_out()


class ExecutionConfigInfo(KebabModel):
    """Settings of a program that Flink shows on a job's page."""

    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool
    user_config: dict[str, str]


class ReceivedBytes(SnakeModel):
    """Number of stored bytes of a blob: the offset of the next chunk."""

    received: int


class JobConfigInfo(KebabModel):
    """A job's settings. `settings` is Headrace's own field: all settings, secrets masked."""

    jid: str
    name: str
    execution_config: ExecutionConfigInfo
    settings: dict[str, str]


class JobExceptionInfo(CamelModel):
    """One failure. A failure of the whole job has no task."""

    exception_name: str
    stacktrace: str
    timestamp: Milliseconds
    failure_labels: dict[str, str] = Field(default_factory=dict)
    task_name: str | None = left_out()
    endpoint: str | None = left_out()
    task_manager_id: str | None = left_out()


class RootJobExceptionInfo(JobExceptionInfo):
    """A failure that caused a restart, and the failures that came with it."""

    concurrent_exceptions: list[JobExceptionInfo]


class ExceptionHistory(SnakeModel):
    """Failures, newest first. `truncated`: there are more."""

    entries: list[RootJobExceptionInfo]
    truncated: bool


class JobExceptions(CamelModel):
    """All recorded failures."""

    exception_history: ExceptionHistory


class AccumulatorInfo(SnakeModel):
    """One accumulator of a job's functions."""

    name: str
    type: str
    value: str


class JobAccumulators(KebabModel):
    """All accumulators of a job's functions."""

    job_accumulators: list[AccumulatorInfo] = Field(default_factory=list)
    user_task_accumulators: list[AccumulatorInfo]
    serialized_user_task_accumulators: dict[str, str] = Field(default_factory=dict)


class ClientHeartbeat(CamelModel):
    """Sign of life of a client that waits for a job, and the time until which it is valid, in epoch milliseconds."""

    expired_timestamp: int


class ApplicationFacts(KebabModel):
    """Fields of an application in both lists and details."""

    id: str
    name: str
    start_time: Milliseconds
    end_time: Milliseconds
    duration: int
    status: str


class ApplicationInfo(ApplicationFacts):
    """One application. `job_counts`: number of its jobs by status."""

    job_counts: dict[str, int] = Field(serialization_alias="jobs")


class ApplicationList(SnakeModel):
    """All applications."""

    applications: list[ApplicationInfo]


class ApplicationDetails(ApplicationFacts):
    """One application with its jobs."""

    timestamps: dict[str, Milliseconds]
    jobs: list[JobOverviewInfo]

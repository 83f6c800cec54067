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
    """A job in the shortest list."""

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
    """An edge of the plan. `num`: its place among the inputs of its consumer."""

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
    """A job's graph, by itself."""

    plan: Plan


class JobDetailsInfo(KebabModel):
    """A job with its vertices, sources first. `timestamps` has every status, with 0 where it was never entered."""

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
    """The status alone."""

    status: str


class FailureCause(KebabModel):
    """An error as text, and once more as Flink's Java client reads it."""

    class_name: str = Field(serialization_alias="class")
    stack_trace: str

    @computed_field(alias="serialized-throwable")
    @property
    def serialized_throwable(self) -> str:
        """Return the stream that the Java client makes its exception of."""
        return serialized_throwable(self.class_name, self.stack_trace)


class OperationStatus(SnakeModel):
    """IN_PROGRESS or COMPLETED."""

    id: str


class JobResultInfo(KebabModel):
    """A job that has ended. `application_status`: SUCCEEDED, FAILED, CANCELED or UNKNOWN."""

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
    """Bytes of a blob that are there: where the next chunk goes on."""

    received: int


class JobConfigInfo(KebabModel):
    """A job's settings. `settings` is ours: all of them, secrets masked."""

    jid: str
    name: str
    execution_config: ExecutionConfigInfo
    settings: dict[str, str]


class JobExceptionInfo(CamelModel):
    """One failure. A failure of the job as a whole has no task."""

    exception_name: str
    stacktrace: str
    timestamp: Milliseconds
    failure_labels: dict[str, str] = Field(default_factory=dict)
    task_name: str | None = left_out()
    endpoint: str | None = left_out()
    task_manager_id: str | None = left_out()


class RootJobExceptionInfo(JobExceptionInfo):
    """A failure that something restarted for, and those that came with it."""

    concurrent_exceptions: list[JobExceptionInfo]


class ExceptionHistory(SnakeModel):
    """Failures, newest first. `truncated`: there were more."""

    entries: list[RootJobExceptionInfo]
    truncated: bool


class JobExceptions(CamelModel):
    """All failures that are remembered."""

    exception_history: ExceptionHistory


class AccumulatorInfo(SnakeModel):
    """One sum that a job's functions publish."""

    name: str
    type: str
    value: str


class JobAccumulators(KebabModel):
    """All sums that a job's functions publish."""

    job_accumulators: list[AccumulatorInfo] = Field(default_factory=list)
    user_task_accumulators: list[AccumulatorInfo]
    serialized_user_task_accumulators: dict[str, str] = Field(default_factory=dict)


class ClientHeartbeat(CamelModel):
    """A client's word that it waits for a job, and until when it does; epoch milliseconds."""

    expired_timestamp: int


class ApplicationFacts(KebabModel):
    """Facts of an application that both lists and details have."""

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

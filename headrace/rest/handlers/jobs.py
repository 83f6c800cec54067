"""Handlers of jobs: lists, details, plan, configuration, exceptions, result, cancellation."""

import hashlib
from collections import Counter
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import Query, Request

from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.redaction import shown_uri
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.errors import JobAlreadyEndedError, UnknownJobError
from headrace.gateways.job_master import ExceptionInfo, VertexDetails
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_plan import JobPlan
from headrace.rest.handler_errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    HandlerError,
    NotFoundError,
)
from headrace.rest.handlers.metrics import value_text
from headrace.rest.handlers.parameters import ClusterParameter, JobParameter, TaskManagerId
from headrace.rest.handlers.subtasks import (
    group_times,
    io_metrics,
    state_counts,
    vertex_status,
)
from headrace.rest.models import jobs as models
from headrace.rest.models.cluster import Empty, LogUrl
from headrace.rest.options import WEB_CANCEL_ENABLE

SCHEDULER: Final = "Default"
_APPLICATION_STATUS: Final = {
    JobStatus.FINISHED: "SUCCEEDED",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELED: "CANCELED",
}


async def list_job_ids(cluster: ClusterParameter) -> models.JobIds:
    """List ids and statuses of all jobs."""
    return models.JobIds(
        jobs=[
            models.JobIdWithStatus(id=job.job_id.hex(), status=job.status.name)
            for job in await cluster.jobs()
        ]
    )


async def jobs_overview(cluster: ClusterParameter) -> models.JobList:
    """List running and ended jobs with the states of their subtasks."""
    now_ms = cluster.clock.now_ms()
    return models.JobList(jobs=[job_details_of(job, now_ms) for job in await cluster.jobs()])


async def job_details(cluster: ClusterParameter, job: JobParameter) -> models.JobDetailsInfo:
    """Show a job with its vertices and its plan."""
    details, plan = await cluster.details(job), await cluster.plan(job)
    now_ms = cluster.clock.now_ms()
    start_ms, end_ms = job_times(details.status, details.status_timestamps_ms)
    vertices = [_vertex(vertex, now_ms) for vertex in details.vertices]
    statuses = Counter(vertex.status for vertex in vertices)
    return models.JobDetailsInfo(
        jid=job.hex(),
        application_id=job.hex(),
        name=details.name,
        state=details.status.name,
        job_type=details.job_type,
        scheduler_type=SCHEDULER,
        start_time=start_ms,
        end_time=end_ms,
        duration=(end_ms if end_ms >= 0 else now_ms) - start_ms,
        max_parallelism=details.max_parallelism,
        now=now_ms,
        timestamps={
            status.name: details.status_timestamps_ms.get(status.name, 0) for status in JobStatus
        },
        vertices=vertices,
        status_counts={state.name: statuses[state.name] for state in ExecutionState}
        | {"RECONCILING": 0},
        plan=plan_model_of(plan),
    )


async def job_status(cluster: ClusterParameter, job: JobParameter) -> models.JobStatusInfo:
    """Return a job's present status."""
    try:
        status = await cluster.status(job)
    except UnknownJobError as error:
        # Flink answers this one with 500, and its clients know it so.
        raise HandlerError(
            "Internal server error.", f"Could not find Flink job ({job.hex()})"
        ) from error
    return models.JobStatusInfo(status=status.name)


async def job_plan(cluster: ClusterParameter, job: JobParameter) -> models.JobPlanInfo:
    """Show a job's graph."""
    return models.JobPlanInfo(plan=plan_model_of(await cluster.plan(job)))


async def job_config(cluster: ClusterParameter, job: JobParameter) -> models.JobConfigInfo:
    """Show a job's settings, secrets masked."""
    details, found = await cluster.details(job), await cluster.configuration(job)
    return models.JobConfigInfo(
        jid=job.hex(),
        name=details.name,
        execution_config=models.ExecutionConfigInfo(
            restart_strategy=found.restart_strategy,
            job_parallelism=found.parallelism,
            object_reuse_mode=found.object_reuse,
            user_config=found.user_parameters,
        ),
        settings=found.settings,
    )


async def job_exceptions(
    cluster: ClusterParameter,
    job: JobParameter,
    max_exceptions: Annotated[int | None, Query(alias="maxExceptions", ge=0)] = None,
    failure_label_filter: Annotated[str | None, Query(alias="failureLabelFilter")] = None,
) -> models.JobExceptions:
    """Show a job's failures, newest first."""
    details = await cluster.details(job)
    entries = [
        models.RootJobExceptionInfo(
            **_exception(entry.root),
            concurrent_exceptions=[
                models.JobExceptionInfo(**_exception(other)) for other in entry.concurrent
            ],
        )
        for entry in reversed(details.exceptions)
        if not failure_label_filter  # no failure has labels, so none has the one that is asked for
    ]
    shown = entries if max_exceptions is None else entries[:max_exceptions]
    is_truncated = details.exceptions_truncated or len(shown) < len(entries)
    return models.JobExceptions(
        exception_history=models.ExceptionHistory(entries=shown, truncated=is_truncated)
    )


async def job_accumulators(
    cluster: ClusterParameter,
    job: JobParameter,
    include_serialized_value: Annotated[bool, Query(alias="includeSerializedValue")] = False,
) -> models.JobAccumulators:
    """Show the accumulators of a job's functions."""
    del include_serialized_value  # There is no Java value to serialize.
    found = await cluster.accumulators(job)
    return models.JobAccumulators(
        user_task_accumulators=[
            models.AccumulatorInfo(name=name, type="DoubleCounter", value=value_text(value))
            for name, value in sorted(found.items())
        ]
    )


async def job_execution_result(
    cluster: ClusterParameter, job: JobParameter
) -> models.JobExecutionResultResponseBody:
    """Show the result of a job that has ended."""
    status = await cluster.status(job)
    if not status.is_globally_terminal_state():
        return models.JobExecutionResultResponseBody(
            status=models.OperationStatus(id="IN_PROGRESS")
        )
    result = await cluster.result(job)
    details = await cluster.details(job)
    start_ms, end_ms = job_times(details.status, details.status_timestamps_ms)
    return models.JobExecutionResultResponseBody(
        status=models.OperationStatus(id="COMPLETED"),
        job_execution_result=_result(result, start_ms, end_ms),
    )


async def report_client_heartbeat(
    cluster: ClusterParameter, job: JobParameter, body: models.ClientHeartbeat
) -> Empty:
    """Note a sign of life of a job's client, so that the job is not cancelled for want of one."""
    try:
        await cluster.ask(cluster.dispatcher.report_client_heartbeat(job, body.expired_timestamp))
    except UnknownJobError as error:
        raise NotFoundError("Job could not be found.", str(error)) from error
    return Empty()


async def cancel_job(
    cluster: ClusterParameter,
    request: Request,
    job: JobParameter,
    mode: Annotated[Literal["cancel", "stop"], Query()] = "cancel",
    force: Annotated[bool, Query()] = False,
) -> Empty:
    """Cancel a job, without waiting for its end.

    `force`: tasks that were cancelled before and have not ended are ended with their processes.
    """
    if mode == "stop":
        raise BadRequestError(
            'The termination mode "stop" has been removed. For an ungraceful shutdown, please use "cancel" '
            "instead. For a graceful shutdown, please use 'jobs/:jobId/stop' instead."
        )
    # Browsers send headers with the origin of a request, and commands do not.
    if "sec-fetch-site" in request.headers and not cluster.settings.get_option(WEB_CANCEL_ENABLE):
        raise ForbiddenError(
            f"Jobs cannot be cancelled from browsers here ({WEB_CANCEL_ENABLE.key}: false): use 'headrace cancel'."
        )
    try:
        await cluster.change(cluster.dispatcher.cancel_job(job, force))
    except UnknownJobError as error:
        raise NotFoundError("Job could not be found.", str(error)) from error
    except JobAlreadyEndedError as error:
        raise ConflictError(
            f"Job cancellation failed because the job has already reached another terminal state: {error}"
        ) from error
    return Empty()


async def job_manager_log_url(
    cluster: ClusterParameter, job: JobParameter, request: Request
) -> LogUrl:
    """Return the dashboard's page with the log of the process that runs a job."""
    await cluster.status(job)
    return LogUrl(url=f"{request.base_url}#/job-manager/logs")


async def task_manager_log_url(
    cluster: ClusterParameter, job: JobParameter, task_manager: TaskManagerId, request: Request
) -> LogUrl:
    """Return the dashboard's page with the logs of a TaskManager, also of one that has ended."""
    await cluster.status(job)
    return LogUrl(url=f"{request.base_url}#/task-manager/{quote(task_manager, safe='')}/logs")


def job_details_of(job: JobOverview, now_ms: int) -> models.JobOverviewInfo:
    """Return a job in the model for lists."""
    end_ms = job.end_ms
    return models.JobOverviewInfo(
        jid=job.job_id.hex(),
        name=job.name,
        job_type=job.job_type,
        scheduler_type=SCHEDULER,
        start_time=job.start_ms,
        end_time=end_ms,
        duration=(end_ms if end_ms >= 0 else now_ms) - job.start_ms,
        state=job.status.name,
        last_modification=job.last_modification_ms,
        tasks={state.name.lower(): job.tasks.get(state.name, 0) for state in ExecutionState}
        | {"reconciling": 0, "total": sum(job.tasks.values())},
    )


def job_times(status: JobStatus, timestamps_ms: dict[str, int]) -> tuple[int, int]:
    """Return the times at which a job began and ended, in epoch ms; -1 if it has not ended."""
    start_ms = min(timestamps_ms.values(), default=0)
    end_ms = timestamps_ms.get(status.name, -1) if status.is_globally_terminal_state() else -1
    return start_ms, end_ms


def plan_model_of(plan: JobPlan) -> models.Plan:
    """Return a graph in the model for dashboards, sinks first."""
    return models.Plan(
        jid=plan.job_id.hex(),
        name=plan.name,
        type=plan.job_type,
        nodes=[
            models.PlanNodeInfo(
                id=node.vertex_id.hex(),
                parallelism=node.parallelism,
                description=node.description,
                inputs=[
                    models.PlanInputInfo(
                        num=number,
                        id=each.vertex_id.hex(),
                        ship_strategy=each.ship_strategy,
                        exchange=each.exchange,
                    )
                    for number, each in enumerate(node.inputs)
                ]
                or None,
            )
            for node in reversed(plan.nodes)
        ],
    )


def _vertex(vertex: VertexDetails, now_ms: int) -> models.JobVertexInfo:
    start_ms, end_ms, duration = group_times(vertex.subtasks, now_ms)
    return models.JobVertexInfo(
        id=vertex.vertex_id.hex(),
        slot_sharing_group_id=slot_sharing_group_id(vertex.slot_sharing_group),
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=vertex_status(vertex.subtasks).name,
        start_time=start_ms,
        end_time=end_ms,
        duration=duration,
        tasks=state_counts(vertex.subtasks),
        metrics=io_metrics(
            vertex.metrics, is_complete=all(subtask.metrics for subtask in vertex.subtasks)
        ),
    )


def slot_sharing_group_id(name: str) -> str:
    """Return an id for a group, as Flink's clients expect one: groups only have names."""
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def _exception(entry: ExceptionInfo) -> dict[str, Any]:
    found: dict[str, Any] = {
        "exception_name": entry.error.class_name,
        "stacktrace": stack_trace(entry.error),
        "timestamp": entry.timestamp_ms,
    }
    if entry.task:
        found["task_name"] = entry.task
        found["endpoint"] = entry.endpoint or "(unassigned)"
        found["task_manager_id"] = (
            "(unassigned)" if entry.resource_id is None else str(entry.resource_id)
        )
    return found


def stack_trace(error: ErrorInfo) -> str:
    """Return an error's text, which begins with its cause and the user's line, followed by the traceback."""
    whole = "\n".join(filter(None, (error.text.rstrip(), error.remote_traceback.rstrip())))
    return shown_uri(whole)


def _result(result: JobResult, start_ms: int, end_ms: int) -> models.JobResultInfo:
    failure = result.failure
    return models.JobResultInfo(
        id=result.job_id.hex(),
        name=result.name,
        application_status=_APPLICATION_STATUS.get(result.status, "UNKNOWN"),
        accumulator_results={
            name: value_text(value) for name, value in result.accumulators.items()
        },
        net_runtime=result.net_runtime_ms,
        application_id=result.job_id.hex(),
        start_time=start_ms,
        end_time=end_ms,
        failure_cause=None
        if failure is None or result.status is not JobStatus.FAILED
        else models.FailureCause(class_name=failure.class_name, stack_trace=stack_trace(failure)),
    )

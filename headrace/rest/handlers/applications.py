"""Handlers of applications: each job is shown as an application of its own, with the job's id.

Source: Flink 2.3's ApplicationsOverviewHandler and SingleJobApplication.
"""

from typing import Final

from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobOverview
from headrace.rest.handler_errors import NotFoundError
from headrace.rest.handlers.jobs import cancel_job, job_details_of, job_exceptions
from headrace.rest.handlers.parameters import ApplicationParameter, ClusterParameter
from headrace.rest.models.applications import ApplicationDetails, ApplicationInfo, ApplicationList
from headrace.rest.models.cluster import Empty
from headrace.rest.models.jobs import JobExceptions

_STATUS: Final = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "CREATED",
    JobStatus.FAILING: "FAILING",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
}
_SHOWN: Final = ("CREATED", "RUNNING", "FAILING", "FAILED", "CANCELING", "CANCELED", "FINISHED")


async def list_applications(cluster: ClusterParameter) -> ApplicationList:
    """List all jobs as applications."""
    now_ms = cluster.clock.now_ms()
    return ApplicationList(applications=[_info(job, now_ms) for job in await cluster.jobs()])


async def application_details(
    cluster: ClusterParameter, application: ApplicationParameter
) -> ApplicationDetails:
    """Show one application with its job."""
    now_ms = cluster.clock.now_ms()
    for job in await cluster.jobs():
        if job.job_id == application:
            break
    else:
        raise NotFoundError(f"Application {application.hex()} not found")
    reached = (await cluster.details(application)).status_timestamps_ms
    times = {_STATUS.get(JobStatus[name], "RUNNING"): moment for name, moment in reached.items()}
    return ApplicationDetails(
        **_info(job, now_ms).model_dump(exclude={"job_counts"}),
        timestamps={name: times.get(name, 0) for name in _SHOWN},
        jobs=[job_details_of(job, now_ms)],
    )


async def cancel_application(cluster: ClusterParameter, application: ApplicationParameter) -> Empty:
    """Cancel the job of an application."""
    return await cancel_job(cluster, application)


async def application_exceptions(
    cluster: ClusterParameter, application: ApplicationParameter
) -> JobExceptions:
    """Show the failures of an application's job."""
    return await job_exceptions(cluster, application)


def _info(job: JobOverview, now_ms: int) -> ApplicationInfo:
    return ApplicationInfo(
        id=job.job_id.hex(),
        name=f"SingleJobApplication({job.name})",
        start_time=job.start_ms,
        end_time=job.end_ms,
        duration=(job.end_ms if job.end_ms >= 0 else now_ms) - job.start_ms,
        status=_STATUS.get(job.status, "RUNNING"),
        job_counts={job.status.name: 1},
    )

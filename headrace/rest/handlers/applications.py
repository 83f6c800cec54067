"""Handlers of applications: each job is shown as an application of its own, with the job's id.

Source: Flink 2.3's ApplicationsOverviewHandler and SingleJobApplication.
"""

from collections.abc import Mapping
from typing import Final

from fastapi import Request

from headrace.core.lifecycle import JobStatus
from headrace.rest.handler_errors import NotFoundError
from headrace.rest.handlers.jobs import cancel_job, job_details_of, job_exceptions
from headrace.rest.handlers.parameters import ApplicationParameter, ClusterParameter
from headrace.rest.models.cluster import Empty
from headrace.rest.models.jobs import (
    ApplicationDetails,
    ApplicationInfo,
    ApplicationList,
    JobExceptions,
    JobOverviewInfo,
)

_STATUS: Final = {
    JobStatus.INITIALIZING.name: "CREATED",
    JobStatus.CREATED.name: "CREATED",
    JobStatus.FAILING.name: "FAILING",
    JobStatus.FAILED.name: "FAILED",
    JobStatus.CANCELLING.name: "CANCELING",
    JobStatus.CANCELED.name: "CANCELED",
    JobStatus.FINISHED.name: "FINISHED",
}
_SHOWN: Final = ("CREATED", "RUNNING", "FAILING", "FAILED", "CANCELING", "CANCELED", "FINISHED")


async def list_applications(cluster: ClusterParameter) -> ApplicationList:
    """List all jobs as applications."""
    now_ms = cluster.clock.now_ms()
    jobs = [job_details_of(job, now_ms) for job in await cluster.jobs()]
    return ApplicationList(applications=[application_of(job) for job in jobs])


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
    return application_with_job(job_details_of(job, now_ms), reached)


async def cancel_application(
    cluster: ClusterParameter, request: Request, application: ApplicationParameter
) -> Empty:
    """Cancel the job of an application."""
    return await cancel_job(cluster, request, application)


async def application_exceptions(
    cluster: ClusterParameter, application: ApplicationParameter
) -> JobExceptions:
    """Show the failures of an application's job."""
    return await job_exceptions(cluster, application)


def application_of(job: JobOverviewInfo) -> ApplicationInfo:
    """Return the application that represents a job."""
    return ApplicationInfo(
        id=job.jid,
        name=f"SingleJobApplication({job.name})",
        start_time=job.start_time,
        end_time=job.end_time,
        duration=job.duration,
        status=_STATUS.get(job.state, "RUNNING"),
        job_counts={job.state: 1},
    )


def application_with_job(job: JobOverviewInfo, reached_ms: Mapping[str, int]) -> ApplicationDetails:
    """Return the application that represents a job, with the job. `reached_ms`: time of each job status."""
    # Several job statuses map to one application status, which has the earliest time; 0: never entered.
    times: dict[str, int] = {}
    for name, moment in sorted(reached_ms.items(), key=lambda each: each[1]):
        if moment:
            times.setdefault(_STATUS.get(name, "RUNNING"), moment)
    return ApplicationDetails(
        **application_of(job).model_dump(exclude={"job_counts"}),
        timestamps={name: times.get(name, 0) for name in _SHOWN},
        jobs=[job],
    )

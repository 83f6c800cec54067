"""Shapes of applications."""

from pydantic import Field

from headrace.rest.models.jobs import JobDetails
from headrace.rest.models.spelling import KebabModel, Milliseconds, SnakeModel


class ApplicationInfo(KebabModel):
    """One application. `job_counts`: number of its jobs by status."""

    id: str
    name: str
    start_time: Milliseconds
    end_time: Milliseconds
    duration: int
    status: str
    job_counts: dict[str, int] = Field(serialization_alias="jobs")


class ApplicationList(SnakeModel):
    """All applications."""

    applications: list[ApplicationInfo]


class ApplicationDetails(KebabModel):
    """One application with its jobs."""

    id: str
    name: str
    start_time: Milliseconds
    end_time: Milliseconds
    duration: int
    status: str
    timestamps: dict[str, Milliseconds]
    jobs: list[JobDetails]

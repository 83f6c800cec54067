"""Shapes of applications."""

from pydantic import Field

from headrace.rest.models.jobs import JobOverviewInfo
from headrace.rest.models.spelling import KebabModel, Milliseconds, SnakeModel


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

"""ListedJob: a job in lists, also as an application, read from the job's line in its archive.

Applications are made from the archived jobs, so that older archives, which have no applications, show them too.
Source: Flink 2.3's HistoryServer, whose web UI begins with the list of applications.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.core.errors import DECODE_ERRORS
from headrace.rest.handler_errors import NotFoundError
from headrace.rest.handlers.applications import application_of, application_with_job
from headrace.rest.history.archive_file import DamagedArchiveError
from headrace.rest.history.archive_storage import StoredArchive
from headrace.rest.models.jobs import ApplicationDetails, JobOverviewInfo

_OVERVIEW_BYTES_MAX: Final = 10_000


class ListedJob(msgspec.Struct, frozen=True, rename="kebab"):
    """A job in lists: the fields of `models.jobs.JobOverviewInfo`."""

    jid: str
    name: str
    job_type: str = msgspec.field(name="jobType")
    scheduler_type: str = msgspec.field(name="schedulerType")
    start_time: int
    end_time: int
    duration: int
    state: str
    last_modification: int
    tasks: dict[str, int]
    pending_operators: int = 0


def checked_overview(archive: StoredArchive, overview: bytes) -> ListedJob:
    """Return the line of a job; the writer of the archive is not trusted.

    DamagedArchiveError if the line is invalid.
    """
    if len(overview) > _OVERVIEW_BYTES_MAX:
        raise DamagedArchiveError(archive.uri, "the line of the job is too long")
    try:
        shown = msgspec.json.decode(overview, type=ListedJob)
    except DECODE_ERRORS as error:
        raise DamagedArchiveError(archive.uri, "the line of the job cannot be read") from error
    if shown.jid != archive.job:
        raise DamagedArchiveError(archive.uri, f"the archive is of another job, {shown.jid[:32]}")
    return shown


class _Timestamps(msgspec.Struct, frozen=True):
    """Part of a job's details: the time of each status."""

    timestamps: dict[str, int]


def application_list(jobs: Iterable[ListedJob]) -> bytes:
    """Return the JSON of all jobs as applications, in their order."""
    lines = (application_of(_details_of(job)).model_dump_json(by_alias=True) for job in jobs)
    return f'{{"applications":[{",".join(lines)}]}}'.encode()


def archived_application(job: ListedJob, details: bytes) -> ApplicationDetails:
    """Return the application of a job. `details`: the JSON of the job's page, which is not trusted.

    NotFoundError if it cannot be read.
    """
    try:
        found = msgspec.json.decode(details, type=_Timestamps)
    except DECODE_ERRORS as error:
        raise NotFoundError(f"The archive of job {job.jid} does not contain its times") from error
    return application_with_job(_details_of(job), found.timestamps)


def _details_of(job: ListedJob) -> JobOverviewInfo:
    return JobOverviewInfo(**msgspec.structs.asdict(job))

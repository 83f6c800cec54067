"""Applications of a history server: each job of the archives is shown as one, as a cluster shows it.

They are made from what archives say of jobs, so that older archives, which know of no applications, have them too.
Source: Flink 2.3's HistoryServer, whose web UI begins with the list of applications.
"""

from collections.abc import Iterable

import msgspec

from headrace.core.errors import DECODE_ERRORS
from headrace.rest.handler_errors import NotFoundError
from headrace.rest.handlers.applications import application_of, application_with_job
from headrace.rest.history.listed_job import ListedJob
from headrace.rest.models.applications import ApplicationDetails
from headrace.rest.models.jobs import JobOverviewInfo


class _Timestamps(msgspec.Struct, frozen=True):
    """A part of a job's details: the moment at which it had each status."""

    timestamps: dict[str, int]


def application_list(jobs: Iterable[ListedJob]) -> bytes:
    """Return the JSON of all jobs as applications, in their order."""
    lines = (application_of(_details_of(job)).model_dump_json(by_alias=True) for job in jobs)
    return f'{{"applications":[{",".join(lines)}]}}'.encode()


def archived_application(job: ListedJob, details: bytes) -> ApplicationDetails:
    """Return the application of a job. `details`: the JSON of the job's page, data of whoever wrote the archive.

    NotFoundError where that cannot be read.
    """
    try:
        found = msgspec.json.decode(details, type=_Timestamps)
    except DECODE_ERRORS as error:
        raise NotFoundError(f"The archive of job {job.jid} does not tell its times") from error
    return application_with_job(_details_of(job), found.timestamps)


def _details_of(job: ListedJob) -> JobOverviewInfo:
    return JobOverviewInfo(**msgspec.structs.asdict(job))

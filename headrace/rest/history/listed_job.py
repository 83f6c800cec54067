"""ListedJob: a job as lists show it, read from the line that its archive has of it."""

from typing import Final

import msgspec

from headrace.core.errors import DECODE_ERRORS
from headrace.rest.history.archive_file import DamagedArchiveError
from headrace.rest.history.archive_storage import StoredArchive

_OVERVIEW_BYTES_MAX: Final = 10_000


class ListedJob(msgspec.Struct, frozen=True, rename="kebab"):
    """A job in lists: the fields of `models.jobs.JobOverviewInfo`, as they are read."""

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
    """Return the line of a job, which is data of whoever wrote the archive. DamagedArchiveError."""
    if len(overview) > _OVERVIEW_BYTES_MAX:
        raise DamagedArchiveError(archive.uri, "the line of its job is too long")
    try:
        shown = msgspec.json.decode(overview, type=ListedJob)
    except DECODE_ERRORS as error:
        raise DamagedArchiveError(archive.uri, "the line of its job cannot be read") from error
    if shown.jid != archive.job:
        raise DamagedArchiveError(archive.uri, f"it is of another job, {shown.jid[:32]}")
    return shown

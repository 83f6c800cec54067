"""Ended jobs and their archives, for tests of history."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobOverview
from headrace.gateways.ended_job import EndedJob
from headrace.rest.handlers.jobs import job_details_of
from headrace.rest.history.archive_catalog import ArchiveCatalog, OverviewCache, RetentionRules
from headrace.rest.history.archive_file import pack_archive
from headrace.rest.history.job_archivist import render_archive
from headrace.rest.models.vertices import MetricsHistoryInfo
from tests.unit.rest.sample_cluster import (
    CHECKPOINT_DETAILS,
    FAILED_JOB,
    START_MS,
    SampleDispatcher,
)

END_MS = START_MS + 200


def failed_job() -> EndedJob:
    """Return the job of the sample cluster that has failed, as its Dispatcher would describe it."""

    async def described() -> EndedJob:
        dispatcher = SampleDispatcher()
        overviews = {each.job_id: each for each in await dispatcher.list_jobs()}
        return EndedJob(
            await dispatcher.request_job_details(FAILED_JOB),
            await dispatcher.request_job_result(FAILED_JOB),
            overviews[FAILED_JOB],
            await dispatcher.request_job_plan(FAILED_JOB),
            await dispatcher.request_job_configuration(FAILED_JOB),
            await dispatcher.request_checkpoint_statistics(FAILED_JOB),
            await dispatcher.request_checkpoint_configuration(FAILED_JOB),
            (CHECKPOINT_DETAILS,),
        )

    return asyncio.run(described())


def no_metrics(job_id: JobId) -> MetricsHistoryInfo:
    return MetricsHistoryInfo(jid=job_id.hex(), interval=0, timestamps=[], vertices=[])


def archive_of(job: EndedJob, settings: Settings | None = None, now_ms: int = END_MS) -> bytes:
    return render_archive(job, settings or Settings(), now_ms, no_metrics(job.details.job_id))


def job_id_of(number: int) -> str:
    return f"{number:032x}"


def overview_of(job: str, name: str = "cities", state: str = "FINISHED") -> bytes:
    """Return the line of a job as its archive has it."""
    overview = JobOverview(
        JobId.from_hex(job), name, JobStatus[state], START_MS, END_MS, END_MS, tasks={state: 4}
    )
    return job_details_of(overview, END_MS).model_dump_json(by_alias=True).encode()


def small_archive(job: str, *, is_compressed: bool = False) -> bytes:
    """Return an archive with one answer."""
    answers = [(f"/jobs/{job}", f'{{"jid":"{job}"}}'.encode())]
    return pack_archive(job, overview_of(job), answers, is_compressed=is_compressed)


def write_archives(folder: Path, numbers: Iterable[int], begin_ms: int = START_MS) -> None:
    """Write small archives, each a second younger than the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        file = folder / job_id_of(number)
        file.write_bytes(small_archive(job_id_of(number)))
        modified_s = (begin_ms + number * 1000) / 1000
        os.utime(file, (modified_s, modified_s))


def catalog_of(
    *folders: Path,
    rules: RetentionRules | None = None,
    clock: ManualClock | None = None,
    work_directory: Path | None = None,
) -> ArchiveCatalog:
    """Return a catalog over folders, which has not looked at them yet."""
    names = [str(folder) for folder in folders]
    cache = OverviewCache(work_directory or folders[0].parent / "work", names)
    return ArchiveCatalog(
        names, rules or RetentionRules(), cache, clock or ManualClock(START_MS + 3_600_000)
    )


def listed(catalog: ArchiveCatalog) -> set[int]:
    """Return the numbers of the jobs that a catalog lists."""
    return {int(job, 16) for job, _ in catalog.statuses()}

"""JobArchivist: writes the archive of each job that has ended. Source: Flink FsJobArchivist."""

import asyncio
import functools
import logging
from collections import deque
from typing import Any, Final

import msgspec

from headrace.checkpoint.storage import file_systems
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import UniqueId
from headrace.core.randomness import SeededRandom
from headrace.core.threads import BlockingRunner, run_in_thread, spawn
from headrace.gateways.ended_job import EndedJob
from headrace.rest.handlers.jobs import job_details_of
from headrace.rest.history.archive_file import pack_archive
from headrace.rest.history.archived_answers import archived_answers, archived_paths
from headrace.rest.history.ended_job_view import EndedJobView
from headrace.rest.models.vertices import MetricsHistoryInfo

_LOG: Final = logging.getLogger(__name__)
_WAITING_MAX: Final = 100
"""Maximum number of jobs that wait for their archive, as a hanging store must not fill the memory."""
_NAME_LENGTH_MAX: Final = 1_000
_PLAIN_MAX: Final = 5_000
"""Maximum number of answers in an uncompressed archive, which has exactly the form of Flink's archives."""


class JobArchivist:
    """Writer of archives. Used on one loop; a thread renders and writes archives, one after another.

    An archive is complete or absent, and none replaces another. A failure to write one is logged, once;
    nothing else depends on it.
    """

    def __init__(
        self,
        folder: str,
        settings: Settings,
        clock: Clock,
        random: SeededRandom,
        run_blocking: BlockingRunner = run_in_thread,
    ) -> None:
        self._folder: Final = file_systems.absolute_uri(folder)
        self._settings: Final = settings
        self._clock: Final = clock
        self._random: Final = random
        self._run_blocking: Final = run_blocking
        self._waiting: Final[deque[tuple[EndedJob, MetricsHistoryInfo]]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._tasks: Final[set[asyncio.Task[Any]]] = set()

    @property
    def pending_count(self) -> int:
        """Return how many archives are still to be written."""
        return len(self._waiting)

    def archive(self, job: EndedJob, metrics_history: MetricsHistoryInfo) -> None:
        """Write the archive of a job after the earlier ones."""
        if len(self._waiting) >= _WAITING_MAX:
            _LOG.warning(
                "job %s gets no archive: %d other archives are still waiting to be written to %s",
                job.details.job_id,
                len(self._waiting),
                self._folder,
            )
            return
        self._waiting.append((job, metrics_history))
        if self._writing is None or self._writing.done():
            self._writing = spawn(
                self._write_all(), asyncio.get_running_loop(), "job archives", self._tasks
            )

    async def wait_until_written(self) -> None:
        """Return when no archive is pending."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write_all(self) -> None:
        while self._waiting:
            job, metrics_history = self._waiting[0]
            write = functools.partial(self._write, job, metrics_history)
            try:
                await self._run_blocking("headrace-archive", write)
            except Exception as error:
                # Any error: the job has ended, and the cluster continues.
                _LOG.warning(
                    "the archive of job %s could not be written: %s", job.details.job_id, error
                )
            finally:
                self._waiting.popleft()

    def _write(self, job: EndedJob, metrics_history: MetricsHistoryInfo) -> None:
        job_id = job.details.job_id.hex()
        content = render_archive(job, self._settings, self._clock.now_ms(), metrics_history)
        uri = file_systems.child_uri(self._folder, job_id)
        token = UniqueId.generate(self._random).hex()
        if not file_systems.put_if_absent(uri, content, token):
            _LOG.warning("job %s has an archive already, which is kept: %s", job_id, uri)
            return
        _LOG.info("the archive of job %s is %s (%d bytes)", job_id, uri, len(content))


def render_archive(
    job: EndedJob, settings: Settings, now_ms: int, metrics_history: MetricsHistoryInfo
) -> bytes:
    """Return the archive of a job that ended at `now_ms`."""
    view = EndedJobView(job, settings, now_ms, metrics_history)
    paths = archived_paths(job)
    # History servers keep this line of each job in memory.
    overview = msgspec.structs.replace(job.overview, name=job.overview.name[:_NAME_LENGTH_MAX])
    return pack_archive(
        job.details.job_id.hex(),
        job_details_of(overview, now_ms).model_dump_json(by_alias=True).encode(),
        archived_answers(view, paths),
        is_compressed=len(paths) > _PLAIN_MAX,
    )

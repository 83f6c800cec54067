"""JobHistory: records metrics of jobs over time, and writes archives of ended jobs; a part of a cluster's host.

It has a thread of its own, so that neither the control plane nor REST waits for it. It reads running jobs every few
seconds, and less often if reading takes long, so that this never takes more than a small share of the time.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId
from headrace.core.randomness import SeededRandom
from headrace.core.threads import EventLoopThread, run_on_loop, spawn
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.job_master import JobDetails
from headrace.rest.history.metrics_history import MetricsHistory
from headrace.rest.history.options import ARCHIVE_DIRECTORY
from headrace.rest.options import REST_ENABLED

if TYPE_CHECKING:
    from headrace.rest.history.job_archivist import JobArchivist
    from headrace.rest.models.vertices import MetricsHistoryInfo

_LOG: Final = logging.getLogger(__name__)
SAMPLE_INTERVAL_MS: Final = 5_000
_PAUSE_FACTOR: Final = 50
"""Pause after reading all jobs, as a multiple of the reading time, which is so at most 2 % of the time."""
_PAUSE_MAX_MS: Final = 60_000.0
_ASK_TIMEOUT_S: Final = 10.0
_JOBS_MAX: Final = 100
"""Maximum number of jobs, including ended ones, whose metrics are kept; the oldest are dropped first."""
_STOP_TIMEOUT_S: Final = 5.0
_NO_ANSWER: Final = (HeadraceError, TimeoutError, RuntimeError)
CLOSE_TIMEOUT_S: Final = 10.0


class JobHistory:
    """History of one cluster. Call `job_ended` for each job that has ended; `watch` begins to read running ones."""

    def __init__(self, settings: Settings, clock: Clock, random: SeededRandom) -> None:
        self._clock: Final = clock
        self._thread: Final = EventLoopThread("headrace-history")
        self._series: Final[OrderedDict[JobId, MetricsHistory]] = OrderedDict()
        self._ended: Final[set[JobId]] = set()
        self._tasks: Final[set[asyncio.Task[Any]]] = set()
        self._settings: Final = settings
        self._random: Final = random
        self._folder: Final = settings.get_option(ARCHIVE_DIRECTORY)
        self._archivist: JobArchivist | None = None

    def watch(self, dispatcher: DispatcherGateway, control_loop: asyncio.AbstractEventLoop) -> None:
        """Read the jobs of a cluster from now on; its gateway is called on `control_loop`.

        Nothing is read if neither REST nor archives use it.
        """
        if not self._folder and not self._settings.get_option(REST_ENABLED):
            return

        def begin() -> None:
            spawn(
                self._watch(dispatcher, control_loop),
                self._thread.loop,
                "watch jobs",
                self._tasks,
            )

        self._thread.loop.call_soon_threadsafe(begin)

    def stop_watching(self) -> None:
        """Stop reading the cluster; call this before the cluster is closed."""
        self._thread.run(self._stop_watching(), _STOP_TIMEOUT_S)

    def job_ended(self, job: EndedJob) -> None:
        """Archive a job that has ended; from any thread, returns at once."""
        self._thread.loop.call_soon_threadsafe(self._job_ended, job)

    async def metrics_of(self, job_id: JobId) -> "MetricsHistoryInfo":
        """Return metrics of a job over time; from any loop."""
        shown = asyncio.run_coroutine_threadsafe(self._shown(job_id), self._thread.loop)
        return await asyncio.wrap_future(shown)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait for archives that are being written, at most `timeout_s`, and end. Not from the control thread."""
        try:
            self._thread.run(self._archives_written(), timeout_s)
        except TimeoutError:
            pending = 0 if self._archivist is None else self._archivist.pending_count
            _LOG.warning(
                "%d archive(s) of ended jobs were not written within %g s; those jobs have none",
                pending,
                timeout_s,
            )
        finally:
            self._thread.stop()

    async def _stop_watching(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _archives_written(self) -> None:
        if self._archivist is not None:
            await self._archivist.wait_until_written()

    async def _shown(self, job_id: JobId) -> "MetricsHistoryInfo":
        series = self._series.get(job_id) or MetricsHistory(SAMPLE_INTERVAL_MS)
        return series.shown(job_id.hex())

    def _job_ended(self, job: EndedJob) -> None:
        job_id = job.details.job_id
        series = self._series_of(job_id)
        self._ended.add(job_id)
        series.add(self._clock.now_ms(), job.details, is_last=True)
        if not self._folder:
            return
        if self._archivist is None:
            # Imported late: all handlers come along, which takes half a second.
            from headrace.rest.history.job_archivist import JobArchivist

            self._archivist = JobArchivist(self._folder, self._settings, self._clock, self._random)
        self._archivist.archive(job, series.shown(job_id.hex()))

    async def _watch(
        self, dispatcher: DispatcherGateway, control_loop: asyncio.AbstractEventLoop
    ) -> None:
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                await self._look(dispatcher, control_loop)
            except _NO_ANSWER as error:
                # A cluster that is busy or has ended: the next attempt shows which.
                _LOG.debug("jobs could not be read: %s", error)
            took_ms = self._clock.monotonic_ms() - began_ms
            pause_ms = max(SAMPLE_INTERVAL_MS, min(_PAUSE_MAX_MS, took_ms * _PAUSE_FACTOR))
            await asyncio.sleep(pause_ms / 1000)

    async def _look(
        self, dispatcher: DispatcherGateway, control_loop: asyncio.AbstractEventLoop
    ) -> None:
        for job in await run_on_loop(dispatcher.list_jobs(), control_loop, _ASK_TIMEOUT_S):
            if job.status.is_globally_terminal_state():
                continue
            asked = dispatcher.request_job_details(job.job_id, SAMPLE_INTERVAL_MS)
            try:
                details = await run_on_loop(asked, control_loop, _ASK_TIMEOUT_S)
            except _NO_ANSWER as error:
                # A job that has gone meanwhile or is busy: the others are read nevertheless.
                _LOG.debug("job %s could not be read: %s", job.job_id, error)
            else:
                self._looked_at(details)

    def _looked_at(self, details: JobDetails) -> None:
        if details.job_id not in self._ended:
            self._series_of(details.job_id).add(self._clock.now_ms(), details)

    def _series_of(self, job_id: JobId) -> MetricsHistory:
        series = self._series.get(job_id)
        if series is None:
            series = self._series[job_id] = MetricsHistory(SAMPLE_INTERVAL_MS)
            while len(self._series) > _JOBS_MAX:
                forgotten, _ = self._series.popitem(last=False)
                self._ended.discard(forgotten)
        return series

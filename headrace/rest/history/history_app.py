"""The application of the history server: routes of a cluster's REST API, answered from archives."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from fastapi import Request, Response

from headrace import __version__
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.lifecycle import JobStatus
from headrace.core.threads import run_in_thread
from headrace.rest.app import JSON, VERSION_PREFIX, guarded_app
from headrace.rest.authentication import AsgiApplication, RestGuard
from headrace.rest.handler_errors import NotFoundError, UnavailableError
from headrace.rest.handlers.cluster import (
    FLINK_VERSION,
    dashboard_configuration,
    sign_in,
    sign_out,
)
from headrace.rest.handlers.parameters import ApplicationParameter, JobParameter
from headrace.rest.history.archive_catalog import ArchiveCatalog
from headrace.rest.history.archived_answers import OVERVIEW_PATH, archived_routes
from headrace.rest.history.listed_job import archived_application
from headrace.rest.models import cluster as cluster_models
from headrace.rest.models.jobs import ApplicationDetails, JobIds, JobIdWithStatus
from headrace.rest.options import WEB_REFRESH_INTERVAL
from headrace.rest.rest_route import RestRoute
from headrace.rest.routes import ROUTES

T = TypeVar("T")

_READS_MAX: Final = 8
"""Answers that are read from archives at once."""
_WAITING_MAX: Final = 256
"""Answers that are read or wait for it; who asks for more is asked to come again."""
_JOB: Final = "/jobs/{jobid}"
_APPLICATION: Final = "/applications/{applicationid}"
_HISTORY: Final = "this is a history server, which shows jobs that have ended from their archives"
_LOGS: Final = (
    f"{_HISTORY}, and archives hold no log files: those of a cluster stay below its env.log.dir, where that was set, "
    "and 'headrace exceptions JOB_ID' says why a job failed"
)
_DISPOSAL: Final = f"{_HISTORY}, and deletes no savepoint: 'headrace savepoint dispose PATH' does"
_RUNNING: Final = "ask a cluster that runs, with -m HOST:PORT ('headrace cluster list' shows those of this machine)"


class History:
    """State of the application: the catalog, and how many read from it now."""

    def __init__(self, catalog: ArchiveCatalog, settings: Settings, clock: Clock) -> None:
        self.catalog: Final = catalog
        self.settings: Final = settings
        self.clock: Final = clock
        self._waiting_count = 0
        self._reads: Final = asyncio.Semaphore(_READS_MAX)

    async def answer(self, job: str, path: str) -> bytes:
        """Return the JSON of a path from the archive of a job."""
        return await self.read(lambda: self.catalog.answer(job, path))

    async def read(self, body: Callable[[], T]) -> T:
        """Return what the catalog says once it may be asked."""
        if self._waiting_count >= _WAITING_MAX:
            raise UnavailableError(f"{_WAITING_MAX} answers are waited for; ask again")
        self._waiting_count += 1
        try:
            async with self._reads:
                return await run_in_thread("headrace-history-read", body)
        finally:
            self._waiting_count -= 1


def create_history_app(history: History, guard: RestGuard) -> AsgiApplication:
    """Return the application behind its guard."""
    return guarded_app(history_routes(), guard, history.settings, {"history": history})


def history_routes() -> tuple[RestRoute, ...]:
    """Return what a history server answers: lists of its own, what archives hold, and why all else is not there."""
    of_archives = (
        RestRoute(route.method, route.path, _archived_answer, None)
        for route in archived_routes()
        if route.path != OVERVIEW_PATH
    )
    log_url = f"{_JOB}/jobmanager/log-url"
    answered = (
        RestRoute("GET", "/config", _configuration, cluster_models.DashboardConfiguration),
        RestRoute("GET", "/overview", _overview, cluster_models.ClusterOverview),
        RestRoute("POST", "/session", sign_in, None),
        RestRoute("DELETE", "/session", sign_out, None),
        RestRoute("GET", "/jobs", _job_ids, JobIds),
        RestRoute("GET", OVERVIEW_PATH, _jobs, None),
        RestRoute("GET", "/applications/overview", _applications, None),
        RestRoute("GET", _APPLICATION, _application, ApplicationDetails),
        RestRoute("GET", f"{_APPLICATION}/exceptions", _answer_of_application, None),
        RestRoute("GET", f"{_APPLICATION}/jobmanager/config", _answer_of_application, None),
        RestRoute("GET", log_url, _log_url, cluster_models.LogUrl),
        *of_archives,
    )
    return (*answered, *_absent_routes(answered))


async def _configuration(request: Request) -> cluster_models.DashboardConfiguration:
    """Tell a dashboard that this is a history server."""
    history = _history(request)
    return dashboard_configuration(
        history.settings,
        history.clock.now_ms(),
        history.settings.duration_ms(WEB_REFRESH_INTERVAL),
        is_history=True,
    )


async def _overview(request: Request) -> cluster_models.ClusterOverview:
    """Count the jobs of all archives."""
    states = [state for _, state in _history(request).catalog.statuses()]
    return cluster_models.ClusterOverview(
        taskmanagers=0,
        slots_total=0,
        slots_available=0,
        jobs_running=0,
        jobs_finished=states.count(JobStatus.FINISHED.name),
        jobs_cancelled=states.count(JobStatus.CANCELED.name),
        jobs_failed=states.count(JobStatus.FAILED.name),
        flink_version=FLINK_VERSION,
        flink_commit=__version__,
    )


async def _job_ids(request: Request) -> JobIds:
    """List ids and statuses of all jobs."""
    return JobIds(
        jobs=[
            JobIdWithStatus(id=job, status=state)
            for job, state in _history(request).catalog.statuses()
        ]
    )


async def _jobs(request: Request) -> Response:
    """List all jobs, the newest first."""
    return Response(_history(request).catalog.overviews(), media_type=JSON)


async def _applications(request: Request) -> Response:
    """List all jobs as applications, the newest first."""
    history = _history(request)
    return Response(await history.read(history.catalog.applications), media_type=JSON)


async def _application(request: Request, application: ApplicationParameter) -> ApplicationDetails:
    """Show one application with its job."""
    history, job = _history(request), application.hex()
    line = history.catalog.line(job)
    return archived_application(line, await history.answer(job, f"/jobs/{job}"))


async def _answer_of_application(request: Request, application: ApplicationParameter) -> Response:
    """Return what the archive of an application's job has below the same name."""
    job = application.hex()
    part = request.scope["path"].lower().rpartition(job)[2]
    answer = await _history(request).answer(job, f"/jobs/{job}{part}")
    return Response(answer, media_type=JSON)


async def _log_url(request: Request, job: JobParameter) -> cluster_models.LogUrl:
    """Tell that there is no log: archives hold none, and Flink's web UI asks for its place."""
    _history(request).catalog.line(job.hex())
    return cluster_models.LogUrl(url="")


async def _archived_answer(request: Request, job: JobParameter) -> Response:
    """Return what the job's cluster answered when the job had ended."""
    path = request.scope["path"].removeprefix(VERSION_PREFIX).lower()
    return Response(await _history(request).answer(job.hex(), path), media_type=JSON)


def _history(request: Request) -> History:
    return request.app.state.history


def _absent_routes(answered: tuple[RestRoute, ...]) -> tuple[RestRoute, ...]:
    """Return routes for all that a cluster answers and `answered` does not.

    Each of them says what is missing, why, and what helps instead.
    """
    known = {(route.method, route.path) for route in answered}
    absent = dict.fromkeys(
        (route.method, route.path) for route in ROUTES if (route.method, route.path) not in known
    )
    return tuple(RestRoute(method, path, _handler_of(path), None) for method, path in absent)


def _handler_of(path: str) -> Any:
    return _refuse_running_job if path.startswith(_JOB) else _refuse_cluster


async def _refuse_running_job(request: Request, job: JobParameter) -> None:
    """Say that the path is one of running jobs alone; NotFoundError."""
    job_id = job.hex()
    if not request.app.state.history.catalog.has(job_id):
        raise NotFoundError(f"Job {job_id} not found")
    path = request.url.path
    if request.method != "GET" or "/savepoints/" in path:
        raise NotFoundError(
            f"Job {job_id} has ended, and this is a history server, where no job is steered: 'headrace run -s PATH "
            "PROGRAM' starts it again from a snapshot, of which 'headrace checkpoint list FOLDER' shows the paths"
        )
    if "/state" in path:
        raise NotFoundError(
            f"Job {job_id} has ended, and only a running one has {path}: its state is in its snapshots, of which "
            "'headrace checkpoint list FOLDER' shows the paths, and 'headrace checkpoint show PATH' each operator"
        )
    raise NotFoundError(
        f"Job {job_id} has ended, and only a running one has {path}: of an ended one there are metrics over time at "
        f"/jobs/{job_id}/metrics-history, which 'headrace open' draws, and sums at /jobs/{job_id}"
    )


async def _refuse_cluster(request: Request) -> None:
    """Say that the path is one of clusters alone; NotFoundError."""
    path = request.url.path
    if path.rpartition("/")[2] in ("log", "logs", "stdout") or "/logs/" in path:
        raise NotFoundError(_LOGS)
    if "/savepoint-disposal" in path:
        raise NotFoundError(_DISPOSAL)
    raise NotFoundError(f"{_HISTORY}, and has no {path}: {_RUNNING}")

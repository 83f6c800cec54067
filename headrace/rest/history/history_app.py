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
"""Maximum number of answers that are read from archives concurrently."""
_WAITING_MAX: Final = 256
"""Maximum number of answers that are being read or wait for it; further requests get status 503."""
_JOB: Final = "/jobs/{jobid}"
_APPLICATION: Final = "/applications/{applicationid}"
_HISTORY: Final = "this is a history server, which shows jobs that have ended from their archives"
_LOGS: Final = (
    f"{_HISTORY}, and archives hold no log files: those of a cluster stay below its env.log.dir, if that was set, "
    f"and 'headrace exceptions JOB_ID' shows why a job failed"
)
_DISPOSAL: Final = (
    f"{_HISTORY}, and cannot delete savepoints: use 'headrace savepoint dispose PATH'"
)
_RUNNING: Final = (
    "use a running cluster, with -m HOST:PORT ('headrace cluster list' shows those of this machine)"
)


class History:
    """State of the application: the catalog, and the number of running reads."""

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
        """Return the answer of the catalog when a read is allowed to start."""
        if self._waiting_count >= _WAITING_MAX:
            raise UnavailableError(f"{_WAITING_MAX} requests are waiting; try again")
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
    """Return the routes of a history server: its own lists, the archived routes, and refusals of all others."""
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
    """Return the dashboard configuration of a history server."""
    history = _history(request)
    return dashboard_configuration(
        history.settings,
        history.clock.now_ms(),
        history.settings.duration_ms(WEB_REFRESH_INTERVAL),
        is_history=True,
    )


async def _overview(request: Request) -> cluster_models.ClusterOverview:
    """Return the number of jobs in all archives."""
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
    """Return one application with its job."""
    history, job = _history(request), application.hex()
    line = history.catalog.line(job)
    return archived_application(line, await history.answer(job, f"/jobs/{job}"))


async def _answer_of_application(request: Request, application: ApplicationParameter) -> Response:
    """Return the answer that the archive of an application's job has for the same path below the job."""
    job = application.hex()
    part = request.scope["path"].lower().rpartition(job)[2]
    answer = await _history(request).answer(job, f"/jobs/{job}{part}")
    return Response(answer, media_type=JSON)


async def _log_url(request: Request, job: JobParameter) -> cluster_models.LogUrl:
    """Return no log address: archives contain no logs, and Flink's web UI requests it."""
    _history(request).catalog.line(job.hex())
    return cluster_models.LogUrl(url="")


async def _archived_answer(request: Request, job: JobParameter) -> Response:
    """Return the answer of the job's cluster after the job's end."""
    path = request.scope["path"].removeprefix(VERSION_PREFIX).lower()
    return Response(await _history(request).answer(job.hex(), path), media_type=JSON)


def _history(request: Request) -> History:
    return request.app.state.history


def _absent_routes(answered: tuple[RestRoute, ...]) -> tuple[RestRoute, ...]:
    """Return routes for all paths of a cluster that are not in `answered`.

    Each of them answers what is missing, why, and what to use instead.
    """
    known = {(route.method, route.path) for route in answered}
    absent = dict.fromkeys(
        (route.method, route.path) for route in ROUTES if (route.method, route.path) not in known
    )
    return tuple(RestRoute(method, path, _handler_of(path), None) for method, path in absent)


def _handler_of(path: str) -> Any:
    return _refuse_running_job if path.startswith(_JOB) else _refuse_cluster


async def _refuse_running_job(request: Request, job: JobParameter) -> None:
    """Refuse a path that only running jobs have; NotFoundError."""
    job_id = job.hex()
    if not request.app.state.history.catalog.has(job_id):
        raise NotFoundError(f"Job {job_id} not found")
    path = request.url.path
    if request.method != "GET" or "/savepoints/" in path:
        raise NotFoundError(
            f"Job {job_id} has ended, and a history server cannot control jobs: 'headrace run -s PATH PROGRAM' "
            f"restarts it from a snapshot; 'headrace checkpoint list FOLDER' shows the paths of snapshots"
        )
    if "/state" in path:
        raise NotFoundError(
            f"Job {job_id} has ended, and only a running job has {path}: its state is in its snapshots; 'headrace "
            f"checkpoint list FOLDER' shows their paths, and 'headrace checkpoint show PATH' their operators"
        )
    raise NotFoundError(
        f"Job {job_id} has ended, and only a running job has {path}: an ended job has metrics over time at "
        f"/jobs/{job_id}/metrics-history, which 'headrace open' draws, and sums at /jobs/{job_id}"
    )


async def _refuse_cluster(request: Request) -> None:
    """Refuse a path that only clusters have; NotFoundError."""
    path = request.url.path
    if path.rpartition("/")[2] in ("log", "logs", "stdout") or "/logs/" in path:
        raise NotFoundError(_LOGS)
    if "/savepoint-disposal" in path:
        raise NotFoundError(_DISPOSAL)
    raise NotFoundError(f"{_HISTORY}, and has no {path}: {_RUNNING}")

"""Routes of a cluster that a history server has not: each says what is missing there, why, and what helps instead."""

from typing import Any, Final

from fastapi import Request

from headrace.rest.handler_errors import NotFoundError
from headrace.rest.handlers.parameters import JobParameter
from headrace.rest.rest_route import RestRoute
from headrace.rest.routes import ROUTES

_OF_JOB: Final = "/jobs/{jobid}"
_HISTORY: Final = "this is a history server, which shows jobs that have ended from their archives"
_LOGS: Final = (
    f"{_HISTORY}, and archives hold no log files: those of a cluster stay below its env.log.dir, where that was set, "
    "and 'headrace exceptions JOB_ID' says why a job failed"
)
_DISPOSAL: Final = f"{_HISTORY}, and deletes no savepoint: 'headrace savepoint dispose PATH' does"
_RUNNING: Final = "ask a cluster that runs, with -m HOST:PORT ('headrace cluster list' shows those of this machine)"


def absent_routes(answered: tuple[RestRoute, ...]) -> tuple[RestRoute, ...]:
    """Return routes for all that a cluster answers and `answered` does not."""
    known = {(route.method, route.path) for route in answered}
    absent = dict.fromkeys(
        (route.method, route.path) for route in ROUTES if (route.method, route.path) not in known
    )
    return tuple(RestRoute(method, path, _handler_of(path), None) for method, path in absent)


def _handler_of(path: str) -> Any:
    return _of_running_job if path.startswith(_OF_JOB) else _of_cluster


async def _of_running_job(request: Request, job: JobParameter) -> None:
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


async def _of_cluster(request: Request) -> None:
    """Say that the path is one of clusters alone; NotFoundError."""
    path = request.url.path
    if path.rpartition("/")[2] in ("log", "logs", "stdout") or "/logs/" in path:
        raise NotFoundError(_LOGS)
    if "/savepoint-disposal" in path:
        raise NotFoundError(_DISPOSAL)
    raise NotFoundError(f"{_HISTORY}, and has no {path}: {_RUNNING}")

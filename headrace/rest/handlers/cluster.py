"""Handlers of the cluster as a whole: dashboards' configuration, overview, the driver's process, sign-in, end."""

import datetime
import platform
import sys
from collections import Counter
from collections.abc import Awaitable
from typing import Final

from fastapi import Request, Response

from headrace import __version__
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.lifecycle import JobStatus
from headrace.core.process.interpreter import interpreter_options
from headrace.core.process.log_files import JOB_MANAGER, LogFile, LogPiece, log_files, read_log_file
from headrace.core.process.thread_dump import ThreadInfo, thread_dump
from headrace.core.redaction import shown_settings
from headrace.core.threads import run_in_thread
from headrace.rest.authentication import RestGuard
from headrace.rest.cluster_view import ClusterView
from headrace.rest.handler_errors import NotFoundError, UnavailableError, UnknownTokenError
from headrace.rest.handlers.log_answers import log_answer
from headrace.rest.handlers.parameters import ClusterParameter, LogFileName
from headrace.rest.models import cluster as models
from headrace.rest.options import WEB_CANCEL_ENABLE

FLINK_VERSION: Final = "2.3.0"
"""Version of Flink's REST API that this one follows; clients compare it with their own."""


async def configuration(cluster: ClusterParameter) -> models.DashboardConfiguration:
    """Return the refresh interval and the pages that a dashboard shows."""
    return dashboard_configuration(
        cluster.settings,
        cluster.clock.now_ms(),
        cluster.refresh_interval_ms,
        accepts_jobs=cluster.accepts_jobs,
        has_spark_page=cluster.spark_page is not None,
    )


def dashboard_configuration(
    settings: Settings,
    now_ms: int,
    refresh_interval_ms: float,
    *,
    is_history: bool = False,
    accepts_jobs: bool = False,
    has_spark_page: bool = False,
) -> models.DashboardConfiguration:
    """Return the first answer that a dashboard requests."""
    here = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
    offset = here.utcoffset() or datetime.timedelta()
    return models.DashboardConfiguration(
        refresh_interval=int(refresh_interval_ms),
        timezone_name=here.tzname() or "UTC",
        timezone_offset=offset // datetime.timedelta(milliseconds=1),
        flink_version=FLINK_VERSION,
        flink_revision=f"headrace {__version__}",
        features=models.Features(
            web_submit=accepts_jobs,
            web_cancel=settings.get_option(WEB_CANCEL_ENABLE) and not is_history,
            web_rescale=False,
            web_history=is_history,
            web_spark=has_spark_page,
        ),
    )


async def overview(cluster: ClusterParameter) -> models.ClusterOverview:
    """Count TaskManagers, slots and jobs."""
    resources = await cluster.resources()
    statuses = Counter(job.status for job in await cluster.jobs())
    leaving = sum(bool(each.decommissioned) for each in resources.task_managers)
    return models.ClusterOverview(
        taskmanagers=len(resources.task_managers),
        slots_total=sum(each.slot_count for each in resources.task_managers),
        slots_available=sum(each.free_slot_count for each in resources.task_managers),
        jobs_running=sum(
            count for status, count in statuses.items() if not status.is_globally_terminal_state()
        ),
        jobs_finished=statuses[JobStatus.FINISHED],
        jobs_cancelled=statuses[JobStatus.CANCELED],
        jobs_failed=statuses[JobStatus.FAILED],
        flink_version=FLINK_VERSION,
        flink_commit=__version__,
        taskmanagers_decommissioned=leaving or None,
    )


async def shut_down(cluster: ClusterParameter) -> models.Empty:
    """Cancel all jobs and end the cluster."""
    try:
        await cluster.ask(cluster.dispatcher.shut_down_cluster())
    except HeadraceError as error:
        if not error.is_consequence:
            raise
        # The cluster or its Dispatcher ended before the answer: a repeated request reaches the next one, or nobody.
        raise UnavailableError(f"the end of the cluster was not confirmed: {error}") from error
    return models.Empty()


async def job_manager_config(cluster: ClusterParameter) -> list[models.Setting]:
    """List the settings of the cluster, secrets masked."""
    shown = shown_settings(cluster.settings.to_dict())
    return [models.Setting(key=key, value=value) for key, value in sorted(shown.items())]


async def job_manager_environment() -> models.JobManagerEnvironment:
    """Show the driver's interpreter and its module path."""
    # Arguments and variables may contain secrets, and are left out.
    return models.JobManagerEnvironment(
        jvm=models.InterpreterInfo(
            version=platform.python_version(),
            arch=platform.machine(),
            options=interpreter_options(),
        ),
        classpath=list(sys.path),
    )


async def job_manager_thread_dump() -> models.ThreadDump:
    """Show the stacks of all threads of the driver."""
    # It reads source files.
    return thread_dump_of(await run_in_thread("headrace-thread-dump", thread_dump))


async def job_manager_logs(cluster: ClusterParameter) -> models.LogFileList:
    """List the driver's log files."""
    return log_list(log_files(cluster.log_folder) if cluster.log_folder else ())


async def job_manager_log(cluster: ClusterParameter, request: Request) -> Response:
    """Return the driver's log."""
    return await _job_manager_file(cluster, request, f"{JOB_MANAGER}.log")


async def job_manager_stdout(cluster: ClusterParameter, request: Request) -> Response:
    """Return the output that functions printed in the TaskManagers, as the driver shows it."""
    return await _job_manager_file(cluster, request, f"{JOB_MANAGER}.out")


async def job_manager_log_file(
    cluster: ClusterParameter, request: Request, file_name: LogFileName
) -> Response:
    """Return one of the driver's log files."""
    return await _job_manager_file(cluster, request, file_name)


async def sign_in(request: Request, body: models.SessionRequest) -> Response:
    """Accept the token once, and recognise the browser by a cookie from then on."""
    guard: RestGuard = request.app.state.guard
    if not guard.is_token(body.token):
        raise UnknownTokenError("this is not the token of this cluster")
    return Response(b"{}", media_type="application/json", headers={"set-cookie": guard.sign_in()})


async def sign_out(request: Request) -> Response:
    """End the browser's session."""
    guard: RestGuard = request.app.state.guard
    cookie = guard.sign_out(request.headers.get("cookie", ""))
    return Response(b"{}", media_type="application/json", headers={"set-cookie": cookie})


def log_list(files: tuple[LogFile, ...]) -> models.LogFileList:
    """Return log files in the model for dashboards."""
    return models.LogFileList(
        logs=[
            models.LogFileInfo(name=each.name, size=each.size_bytes, mtime=each.modified_ms)
            for each in files
        ]
    )


def thread_dump_of(threads: tuple[ThreadInfo, ...]) -> models.ThreadDump:
    """Return threads in the model for dashboards."""
    return models.ThreadDump(
        thread_infos=[
            models.ThreadDumpEntry(thread_name=each.name, stringified_thread_info=each.text)
            for each in threads
        ]
    )


async def _job_manager_file(cluster: ClusterView, request: Request, name: str) -> Response:
    folder = cluster.log_folder
    if folder is None or name not in {each.name for each in log_files(folder)}:
        raise NotFoundError("This file does not exist in JobManager log dir.")

    def read(offset: int, max_bytes: int) -> Awaitable[LogPiece]:
        return run_in_thread(
            "headrace-log-read", lambda: read_log_file(folder, name, offset, max_bytes)
        )

    return await log_answer(name, read, request.headers.get("range"))

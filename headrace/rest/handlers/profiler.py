"""Handlers of the profiler of processes: start a profile, list the newest, show one as a page of its own."""

from html import escape
from typing import Annotated

from fastapi import Depends, Response

from headrace.core.config import default_text
from headrace.core.ids import ResourceId
from headrace.core.process.flame_graph import FlameGraphNode, flame_graph_svg
from headrace.core.process.process_profiler import (
    PROFILING_DURATION_MAX,
    PROFILING_ENABLED,
    ProfileNotFoundError,
    ProfilerBusyError,
    ProfilingInfo,
    ProfilingMode,
)
from headrace.rest.cluster_view import ClusterView
from headrace.rest.handler_errors import BadRequestError, ConflictError, NotFoundError
from headrace.rest.handlers.parameters import (
    ClusterParameter,
    LogFileName,
    OwnProfiler,
    TaskManagerId,
)
from headrace.rest.models import cluster as models


async def _profiled(cluster: ClusterParameter) -> ClusterView:
    if not cluster.settings.get_option(PROFILING_ENABLED):
        raise NotFoundError(
            f"The profiler is off: start the cluster with -D {PROFILING_ENABLED.key}=true. The flame graphs of a "
            f"job's vertices work without it."
        )
    return cluster


Profiled = Annotated[ClusterView, Depends(_profiled)]
"""The control plane of a cluster with profiling switched on."""


async def profile_job_manager(
    cluster: Profiled, profiler: OwnProfiler, body: models.ProfilingRequest
) -> models.Profiling:
    """Start a profile of the driver's process; it ends by itself after `duration` seconds."""
    _refuse_too_long(cluster, body)
    try:
        return _shown(profiler.start(ProfilingMode(body.mode), body.duration))
    except ProfilerBusyError as error:
        raise ConflictError(str(error)) from error


async def job_manager_profiles(cluster: Profiled, profiler: OwnProfiler) -> models.ProfilingList:
    """List the newest profiles of the driver's process."""
    return models.ProfilingList(profiling_list=[_shown(each) for each in profiler.profiles()])


async def job_manager_profile(
    cluster: Profiled, profiler: OwnProfiler, file_name: LogFileName
) -> Response:
    """Show a profile of the driver's process as a page with a flame graph."""
    try:
        return _page(profiler.profiles(), file_name, profiler.profile(file_name))
    except ProfileNotFoundError as error:
        raise NotFoundError(str(error)) from error


async def profile_task_manager(
    cluster: Profiled, task_manager: TaskManagerId, body: models.ProfilingRequest
) -> models.Profiling:
    """Start a profile of a TaskManager; it ends by itself after `duration` seconds."""
    _refuse_too_long(cluster, body)
    call = cluster.resource_manager.request_task_manager_profiling(
        ResourceId(task_manager), ProfilingMode(body.mode), body.duration
    )
    try:
        return _shown(await cluster.ask(call))
    except ProfilerBusyError as error:
        raise ConflictError(str(error)) from error


async def task_manager_profiles(
    cluster: Profiled, task_manager: TaskManagerId
) -> models.ProfilingList:
    """List the newest profiles of a TaskManager."""
    found = await _profiles(cluster, task_manager)
    return models.ProfilingList(profiling_list=[_shown(each) for each in found])


async def task_manager_profile(
    cluster: Profiled, task_manager: TaskManagerId, file_name: LogFileName
) -> Response:
    """Show a profile of a TaskManager as a page with a flame graph."""
    call = cluster.resource_manager.request_task_manager_profile(
        ResourceId(task_manager), file_name
    )
    try:
        graph = await cluster.ask(call)
    except ProfileNotFoundError as error:
        raise NotFoundError(str(error)) from error
    return _page(await _profiles(cluster, task_manager), file_name, graph)


async def _profiles(cluster: ClusterView, task_manager: str) -> tuple[ProfilingInfo, ...]:
    return await cluster.ask(
        cluster.resource_manager.request_task_manager_profiling_list(ResourceId(task_manager))
    )


def _refuse_too_long(cluster: ClusterView, body: models.ProfilingRequest) -> None:
    longest_ms = cluster.settings.duration_ms(PROFILING_DURATION_MAX)
    if body.duration * 1_000 > longest_ms:
        longest = default_text(cluster.settings.get_option(PROFILING_DURATION_MAX))
        raise BadRequestError(
            f"A profile may take {longest} at most ({PROFILING_DURATION_MAX.key}), not {body.duration} s."
        )


def _shown(info: ProfilingInfo) -> models.Profiling:
    return models.Profiling(
        status=info.status.value,
        mode=info.mode.value,
        trigger_time=info.trigger_ms,
        finished_time=info.finished_ms,
        duration=info.duration_s,
        message=info.message or None,
        output_file=info.file_name or None,
    )


def _page(infos: tuple[ProfilingInfo, ...], file_name: str, graph: FlameGraphNode) -> Response:
    unit = next((each.mode.unit for each in infos if each.file_name == file_name), "samples")
    title = file_name.removesuffix(".html")
    picture = flame_graph_svg(graph, f"{title}: {graph.value:,} {unit}", unit)
    return Response(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
        f"<body>{picture}</body></html>",
        media_type="text/html",
    )

"""Handlers of TaskManagers: list, details, logs, thread dumps."""

import logging
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from fastapi import Request, Response

from headrace.core.errors import HeadraceError
from headrace.core.ids import ResourceId
from headrace.core.process.log_files import (
    LogFileNotFoundError,
    LogPiece,
    task_manager_file_name,
)
from headrace.core.process.memory_parts import MemoryParts
from headrace.core.resource_profile import ResourceProfile
from headrace.gateways.errors import UnknownTaskManagerError
from headrace.gateways.resource_manager import TaskManagerInfo
from headrace.metrics import cluster_names as process_names
from headrace.metrics import names
from headrace.metrics.metric_name import MetricName
from headrace.rest.cluster_view import ClusterView
from headrace.rest.handler_errors import HandlerError
from headrace.rest.handlers.cluster import log_list, thread_dump_of
from headrace.rest.handlers.log_answers import log_answer
from headrace.rest.handlers.parameters import ClusterParameter, LogFileName, TaskManagerId
from headrace.rest.models import task_managers as models
from headrace.rest.models.cluster import LogFileList, ThreadDump

_LOG: Final = logging.getLogger(__name__)

_MEGABYTE: Final = 1 << 20
_NETWORK: Final = "Status.Shuffle.Netty"
"""Scope in Flink of a TaskManager's network metrics."""


async def list_task_managers(cluster: ClusterParameter) -> models.TaskManagerList:
    """List all TaskManagers."""
    overview = await cluster.resources()
    tasks = await cluster.assigned_tasks()
    return models.TaskManagerList(
        taskmanagers=[
            models.TaskManagerOverviewInfo(**_fields(each, tasks[each.resource_id]))
            for each in overview.task_managers
        ]
    )


async def task_manager_details(
    cluster: ClusterParameter, task_manager: TaskManagerId
) -> models.TaskManagerDetailsInfo:
    """Show one TaskManager with its slots and its memory."""
    resource_id = ResourceId(task_manager)
    found = await cluster.task_manager(resource_id)
    metrics = await _known_metrics(cluster, found)
    tasks = await cluster.assigned_tasks()
    return models.TaskManagerDetailsInfo(
        **_fields(
            found, tasks[resource_id], int(metrics.get(f"{_NETWORK}.{names.TOTAL_MEMORY.name}", 0))
        ),
        allocated_slots=[
            models.AllocatedSlot(
                job_id=each.job_id.hex(),
                resource=_resource(each.profile),
                assigned_tasks=tasks[each.allocation_id],
            )
            for each in found.slots
            if each.job_id is not None and each.allocation_id is not None
        ],
        metrics=_memory(metrics),
    )


async def task_manager_logs(cluster: ClusterParameter, task_manager: TaskManagerId) -> LogFileList:
    """List a TaskManager's log files, also of one that has ended."""
    gateway = cluster.resource_manager
    found = await cluster.ask(gateway.request_task_manager_log_files(ResourceId(task_manager)))
    return log_list(found)


async def task_manager_log(
    cluster: ClusterParameter, request: Request, task_manager: TaskManagerId
) -> Response:
    """Return a TaskManager's log."""
    resource_id = ResourceId(task_manager)
    return await _file(cluster, request, resource_id, f"{task_manager_file_name(resource_id)}.log")


async def task_manager_stdout(
    cluster: ClusterParameter, request: Request, task_manager: TaskManagerId
) -> Response:
    """Return what user code printed in a TaskManager."""
    resource_id = ResourceId(task_manager)
    return await _file(cluster, request, resource_id, f"{task_manager_file_name(resource_id)}.out")


async def task_manager_log_file(
    cluster: ClusterParameter,
    request: Request,
    task_manager: TaskManagerId,
    file_name: LogFileName,
) -> Response:
    """Return one of a TaskManager's log files."""
    return await _file(cluster, request, ResourceId(task_manager), file_name)


async def task_manager_thread_dump(
    cluster: ClusterParameter, task_manager: TaskManagerId
) -> ThreadDump:
    """Show the stacks of all threads of a TaskManager."""
    gateway = cluster.resource_manager
    found = await cluster.ask(gateway.request_task_manager_thread_dump(ResourceId(task_manager)))
    return thread_dump_of(found)


async def _known_metrics(cluster: ClusterView, found: TaskManagerInfo) -> Mapping[str, float]:
    """Return the metrics of a TaskManager's process; empty if it does not answer, as the rest is shown nevertheless."""
    if found.held_lock is not None:
        return {}
    try:
        return await cluster.task_manager_metrics(found.resource_id)
    except UnknownTaskManagerError:
        raise
    except HeadraceError as error:
        _LOG.info("TaskManager %s is shown without its metrics: %s", found.resource_id, error)
        return {}


async def _file(
    cluster: ClusterView, request: Request, resource_id: ResourceId, name: str
) -> Response:
    gateway = cluster.resource_manager

    def read(offset: int, max_bytes: int) -> Awaitable[LogPiece]:
        return cluster.ask(gateway.read_task_manager_log_file(resource_id, name, offset, max_bytes))

    try:
        return await log_answer(name, read, request.headers.get("range"))
    except LogFileNotFoundError as error:
        text = f"Failed to transfer file from TaskExecutor {resource_id}: {error}"
        raise HandlerError(text) from error


def _fields(found: TaskManagerInfo, tasks: int, network_bytes: int = 0) -> dict[str, Any]:
    """Return the fields of lists and details.

    `network_bytes`: size of its pool, known only for a single TaskManager.
    """
    limit = 0 if found.memory is None else found.memory.limit_bytes
    managed, held = found.managed_memory_bytes, found.held_lock
    return {
        "id": str(found.resource_id),
        "path": found.address,
        "data_port": found.data_port,
        "time_since_last_heartbeat": found.last_heartbeat_ms,
        "slots_number": found.slot_count,
        "free_slots": found.free_slot_count,
        "assigned_tasks": tasks,
        "total_resource": _resource(found.total),
        "free_resource": _resource(found.free),
        "hardware": models.HardwareInfo(
            cpu_cores=found.cpu_cores,
            physical_memory=found.physical_memory_bytes,
            free_memory=found.free_memory_bytes,
            managed_memory=managed,
        ),
        "memory_configuration": _configuration(found.memory_parts, network_bytes, limit),
        "held_interpreter_lock": None
        if held is None
        else models.HeldInterpreterLock(duration=held.held_ms, function=held.function),
        "decommissioned": found.decommissioned or None,
    }


def _configuration(
    parts: MemoryParts | None, network_bytes: int, limit_bytes: int
) -> models.MemoryConfiguration:
    """Return the parts of a TaskManager's memory; network memory is the actual size of its pool, if it is known."""
    if parts is None:
        parts = MemoryParts(0, max(0, limit_bytes - network_bytes), 0, 0, network_bytes, 0, 0)
    return models.MemoryConfiguration(
        framework_heap=parts.framework_heap,
        task_heap=parts.task_heap,
        framework_off_heap=parts.framework_off_heap,
        task_off_heap=parts.task_off_heap,
        network_memory=network_bytes or parts.network,
        managed_memory=parts.managed,
        jvm_metaspace=0,
        jvm_overhead=parts.overhead,
        total_flink_memory=parts.flink_bytes,
        total_process_memory=parts.process_bytes,
    )


def _resource(profile: ResourceProfile) -> models.ResourceInfo:
    return models.ResourceInfo(
        cpu_cores=round(profile.cpu_cores, 6),
        task_heap_memory=profile.task_heap_bytes // _MEGABYTE,
        task_off_heap_memory=profile.task_off_heap_bytes // _MEGABYTE,
        managed_memory=profile.managed_bytes // _MEGABYTE,
        network_memory=profile.network_bytes // _MEGABYTE,
        extended_resources={name: float(amount) for name, amount in profile.external_resources},
    )


def _memory(metrics: Mapping[str, float]) -> models.TaskManagerMetrics:
    def value(row: MetricName) -> int:
        return int(metrics.get(row.name, 0))

    def network(row: MetricName) -> int:
        return int(metrics.get(f"{_NETWORK}.{row.name}", 0))

    return models.TaskManagerMetrics(
        heap_used=value(process_names.HEAP_USED),
        heap_committed=value(process_names.HEAP_COMMITTED),
        heap_max=value(process_names.HEAP_MAX),
        non_heap_used=value(process_names.NON_HEAP_USED),
        non_heap_committed=value(process_names.NON_HEAP_COMMITTED),
        non_heap_max=value(process_names.NON_HEAP_MAX),
        direct_count=0,
        direct_used=value(process_names.DIRECT_USED),
        direct_max=value(process_names.DIRECT_CAPACITY),
        mapped_count=0,
        mapped_used=0,
        mapped_max=0,
        netty_shuffle_memory_segments_available=network(names.AVAILABLE_MEMORY_SEGMENTS),
        netty_shuffle_memory_segments_used=network(names.USED_MEMORY_SEGMENTS),
        netty_shuffle_memory_segments_total=network(names.TOTAL_MEMORY_SEGMENTS),
        netty_shuffle_memory_available=network(names.AVAILABLE_MEMORY),
        netty_shuffle_memory_used=network(names.USED_MEMORY),
        netty_shuffle_memory_total=network(names.TOTAL_MEMORY),
        garbage_collectors=[
            models.GarbageCollectorInfo(
                name="All",
                count=value(process_names.GC_COUNT),
                time=value(process_names.GC_TIME),
            )
        ],
    )

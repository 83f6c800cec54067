"""Settings of the TaskManagers of a Spark application; refuses settings that its executors cannot obey."""

import logging
from collections.abc import Mapping
from math import ceil
from typing import Final

from headrace.cluster.task_executor.external_resources import (
    EXTERNAL_RESOURCES,
    external_resource_amounts,
)
from headrace.cluster.task_executor.memory_limit import MEMORY_LIMIT
from headrace.cluster.task_executor.options import CPU_CORES
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.process.memory_parts import (
    PROCESS_MEMORY,
    PROCESSES_PER_HOST,
    is_memory_total_set,
)
from headrace.core.process.process_memory import container_memory_bytes
from headrace.spark.master import MasterKind
from headrace.spark.workers.resource_driver import KEPT_FREE_COUNT
from headrace.spark.workers.worker_process import worker_memory_bytes

_LOG: Final = logging.getLogger(__name__)
_IMAGES: Final = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")


def refuse_missing_image(conf: Mapping[str, str]) -> None:
    """Raise ConfigurationError if no executor could start on Kubernetes, which Spark would only report in its log."""
    if conf["spark.master"].startswith("k8s://") and not conf.keys() & set(_IMAGES):
        raise ConfigurationError(
            _IMAGES[0],
            "",
            "executors on Kubernetes are containers: set an image with Java, Spark, Python and Headrace",
        )


def refuse_unknown_resources(settings: Settings, conf: Mapping[str, str]) -> None:
    """Raise ConfigurationError if no executor has as much of an external resource as one TaskManager takes."""
    for name, amount in external_resource_amounts(settings):
        key = f"spark.executor.resource.{name}.amount"
        if int(conf.get(key, "0")) < amount:
            raise ConfigurationError(
                EXTERNAL_RESOURCES.key,
                name,
                f"a TaskManager takes {amount} of it, but an executor has {conf.get(key, 'none')}: set {key} to "
                f"{amount} or more, and spark.executor.resource.{name}.discoveryScript to a program that finds them",
            )


def worker_settings(settings: Settings, conf: Mapping[str, str], kind: MasterKind) -> Settings:
    """Return the settings of TaskManagers: `settings`, with the memory of each by these settings, Spark or the host."""
    memory_bytes, own = worker_memory_bytes(conf), settings.get_option(PROCESS_MEMORY)
    if own is not None:
        # Each has its own process here, which should end with a clear error rather than be killed by the kernel.
        limit = settings.get(MEMORY_LIMIT.key, str(own))
        return settings.with_values({MEMORY_LIMIT.key: limit})
    if is_memory_total_set(settings):
        return settings
    if memory_bytes is None:
        return _with_share_of_host(settings, kind)
    return settings.with_values({PROCESS_MEMORY.key: str(memory_bytes)})


def _with_share_of_host(settings: Settings, kind: MasterKind) -> Settings:
    """Divide this host's memory among the TaskManagers that may run on it, if their number is known."""
    count = task_managers_at_most(kind, settings.get_option(CPU_CORES))
    if count <= 1 or settings.is_set(PROCESSES_PER_HOST):
        return settings
    _LOG.info(
        "each of the up to %d TaskManagers on this host may use %d mb of its memory: %s sets another size",
        count,
        container_memory_bytes() // count >> 20,
        PROCESS_MEMORY.key,
    )
    return settings.with_values({PROCESSES_PER_HOST.key: str(count)})


def task_managers_at_most(kind: MasterKind, cpu_cores: float) -> int:
    """Return the number of TaskManagers that Spark has room for on this host; 0 if other hosts run some."""
    if kind.is_single_process:
        return (kind.thread_count or 0) - KEPT_FREE_COUNT
    if not kind.is_local:
        return 0
    per_executor = (kind.cores_per_executor or 0) // max(1, ceil(cpu_cores))
    return (kind.executor_count or 0) * per_executor - KEPT_FREE_COUNT

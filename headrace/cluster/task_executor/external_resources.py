"""Resources of a TaskManager: cores, memory, and devices of its host such as GPUs, each with an address.

Source: Flink ExternalResourceOptions, ExternalResourceUtils, TaskExecutorResourceUtils.
"""

import re
from typing import Final

from headrace.cluster.task_executor.options import (
    CPU_CORES,
    NUMBER_OF_TASK_SLOTS,
    OWN_INTERPRETER,
)
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError
from headrace.core.process.memory_parts import MemoryParts
from headrace.core.resource_profile import ResourceProfile

EXTERNAL_RESOURCES: Final = ConfigOption(
    "external-resources",
    str,
    "",
    "Names of external resources, such as 'gpu', separated by ';': a TaskManager takes as many of each as set by "
    "`external-resource.<name>.amount` (default 1). Functions find their addresses with "
    "get_external_resource_infos of their runtime context. Needs one slot per TaskManager.",
)


def task_manager_resources(
    settings: Settings, parts: MemoryParts, external_resources: tuple[tuple[str, int], ...]
) -> ResourceProfile:
    """Return the resources of a TaskManager for slots: cores, by default one per slot, and its parts of memory."""
    return ResourceProfile(
        cpu_cores=settings.get_option(CPU_CORES)
        or float(settings.get_option(NUMBER_OF_TASK_SLOTS)),
        task_heap_bytes=parts.task_heap,
        task_off_heap_bytes=parts.task_off_heap,
        managed_bytes=parts.managed,
        network_bytes=parts.network,
        external_resources=external_resources,
        python_executable=settings.get_option(OWN_INTERPRETER),
    )


def external_resource_amounts(settings: Settings) -> tuple[tuple[str, int], ...]:
    """Return each external resource of one TaskManager with its amount.

    ConfigurationError if the options are invalid.
    """
    text = settings.get_option(EXTERNAL_RESOURCES)
    names = dict.fromkeys(name for name in re.split(r"[;,\s]+", text) if name)
    slots = settings.get_option(NUMBER_OF_TASK_SLOTS)
    if names and slots > 1:
        raise ConfigurationError(
            NUMBER_OF_TASK_SLOTS.key,
            str(slots),
            f"tasks of different slots would use the same addresses of {EXTERNAL_RESOURCES.key} '{text}': "
            "set it to 1",
        )
    return tuple((name, _amount(settings, name)) for name in names)


def _amount(settings: Settings, name: str) -> int:
    key = f"external-resource.{name}.amount"
    text = settings.get(key, "1")
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigurationError(key, text, "it must be an integer of at least 1")
    return int(text)

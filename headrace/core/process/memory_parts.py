"""Parts into which the memory of a TaskManager is divided.

One number, `taskmanager.memory.process.size`, is divided into parts by `memory_parts`, which is pure. The use of the
parts in a Python process: tasks' objects (task heap), the interpreter with its libraries (framework heap), Arrow's and
sockets' buffers (framework off-heap), native memory of user libraries (task off-heap), batches on their way (network),
RocksDB and columnar state (managed), and stacks and fragmentation (overhead).
Source: Flink ProcessMemoryUtils, TaskExecutorFlinkMemoryUtils, TaskExecutorProcessUtils, TaskManagerOptions.
"""

from typing import Any, Final

import msgspec

from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.core.errors import ConfigurationError
from headrace.core.process.process_memory import container_memory_bytes

PROCESS_MEMORY: Final = ConfigOption[SizeBytes | None](
    "taskmanager.memory.process.size",
    SizeBytes,
    None,
    "Memory that one TaskManager may count on. Unset: on YARN and Kubernetes its share of the executor's memory "
    "overhead, else the container's limit, else the machine's memory.",
)
PROCESSES_PER_HOST: Final = ConfigOption(
    "headrace.taskmanager.processes-per-host",
    int,
    1,
    "Number of TaskManagers among which the memory of a host or container is divided if no size is set. On Spark's "
    "`local[n]` and `local-cluster` it is by default their actual number.",
    least=1,
)
FLINK_MEMORY: Final = ConfigOption[SizeBytes | None](
    "taskmanager.memory.flink.size",
    SizeBytes,
    None,
    "Memory of a TaskManager without the overhead. Unset: the rest of `taskmanager.memory.process.size`.",
)
FRAMEWORK_HEAP: Final = ConfigOption(
    "taskmanager.memory.framework.heap.size",
    SizeBytes,
    SizeBytes(128 << 20),
    "Memory of the interpreter and the libraries that every TaskManager loads.",
)
FRAMEWORK_OFF_HEAP: Final = ConfigOption(
    "taskmanager.memory.framework.off-heap.size",
    SizeBytes,
    SizeBytes(128 << 20),
    "Memory of Arrow and connections in addition to the batches that are counted as network memory.",
)
TASK_HEAP: Final = ConfigOption[SizeBytes | None](
    "taskmanager.memory.task.heap.size",
    SizeBytes,
    None,
    "Memory for objects of tasks and for state in memory. Unset: the rest after the other parts.",
)
TASK_OFF_HEAP: Final = ConfigOption(
    "taskmanager.memory.task.off-heap.size",
    SizeBytes,
    SizeBytes(0),
    "Native memory of libraries of tasks, such as models.",
)
MANAGED_FRACTION: Final = ConfigOption(
    "taskmanager.memory.managed.fraction",
    float,
    0.4,
    "Share of a TaskManager's memory without the overhead that is managed memory, unless its size is set.",
    most=1.0,
)
MANAGED_MEMORY: Final = ConfigOption[SizeBytes | None](
    "taskmanager.memory.managed.size",
    SizeBytes,
    None,
    "Managed memory of a TaskManager: that of RocksDB, if `state.backend.rocksdb.memory.fixed-per-slot` is not set, "
    "and that of columnar states, whose excess is logged. Rows that are sorted, or wait for the end of their key, "
    "are written to files above an eighth of it (16 to 64 mb).",
)
NETWORK_FRACTION: Final = ConfigOption(
    "taskmanager.memory.network.fraction",
    float,
    0.1,
    "Share of a TaskManager's memory without the overhead that batches in transit between tasks may occupy, between "
    "`taskmanager.memory.network.min` and `.max`.",
    most=1.0,
)
NETWORK_MIN: Final = ConfigOption(
    "taskmanager.memory.network.min",
    SizeBytes,
    SizeBytes(64 << 20),
    "Minimum network memory of a TaskManager.",
)
NETWORK_MAX: Final = ConfigOption(
    "taskmanager.memory.network.max",
    SizeBytes,
    SizeBytes(1 << 30),
    "Maximum network memory of a TaskManager.",
)
OVERHEAD_FRACTION: Final = ConfigOption(
    "taskmanager.memory.jvm-overhead.fraction",
    float,
    0.1,
    "Share of a TaskManager's memory that is kept for stacks of threads and for fragmentation, within bounds.",
    most=0.9,
)
OVERHEAD_MIN: Final = ConfigOption(
    "taskmanager.memory.jvm-overhead.min",
    SizeBytes,
    SizeBytes(192 << 20),
    "Minimum overhead of a TaskManager.",
)
OVERHEAD_MAX: Final = ConfigOption(
    "taskmanager.memory.jvm-overhead.max",
    SizeBytes,
    SizeBytes(1 << 30),
    "Maximum overhead of a TaskManager.",
)


PART_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    PROCESS_MEMORY,
    FLINK_MEMORY,
    FRAMEWORK_HEAP,
    FRAMEWORK_OFF_HEAP,
    TASK_HEAP,
    TASK_OFF_HEAP,
    MANAGED_FRACTION,
    MANAGED_MEMORY,
    NETWORK_FRACTION,
    NETWORK_MIN,
    NETWORK_MAX,
    OVERHEAD_FRACTION,
    OVERHEAD_MIN,
    OVERHEAD_MAX,
)
"""All options that `memory_parts` reads."""


class MemoryParts(msgspec.Struct, frozen=True):
    """Parts of one TaskManager's memory, in bytes."""

    framework_heap: int
    task_heap: int
    framework_off_heap: int
    task_off_heap: int
    network: int
    managed: int
    overhead: int
    is_shrunk: bool = False
    """True if parts had to be smaller than their defaults to fit into the process."""

    @property
    def flink_bytes(self) -> int:
        """Return the sum of all parts but the overhead."""
        return self.process_bytes - self.overhead

    @property
    def process_bytes(self) -> int:
        """Return the sum of all parts."""
        heap = self.framework_heap + self.task_heap
        off_heap = self.framework_off_heap + self.task_off_heap
        return heap + off_heap + self.network + self.managed + self.overhead

    def __str__(self) -> str:
        return (
            f"{self.process_bytes >> 20} mb: tasks {self.task_heap >> 20} mb, their libraries "
            f"{self.task_off_heap >> 20} mb, framework {self.framework_heap >> 20} + "
            f"{self.framework_off_heap >> 20} mb, network {self.network >> 20} mb, managed {self.managed >> 20} mb, "
            f"overhead {self.overhead >> 20} mb"
        )


def is_memory_total_set(settings: Settings) -> bool:
    """Return whether the settings set the total memory of a TaskManager."""
    if settings.is_set(PROCESS_MEMORY) or settings.is_set(FLINK_MEMORY):
        return True
    return settings.is_set(TASK_HEAP) and settings.is_set(MANAGED_MEMORY)


def is_memory_set(settings: Settings) -> bool:
    """Return whether the settings set the total or the managed memory of a TaskManager."""
    return is_memory_total_set(settings) or settings.is_set(MANAGED_MEMORY)


def memory_parts(settings: Settings, available_bytes: int) -> MemoryParts:
    """Divide a TaskManager's memory; `available_bytes` is its total if the settings set none.

    Parts that the settings do not name shrink in the same proportion if the process is too small for their defaults.
    ConfigurationError if the named parts do not fit.
    """
    process = settings.get_option(PROCESS_MEMORY)
    flink = settings.get_option(FLINK_MEMORY)
    heap, managed = settings.get_option(TASK_HEAP), settings.get_option(MANAGED_MEMORY)
    if flink is not None:
        overhead = _overhead_above(settings, flink) if process is None else process - flink
        if overhead < 0:
            raise ConfigurationError(
                FLINK_MEMORY.key,
                f"{flink} bytes",
                f"it is more than {PROCESS_MEMORY.key}, {process} bytes",
            )
        return _divide(settings, flink + overhead, overhead)
    if process is None and heap is not None and managed is not None:
        named = heap + managed + settings.get_option(TASK_OFF_HEAP)
        named += settings.get_option(FRAMEWORK_HEAP) + settings.get_option(FRAMEWORK_OFF_HEAP)
        share = min(settings.get_option(NETWORK_FRACTION), 0.99)
        total = named + _network_within(settings, int(named * share / (1 - share)))
        overhead = _overhead_above(settings, total)
        return _divide(settings, total + overhead, overhead)
    total = available_bytes if process is None else process
    wanted = int(total * settings.get_option(OVERHEAD_FRACTION))
    overhead = max(
        settings.get_option(OVERHEAD_MIN), min(wanted, settings.get_option(OVERHEAD_MAX))
    )
    return _divide(settings, total, overhead)


def _divide(settings: Settings, total: int, overhead: int) -> MemoryParts:
    flink = max(0, total - overhead)
    managed = settings.get_option(MANAGED_MEMORY)
    if managed is None:
        managed = int(flink * settings.get_option(MANAGED_FRACTION))
    task_off_heap = settings.get_option(TASK_OFF_HEAP)
    network = _network_within(settings, int(flink * settings.get_option(NETWORK_FRACTION)))
    parts = {
        "framework_heap": int(settings.get_option(FRAMEWORK_HEAP)),
        "framework_off_heap": int(settings.get_option(FRAMEWORK_OFF_HEAP)),
        "managed": int(managed),
        "network": network,
        "overhead": overhead,
    }
    task_heap = settings.get_option(TASK_HEAP)
    rest = total - sum(parts.values()) - task_off_heap - (task_heap or 0)
    if rest < 0:
        return _shrunk(settings, parts, total, task_heap or 0, task_off_heap)
    if task_heap is None:
        return _made(parts, rest, task_off_heap)
    # As in Flink: the unset rest is network memory, within its bounds; the overhead gets the remainder.
    network = _network_within(settings, network + rest)
    rest -= network - parts["network"]
    parts |= {"network": network, "overhead": overhead + rest}
    return _made(parts, task_heap, task_off_heap)


def _shrunk(
    settings: Settings, parts: dict[str, int], total: int, task_heap: int, task_off_heap: int
) -> MemoryParts:
    """Return parts that fit into `total`: the named parts keep their size."""
    options: dict[str, tuple[ConfigOption[Any], ...]] = {
        "framework_heap": (FRAMEWORK_HEAP,),
        "framework_off_heap": (FRAMEWORK_OFF_HEAP,),
        "managed": (MANAGED_MEMORY,),
        "network": (NETWORK_MIN,),
        "overhead": (OVERHEAD_MIN, FLINK_MEMORY),
    }
    named = {name for name, keys in options.items() if any(settings.is_set(key) for key in keys)}
    fixed = task_heap + task_off_heap + sum(parts[name] for name in named)
    flexible = sum(parts.values()) + task_heap + task_off_heap - fixed
    if fixed > total or (fixed == total and flexible):
        raise ConfigurationError(
            PROCESS_MEMORY.key,
            f"{total >> 20} mb",
            f"the parts that are set already take {fixed >> 20} mb of it: raise it, or lower "
            "taskmanager.memory.*.size",
        )
    factor = (total - fixed) / flexible
    fitted = {n: size if n in named else int(size * factor) for n, size in parts.items()}
    rest = total - task_heap - task_off_heap - sum(fitted.values())
    return _made(fitted, task_heap + rest, task_off_heap, is_shrunk=True)


def _made(
    parts: dict[str, int], task_heap: int, task_off_heap: int, *, is_shrunk: bool = False
) -> MemoryParts:
    # Plain numbers, which travel in messages; those of options are not.
    return MemoryParts(
        framework_heap=int(parts["framework_heap"]),
        task_heap=int(task_heap),
        framework_off_heap=int(parts["framework_off_heap"]),
        task_off_heap=int(task_off_heap),
        network=int(parts["network"]),
        managed=int(parts["managed"]),
        overhead=int(parts["overhead"]),
        is_shrunk=is_shrunk,
    )


def _network_within(settings: Settings, wanted: int) -> int:
    lower, upper = settings.get_option(NETWORK_MIN), settings.get_option(NETWORK_MAX)
    return max(lower, min(wanted, max(lower, upper)))


def _overhead_above(settings: Settings, flink: int) -> int:
    """Return the overhead whose share of the whole process is right if the rest is `flink`."""
    fraction = settings.get_option(OVERHEAD_FRACTION)
    wanted = int(flink * fraction / (1 - fraction))
    return max(settings.get_option(OVERHEAD_MIN), min(wanted, settings.get_option(OVERHEAD_MAX)))


def process_memory_bytes(settings: Settings) -> int:
    """Return the bytes of memory that this process may use: as configured, else its container's or the machine's."""
    return own_memory_parts(settings).process_bytes


def own_memory_parts(settings: Settings) -> MemoryParts:
    """Divide the memory of this process as `memory_parts` does."""
    if is_memory_total_set(settings):
        return memory_parts(settings, 0)
    return memory_parts(
        settings, container_memory_bytes() // settings.get_option(PROCESSES_PER_HOST)
    )

"""Shapes of TaskManagers: slots, resources, memory."""

from pydantic import Field

from headrace.rest.models.base_models import CamelModel, Milliseconds, SnakeModel, left_out


class ResourceInfo(CamelModel):
    """Resources of slots; memory in megabytes."""

    cpu_cores: float
    task_heap_memory: int
    task_off_heap_memory: int
    managed_memory: int
    network_memory: int
    extended_resources: dict[str, float] = Field(default_factory=dict)


class HardwareInfo(CamelModel):
    """Hardware of the machine; memory in bytes."""

    cpu_cores: float
    physical_memory: int
    free_memory: int
    managed_memory: int


class MemoryConfiguration(CamelModel):
    """Parts of the process's memory in bytes."""

    framework_heap: int
    task_heap: int
    framework_off_heap: int
    task_off_heap: int
    network_memory: int
    managed_memory: int
    jvm_metaspace: int
    jvm_overhead: int
    total_flink_memory: int
    total_process_memory: int


class HeldInterpreterLock(CamelModel):
    """The C code of `function` has held the interpreter lock of a TaskManager for `duration` milliseconds so far.

    `function`: name, file and line in the user's code; empty if no stack shows it.
    """

    duration: int
    function: str


class TaskManagerOverviewInfo(CamelModel):
    """One TaskManager. `time_since_last_heartbeat` is a point in time, despite its name.

    Headrace's own fields: `held_interpreter_lock`, why a live TaskManager does not answer; `decommissioned`,
    why the host will remove it soon, so that its jobs are leaving it.
    """

    id: str
    path: str
    data_port: int
    jmx_port: int = -1
    time_since_last_heartbeat: Milliseconds
    slots_number: int
    free_slots: int
    assigned_tasks: int
    total_resource: ResourceInfo
    free_resource: ResourceInfo
    hardware: HardwareInfo
    memory_configuration: MemoryConfiguration
    held_interpreter_lock: HeldInterpreterLock | None = left_out()
    decommissioned: str | None = left_out()


class TaskManagerList(SnakeModel):
    """All registered TaskManagers."""

    taskmanagers: list[TaskManagerOverviewInfo]


class AllocatedSlot(CamelModel):
    """A slot that is allocated to a job."""

    job_id: str
    resource: ResourceInfo
    assigned_tasks: int


class GarbageCollectorInfo(SnakeModel):
    """Collections of the interpreter; `time` in milliseconds."""

    name: str
    count: int
    time: int


class TaskManagerMetrics(CamelModel):
    """Memory of the process as Flink's dashboard divides it; bytes, and segments of the network pool."""

    heap_used: int
    heap_committed: int
    heap_max: int
    non_heap_used: int
    non_heap_committed: int
    non_heap_max: int
    direct_count: int
    direct_used: int
    direct_max: int
    mapped_count: int
    mapped_used: int
    mapped_max: int
    netty_shuffle_memory_segments_available: int
    netty_shuffle_memory_segments_used: int
    netty_shuffle_memory_segments_total: int
    netty_shuffle_memory_available: int
    netty_shuffle_memory_used: int
    netty_shuffle_memory_total: int
    garbage_collectors: list[GarbageCollectorInfo]


class TaskManagerDetailsInfo(TaskManagerOverviewInfo):
    """One TaskManager with its slots and its memory."""

    allocated_slots: list[AllocatedSlot]
    metrics: TaskManagerMetrics

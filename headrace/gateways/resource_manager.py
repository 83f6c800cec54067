"""ResourceManagerGateway: registrations of TaskManagers and JobMasters, requirements, slots. Fenced."""

from typing import Protocol

import msgspec

from headrace.core.ids import (
    AllocationId,
    ClusterDataSetId,
    InstanceId,
    JobId,
    JobMasterId,
    JobVertexId,
    ResourceId,
    ResourceManagerId,
    SlotId,
)
from headrace.core.process.flame_graph import FlameGraphNode
from headrace.core.process.log_files import LogFile, LogPiece
from headrace.core.process.memory_parts import MemoryParts
from headrace.core.process.process_profiler import ProfilingInfo, ProfilingMode
from headrace.core.process.stack_sampler import StackSamples
from headrace.core.process.thread_dump import ThreadInfo
from headrace.core.resource_profile import UNSPECIFIED, ResourceProfile
from headrace.core.shuffle_descriptors import ShuffleDescriptor, TaskManagerLocation
from headrace.gateways.lock_watcher import HeldLock
from headrace.gateways.messages import (
    Acknowledge,
    ClusterPartitionReport,
    DataSetInfo,
    MemoryUsage,
    RegistrationRefused,
    RegistrationRejected,
    SlotReport,
)


class HardwareDescription(msgspec.Struct, frozen=True):
    """Resources of a TaskManager: usable cores, memory of its machine, and memory reserved for operators.

    `memory_parts`: the division of its own memory.

    Source: Flink HardwareDescription.
    """

    cpu_cores: float = 0.0
    physical_memory_bytes: int = 0
    managed_memory_bytes: int = 0
    memory_parts: MemoryParts | None = None


class TaskExecutorRegistration(msgspec.Struct, frozen=True):
    """Registration of a TaskManager.

    `versions` maps `python`, `headrace`, `pyarrow`, `cloudpickle` … to version texts; a difference from the driver's
    leads to a rejection. `pid` and `host` are for people and for the failure matrix. `log_folder`: the folder of its
    log on its host, empty if it writes none.
    """

    address: str
    location: TaskManagerLocation
    slot_count: int
    slot_profile: ResourceProfile
    versions: dict[str, str]
    pid: int
    attempt_number: int = 0
    hardware: HardwareDescription = HardwareDescription()
    log_folder: str = ""


class TaskExecutorRegistered(msgspec.Struct, frozen=True, tag="registered"):
    """The ResourceManager accepted; `instance_id` names this registration."""

    instance_id: InstanceId
    resource_manager_resource_id: ResourceId


class JobMasterRegistered(msgspec.Struct, frozen=True, tag="registered"):
    """The ResourceManager accepted the JobMaster."""

    resource_manager_id: ResourceManagerId
    resource_manager_resource_id: ResourceId


TaskExecutorRegistrationResponse = (
    TaskExecutorRegistered | RegistrationRefused | RegistrationRejected
)
JobMasterRegistrationResponse = JobMasterRegistered | RegistrationRefused | RegistrationRejected


class ResourceRequirement(msgspec.Struct, frozen=True):
    """`slot_count` slots of at least `profile`."""

    profile: ResourceProfile
    slot_count: int


class ResourceRequirements(msgspec.Struct, frozen=True):
    """Everything that a job needs: always the whole set, never a change of it."""

    job_id: JobId
    job_master_address: str
    requirements: tuple[ResourceRequirement, ...]


class SlotInfo(msgspec.Struct, frozen=True):
    """One slot of a TaskManager; ids are None if it is free."""

    slot_id: SlotId
    allocation_id: AllocationId | None = None
    job_id: JobId | None = None
    profile: ResourceProfile = UNSPECIFIED


class TaskManagerInfo(msgspec.Struct, frozen=True):
    """One registered TaskManager, for people.

    `last_heartbeat_ms` is wall-clock time; `data_port` that of the data plane, on `host`. `free_memory_bytes` is the
    rest of its budget, `memory`, or 0 if it was not measured. `total` are its resources for slots, and `free` those
    that no job uses. `held_lock`: the report of its watcher, if it has one, while it does not answer
    (`headrace.heartbeat.held-lock-timeout`). `log_folder`: a folder on its host. `decommissioned`: the reason why the
    host removes it soon.
    """

    resource_id: ResourceId
    address: str
    location: TaskManagerLocation
    slot_count: int
    free_slot_count: int
    pid: int
    memory: MemoryUsage | None = None
    last_heartbeat_ms: int = 0
    data_port: int = 0
    host: str = ""
    cpu_cores: float = 0.0
    physical_memory_bytes: int = 0
    free_memory_bytes: int = 0
    managed_memory_bytes: int = 0
    slots: tuple[SlotInfo, ...] = ()
    total: ResourceProfile = UNSPECIFIED
    free: ResourceProfile = UNSPECIFIED
    memory_parts: MemoryParts | None = None
    held_lock: HeldLock | None = None
    log_folder: str = ""
    decommissioned: str = ""


class ResourceOverview(msgspec.Struct, frozen=True):
    """The ResourceManager's view; `explanation` says which slots are missing and why, or is empty.

    `start_failures_per_second`: workers that failed before they registered, in the last minute.
    """

    task_managers: tuple[TaskManagerInfo, ...]
    pending_worker_count: int
    explanation: str = ""
    start_failures_per_second: float = 0.0


class ResourceManagerLeader(msgspec.Struct, frozen=True):
    """The leading ResourceManager: its address, and the session for messages to it."""

    address: str
    resource_manager_id: ResourceManagerId


class LeaderRetrievalGateway(Protocol):
    """The endpoint of a JobManager that returns the leader. It is the same for all leaders, and has no session."""

    async def request_resource_manager(
        self, known: ResourceManagerId | None, wait_max_ms: int
    ) -> ResourceManagerLeader | None:
        """Return the leader once it differs from `known`; after `wait_max_ms`, the current one, or None."""
        ...


class ResourceManagerGateway(Protocol):
    """The endpoint that owns the cluster's slots."""

    async def register_task_executor(
        self, registration: TaskExecutorRegistration
    ) -> TaskExecutorRegistrationResponse:
        """Register a TaskManager; a known one is replaced."""
        ...

    async def send_slot_report(
        self, resource_id: ResourceId, instance_id: InstanceId, report: SlotReport
    ) -> Acknowledge:
        """Receive the first slot report after a registration."""
        ...

    async def register_job_master(
        self, job_master_id: JobMasterId, resource_id: ResourceId, address: str, job_id: JobId
    ) -> JobMasterRegistrationResponse:
        """Register the JobMaster that leads `job_id`."""
        ...

    async def declare_required_resources(
        self, job_master_id: JobMasterId, requirements: ResourceRequirements
    ) -> Acknowledge:
        """Replace the job's requirements."""
        ...

    def notify_slot_available(
        self, instance_id: InstanceId, slot_id: SlotId, allocation_id: AllocationId
    ) -> None:
        """Report that a TaskManager has freed a slot."""
        ...

    def decommission_task_manager(self, resource_id: ResourceId, cause: str) -> None:
        """Report that a TaskManager will end: its jobs leave it, another one replaces it, and then it is stopped."""
        ...

    def disconnect_task_manager(self, resource_id: ResourceId, cause: str) -> None:
        """Disconnect a TaskManager."""
        ...

    def disconnect_job_master(self, job_id: JobId, job_master_id: JobMasterId, cause: str) -> None:
        """Disconnect a finished JobMaster, and drop its requirements. No effect for one that does not lead the job."""
        ...

    async def request_resource_overview(self) -> ResourceOverview:
        """Return registered, pending and missing slots."""
        ...

    async def request_task_manager_details(self, resource_id: ResourceId) -> TaskManagerInfo:
        """Return the information on one registered TaskManager. UnknownTaskManagerError."""
        ...

    async def request_task_manager_log_files(self, resource_id: ResourceId) -> tuple[LogFile, ...]:
        """Return the log files of a TaskManager, newest first. UnknownTaskManagerError.

        Those of a TaskManager that has ended, or does not answer, are read from the driver's log folder.
        """
        ...

    async def read_task_manager_log_file(
        self, resource_id: ResourceId, name: str, offset: int, max_bytes: int
    ) -> LogPiece:
        """Return part of a log file, as TaskExecutorGateway.read_log_file does. Also UnknownTaskManagerError.

        Those of a TaskManager that has ended, or does not answer, are read from the driver's log folder.
        """
        ...

    async def request_task_manager_thread_dump(
        self, resource_id: ResourceId
    ) -> tuple[ThreadInfo, ...]:
        """Return the call stack of every thread of a TaskManager. UnknownTaskManagerError if it is not registered."""
        ...

    async def request_task_manager_profiling(
        self, resource_id: ResourceId, mode: ProfilingMode, duration_s: int
    ) -> ProfilingInfo:
        """Start a profile of a TaskManager, which ends by itself. UnknownTaskManagerError, ProfilerBusyError."""
        ...

    async def request_task_manager_profiling_list(
        self, resource_id: ResourceId
    ) -> tuple[ProfilingInfo, ...]:
        """Return the newest profiles of a TaskManager, the newest first. UnknownTaskManagerError."""
        ...

    async def request_task_manager_profile(
        self, resource_id: ResourceId, file_name: str
    ) -> FlameGraphNode:
        """Return a profile that has FINISHED. UnknownTaskManagerError, ProfileNotFoundError."""
        ...

    async def request_vertex_stack_samples(
        self,
        job_id: JobId,
        vertex_id: JobVertexId,
        subtask_index: int | None,
        sample_count: int,
        delay_ms: int,
        depth_max: int,
    ) -> StackSamples:
        """Return samples of all TaskManagers with slots of the job, as TaskExecutorGateway.request_stack_samples does.

        A TaskManager that does not answer is left out. Callers wait longer than the sampling takes.
        """
        ...

    async def request_task_manager_metrics(self, resource_id: ResourceId) -> dict[str, float]:
        """Return the metrics of the TaskManager's process, see TaskExecutorGateway. UnknownTaskManagerError."""
        ...

    async def report_cluster_partitions(
        self, resource_id: ResourceId, instance_id: InstanceId, report: ClusterPartitionReport
    ) -> Acknowledge:
        """Report a TaskManager's new results that outlive their job. StaleLeaderError for an old registration."""
        ...

    async def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return the data sets that jobs left in the cluster, as far as TaskManagers have reported them."""
        ...

    async def request_cluster_partitions(
        self, data_set: ClusterDataSetId
    ) -> tuple[ShuffleDescriptor, ...]:
        """Return the descriptors of a data set's partitions, by number; none if it is unknown or incomplete."""
        ...

    async def release_cluster_partitions(self, data_set: ClusterDataSetId) -> Acknowledge:
        """Delete a data set; it is no longer listed, even if its job has not left it yet."""
        ...

"""ResourceManagerGateway: registrations of TaskManagers and JobMasters, requirements, slots. Fenced."""

from typing import Protocol

import msgspec

from headrace.core.ids import (
    AllocationId,
    ClusterDataSetId,
    InstanceId,
    JobId,
    JobMasterId,
    ResourceId,
    ResourceManagerId,
    SlotId,
)
from headrace.core.shuffle_descriptors import ShuffleDescriptor, TaskManagerLocation
from headrace.gateways.messages import (
    Acknowledge,
    ClusterPartitionReport,
    DataSetInfo,
    MemoryUsage,
    RegistrationRefused,
    RegistrationRejected,
    ResourceProfile,
    SlotReport,
)


class TaskExecutorRegistration(msgspec.Struct, frozen=True):
    """A TaskManager introduces itself.

    `versions` maps `python`, `headrace`, `pyarrow`, `cloudpickle` … to version texts; a difference to the driver's is
    a rejection. `pid` and `host` are for people and for the failure matrix.
    """

    address: str
    location: TaskManagerLocation
    slot_count: int
    slot_profile: ResourceProfile
    versions: dict[str, str]
    pid: int
    attempt_number: int = 0


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
    """Everything a job needs: always the whole set, never a change of it."""

    job_id: JobId
    job_master_address: str
    requirements: tuple[ResourceRequirement, ...]


class TaskManagerInfo(msgspec.Struct, frozen=True):
    """One registered TaskManager, for people."""

    resource_id: ResourceId
    address: str
    location: TaskManagerLocation
    slot_count: int
    free_slot_count: int
    pid: int
    memory: MemoryUsage | None = None


class ResourceOverview(msgspec.Struct, frozen=True):
    """The ResourceManager's view; `explanation` says which slots are missing and why, or is empty."""

    task_managers: tuple[TaskManagerInfo, ...]
    pending_worker_count: int
    explanation: str = ""


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
        """First slot report after a registration."""
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
        """A slot was freed by its TaskManager."""
        ...

    def disconnect_task_manager(self, resource_id: ResourceId, cause: str) -> None:
        """A TaskManager says goodbye."""
        ...

    def disconnect_job_master(self, job_id: JobId, job_master_id: JobMasterId, cause: str) -> None:
        """A JobMaster is done; its requirements go. Without effect for one that does not lead the job."""
        ...

    async def request_resource_overview(self) -> ResourceOverview:
        """Return registered, pending and missing slots."""
        ...

    async def request_task_manager_metrics(self, resource_id: ResourceId) -> dict[str, float]:
        """Return what the TaskManager says of its process, see TaskExecutorGateway. UnknownTaskManagerError."""
        ...

    async def report_cluster_partitions(
        self, resource_id: ResourceId, instance_id: InstanceId, report: ClusterPartitionReport
    ) -> Acknowledge:
        """A TaskManager has new results that outlive their job. StaleLeaderError for a registration that is over."""
        ...

    async def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return the data sets that jobs left to the cluster, as far as TaskManagers have told."""
        ...

    async def request_cluster_partitions(
        self, data_set: ClusterDataSetId
    ) -> tuple[ShuffleDescriptor, ...]:
        """Return the descriptors of a data set's partitions, by number; none if it is unknown or incomplete."""
        ...

    async def release_cluster_partitions(self, data_set: ClusterDataSetId) -> Acknowledge:
        """Have a data set deleted; from now on nobody is told of it, nor where its job has not left it yet."""
        ...

"""Messages that more than one gateway carries.

Some concern results that outlive their job, and pass between TaskManagers, JobMasters and the ResourceManager. By
others clients ask for the state of a running job, from the Dispatcher down to a TaskManager. The WorkerOutputGateway
carries lines that user code prints in TaskManagers to the user; it is not fenced.

Source: Flink ClusterPartitionReport, DataSetMetaInfo.
"""

import msgspec

from headrace.checkpoint.state_queries import StateQuery, StateReadResult
from headrace.core.ids import (
    AllocationId,
    ClusterDataSetId,
    ExecutionAttemptId,
    JobId,
    OperatorId,
    ResourceId,
    ResultPartitionId,
    SlotId,
)
from headrace.core.lifecycle import ExecutionState
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import ShuffleDescriptor


class Acknowledge(msgspec.Struct, frozen=True):
    """The request was taken."""


class ErrorInfo(msgspec.Struct, frozen=True):
    """An error on its way to the client, as text; nothing is unpickled.

    `text` begins with the one line that names cause, operator and the user's file and line. `is_consequence` says
    that something else must have failed before. `lost_partition`: the result that could not be read, as text;
    `lost_data_set`: what an earlier job left and could not be read. `fault`: class and place of an error that a restart
    does not mend once it has come again; empty for all others. `is_planned`: no failure, the host takes resources away.
    """

    class_name: str
    text: str
    domain: str
    recoverable: bool
    remote_traceback: str = ""
    is_consequence: bool = False
    lost_partition: str = ""
    lost_data_set: ClusterDataSetId | None = None
    fault: str = ""
    is_planned: bool = False


class SlotStatus(msgspec.Struct, frozen=True):
    """One slot of a TaskManager as it stands.

    `is_cut`: it was cut for a request from what the TaskManager has altogether, and goes when it is freed. The others
    are always there, and together have all that there is; one of them is free while so much is left.
    """

    slot_id: SlotId
    profile: ResourceProfile
    job_id: JobId | None = None
    allocation_id: AllocationId | None = None
    is_cut: bool = False


class MemoryUsage(msgspec.Struct, frozen=True):
    """Memory of one process: its present use, and its budget."""

    resident_bytes: int
    limit_bytes: int


class SlotReport(msgspec.Struct, frozen=True):
    """Every slot of one TaskManager."""

    slots: tuple[SlotStatus, ...]


class SlotOffer(msgspec.Struct, frozen=True):
    """A slot that a TaskManager offers to a JobMaster."""

    allocation_id: AllocationId
    slot_index: int
    profile: ResourceProfile


class TaskMetrics(msgspec.Struct, frozen=True):
    """Metrics of one subtask under Flink's names, plus those of its operators (`<operator>.<metric>`).

    `counters`: the names of counters that functions of the user's made, which are the job's accumulators.
    """

    attempt_id: ExecutionAttemptId
    values: dict[str, float]
    counters: tuple[str, ...] = ()


class ExecutionReport(msgspec.Struct, frozen=True):
    """A task's new state, reported by its TaskExecutor."""

    attempt_id: ExecutionAttemptId
    state: ExecutionState
    error: ErrorInfo | None = None
    metrics: TaskMetrics | None = None


class RegistrationRefused(msgspec.Struct, frozen=True, tag="refused"):
    """Not now: the same registration may succeed later."""

    reason: str


class RegistrationRejected(msgspec.Struct, frozen=True, tag="rejected"):
    """Never: the registering side must give up."""

    reason: str


class AllocatedSlotReport(msgspec.Struct, frozen=True):
    """Slots that a JobMaster believes it has on one TaskManager (heartbeat payload)."""

    job_id: JobId
    allocation_ids: tuple[AllocationId, ...]


class ExecutionDeploymentReport(msgspec.Struct, frozen=True):
    """Attempts that run on a TaskManager for one job (heartbeat payload), and their metrics.

    `lock_watcher_address` is the endpoint of the process that watches its interpreter lock, or ''.
    """

    resource_id: ResourceId
    attempt_ids: tuple[ExecutionAttemptId, ...]
    metrics: tuple[TaskMetrics, ...] = ()
    lock_watcher_address: str = ""


class ClusterPartition(msgspec.Struct, frozen=True):
    """One partition of a data set that belongs to the cluster, of `partition_count` altogether."""

    shuffle: ShuffleDescriptor
    partition_count: int

    @property
    def partition_id(self) -> ResultPartitionId:
        """Return the partition's id."""
        return self.shuffle.partition_id

    @property
    def data_set(self) -> ClusterDataSetId:
        """Return the id of the data set that the partition belongs to."""
        key = self.shuffle.partition_id
        return ClusterDataSetId(key.producer.job_id, key.data_set_id)


class ClusterPartitionReport(msgspec.Struct, frozen=True):
    """All partitions of the cluster on one TaskManager, now.

    `change_number` grows with every change there: a report that comes late can be told from what happened since.
    """

    change_number: int = 0
    partitions: tuple[ClusterPartition, ...] = ()


class DataSetInfo(msgspec.Struct, frozen=True):
    """A data set of the cluster; complete where all its partitions are there."""

    data_set: ClusterDataSetId
    partition_count: int
    stored_count: int

    @property
    def is_complete(self) -> bool:
        """Return whether it can be read."""
        return self.stored_count == self.partition_count


class OperatorDescription(msgspec.Struct, frozen=True):
    """One operator of a running job. `uid` is empty where the program gave none."""

    operator_id: OperatorId
    uid: str
    name: str
    vertex_name: str
    parallelism: int
    max_parallelism: int

    @property
    def title(self) -> str:
        """Return the name by which users ask for the operator: its uid, or else its name."""
        return self.uid or self.name


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """The newest complete checkpoint of a running job, or the snapshot that it started from while it has none.

    `uri`: its folder; empty where it lies in the driver's memory. `key_file`: of the key that its metadata are written
    with (empty: that of the user's home).
    """

    checkpoint_id: int
    uri: str
    timestamp_ms: int
    key_file: str


class StateReadRequest(msgspec.Struct, frozen=True):
    """Client → JobMaster: ask one subtask. `operator`: its uid, else its id, else its name."""

    operator: str
    subtask_index: int
    query: StateQuery


class SubtaskState(msgspec.Struct, frozen=True):
    """An answer, and which attempt on which TaskManager gave it."""

    attempt_number: int
    resource_id: str
    result: StateReadResult

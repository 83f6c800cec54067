"""Messages that more than one gateway uses.

Some are about results that outlive their job, and are exchanged by TaskManagers, JobMasters and the ResourceManager.
Others request the state of a running job, from the Dispatcher down to a TaskManager. The WorkerOutputGateway sends
lines that user code prints in TaskManagers to the user; it is not fenced.

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
    """The request was accepted."""


class ErrorInfo(msgspec.Struct, frozen=True):
    """An error for the client, as text; nothing is unpickled.

    `text` begins with the line that names cause, operator and the user's file and line. `is_consequence`: another
    failure must have come before. `lost_partition`: the unreadable result, as text; `lost_data_set`: the unreadable
    data set of an earlier job. `fault`: class and place of an error that a restart does not fix once it has repeated;
    empty for all others. `is_planned`: not a failure, but the host removes resources.
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
    """The current state of one slot of a TaskManager.

    `is_cut`: the slot was cut for a request from the TaskManager's total resources, and disappears when it is freed.
    The other slots always exist, and together have all the resources; such a slot is free while enough is left for it.
    """

    slot_id: SlotId
    profile: ResourceProfile
    job_id: JobId | None = None
    allocation_id: AllocationId | None = None
    is_cut: bool = False


class MemoryUsage(msgspec.Struct, frozen=True):
    """Memory of one process: its current use, and its budget."""

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

    `counters`: the names of counters of user functions, which are the job's accumulators.
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
    """Refusal for now: the same registration may succeed later."""

    reason: str


class RegistrationRejected(msgspec.Struct, frozen=True, tag="rejected"):
    """Final rejection: the registering side must give up."""

    reason: str


class AllocatedSlotReport(msgspec.Struct, frozen=True):
    """Slots that a JobMaster believes to have on one TaskManager (heartbeat payload)."""

    job_id: JobId
    allocation_ids: tuple[AllocationId, ...]


class ExecutionDeploymentReport(msgspec.Struct, frozen=True):
    """Attempts that run on a TaskManager for one job (heartbeat payload), and their metrics.

    `lock_watcher_address` is the endpoint of the process that watches the TaskManager's interpreter lock, or ''.
    """

    resource_id: ResourceId
    attempt_ids: tuple[ExecutionAttemptId, ...]
    metrics: tuple[TaskMetrics, ...] = ()
    lock_watcher_address: str = ""


class ClusterPartition(msgspec.Struct, frozen=True):
    """One partition of a data set that belongs to the cluster and has `partition_count` partitions."""

    shuffle: ShuffleDescriptor
    partition_count: int

    @property
    def partition_id(self) -> ResultPartitionId:
        """Return the partition's id."""
        return self.shuffle.partition_id

    @property
    def data_set(self) -> ClusterDataSetId:
        """Return the id of the partition's data set."""
        key = self.shuffle.partition_id
        return ClusterDataSetId(key.producer.job_id, key.data_set_id)


class ClusterPartitionReport(msgspec.Struct, frozen=True):
    """All partitions of the cluster that are now on one TaskManager.

    `change_number` grows with every change there, so that late reports can be recognised.
    """

    change_number: int = 0
    partitions: tuple[ClusterPartition, ...] = ()


class DataSetInfo(msgspec.Struct, frozen=True):
    """A data set of the cluster, which is complete if all its partitions exist."""

    data_set: ClusterDataSetId
    partition_count: int
    stored_count: int

    @property
    def is_complete(self) -> bool:
        """Return whether the data set can be read."""
        return self.stored_count == self.partition_count


class OperatorDescription(msgspec.Struct, frozen=True):
    """One operator of a running job. `uid` is empty if the program gave none."""

    operator_id: OperatorId
    uid: str
    name: str
    vertex_name: str
    parallelism: int
    max_parallelism: int

    @property
    def title(self) -> str:
        """Return the name that users use for the operator: its uid, or else its name."""
        return self.uid or self.name


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """The newest complete checkpoint of a running job, or the snapshot that it started from while it has none.

    `uri`: its folder; empty if it is in the driver's memory. `key_file`: file of the key of its metadata (empty: that
    in the user's home).
    """

    checkpoint_id: int
    uri: str
    timestamp_ms: int
    key_file: str


class StateReadRequest(msgspec.Struct, frozen=True):
    """Client → JobMaster: read the state of one subtask. `operator`: its uid, else its id, else its name."""

    operator: str
    subtask_index: int
    query: StateQuery


class SubtaskState(msgspec.Struct, frozen=True):
    """An answer, and the attempt and TaskManager that gave it."""

    attempt_number: int
    resource_id: str
    result: StateReadResult

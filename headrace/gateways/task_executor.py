"""TaskExecutorGateway: calls that a TaskManager answers. Not fenced: callers pass their leader session.

A TaskManager serves several leaders. StaleLeaderError is the answer to a session that does not lead here any more.
"""

from typing import Protocol

import msgspec

from headrace.checkpoint.handles import CheckpointProgress, SubtaskRestore
from headrace.checkpoint.state_queries import StateQuery, StateReadResult
from headrace.core.barriers import CheckpointOptions
from headrace.core.ids import (
    AllocationId,
    ClusterDataSetId,
    ExecutionAttemptId,
    JobId,
    JobMasterId,
    JobVertexId,
    OperatorId,
    ResourceId,
    ResourceManagerId,
    ResultPartitionId,
    SlotId,
)
from headrace.core.process.flame_graph import FlameGraphNode
from headrace.core.process.log_files import LogFile, LogPiece
from headrace.core.process.process_profiler import ProfilingInfo, ProfilingMode
from headrace.core.process.stack_sampler import StackSamples
from headrace.core.process.thread_dump import ThreadInfo
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import (
    InputGateDescriptor,
    ResultPartitionDescriptor,
)
from headrace.gateways.messages import (
    Acknowledge,
    AllocatedSlotReport,
    ClusterPartition,
    ClusterPartitionReport,
    ErrorInfo,
    ExecutionDeploymentReport,
    MemoryUsage,
    SlotReport,
    TaskMetrics,
)
from headrace.graph.job_graph import JobArtifact, JobEdge, JobVertex


class ResultPartitionDeployment(msgspec.Struct, frozen=True):
    """A partition to produce, and the edge (partitioner, buffer timeout, source operator) it belongs to.

    `consumer_max_parallelism` is what HASH partitioning needs to know of the consumer.
    """

    descriptor: ResultPartitionDescriptor
    edge: JobEdge
    consumer_max_parallelism: int


class TaskDeploymentDescriptor(msgspec.Struct, frozen=True):
    """Everything a TaskManager needs to run one attempt of one subtask."""

    attempt_id: ExecutionAttemptId
    allocation_id: AllocationId
    job_name: str
    settings: dict[str, str]
    vertex: JobVertex
    result_partitions: tuple[ResultPartitionDeployment, ...]
    input_gates: tuple[InputGateDescriptor, ...]
    restore: SubtaskRestore | None = None
    artifacts: tuple[JobArtifact, ...] = ()


class SlotRequest(msgspec.Struct, frozen=True):
    """The ResourceManager gives a slot of this TaskManager to a job; one that is not there yet is cut for `profile`."""

    slot_id: SlotId
    job_id: JobId
    allocation_id: AllocationId
    profile: ResourceProfile
    job_master_address: str
    job_master_id: JobMasterId
    resource_manager_id: ResourceManagerId


class TaskExecutorHeartbeatPayload(msgspec.Struct, frozen=True):
    """Status that a TaskManager reports with every heartbeat. `memory` is None where it was not measured.

    `lock_watcher_address` is the endpoint of the process that watches its interpreter lock, or ''.
    """

    slot_report: SlotReport
    memory: MemoryUsage | None = None
    cluster_partitions: ClusterPartitionReport = ClusterPartitionReport()
    lock_watcher_address: str = ""


class TaskExecutorGateway(Protocol):
    """The endpoint of a TaskManager."""

    async def request_slot(self, request: SlotRequest) -> Acknowledge:
        """Reserve a slot for a job and offer it to the job's JobMaster. Idempotent by allocation id."""
        ...

    async def free_slot(
        self, allocation_id: AllocationId, job_master_id: JobMasterId, cause: str
    ) -> Acknowledge:
        """Fail the tasks in the slot, then free it. Idempotent."""
        ...

    async def submit_task(
        self, descriptor: TaskDeploymentDescriptor, job_master_id: JobMasterId
    ) -> Acknowledge:
        """Start a task; acknowledged means that its thread runs."""
        ...

    async def cancel_task(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, is_forced: bool = False
    ) -> Acknowledge:
        """Cancel a task. Unknown attempts are acknowledged. `is_forced`: end the process of one that still runs."""
        ...

    def release_partitions(
        self,
        job_id: JobId,
        job_master_id: JobMasterId,
        partition_ids: tuple[ResultPartitionId, ...],
    ) -> None:
        """Delete stored results that no consumer needs any more. Unknown ones are passed over."""
        ...

    async def promote_partitions(
        self,
        job_id: JobId,
        job_master_id: JobMasterId,
        partitions: tuple[ClusterPartition, ...],
    ) -> ClusterPartitionReport:
        """Keep stored results beyond their job, which has finished, for the cluster, and return those kept. Idempotent.

        Answered once the ResourceManager was told, if there is one; heartbeats tell it as well.
        """
        ...

    async def release_cluster_partitions(
        self, data_sets: tuple[ClusterDataSetId, ...]
    ) -> ClusterPartitionReport:
        """Delete partitions here of data sets of the cluster, and return the remaining ones. Ignore unknown ones."""
        ...

    async def send_operator_event(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        operator_id: OperatorId,
        sequence_number: int,
        payload: bytes,
    ) -> Acknowledge:
        """Deliver an event of an operator's coordinator to one subtask.

        Events for an attempt are numbered from 0; one that has come before changes nothing, nor does one for an attempt
        that is not there any more.
        """
        ...

    def trigger_checkpoint(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        checkpoint_id: int,
        timestamp_ms: int,
        options: CheckpointOptions,
    ) -> None:
        """Begin a checkpoint at this task. Answered by `acknowledge_checkpoint` or `decline_checkpoint`, or never."""
        ...

    def notify_checkpoint_complete(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, checkpoint_id: int
    ) -> None:
        """The checkpoint is published: its prepared output will take effect. May be lost, and come late or twice."""
        ...

    def notify_checkpoint_aborted(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        checkpoint_id: int,
        latest_completed_id: int,
    ) -> None:
        """The checkpoint was aborted. May be lost, and come late or twice."""
        ...

    async def request_checkpoint_progress(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, checkpoint_id: int
    ) -> CheckpointProgress | None:
        """Return a task's progress with a checkpoint; None where it does not run. Answers also while it is stuck."""
        ...

    async def read_state(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        operator_id: OperatorId,
        query: StateQuery,
    ) -> StateReadResult:
        """Read an operator's state between the batches of its task. Callers wait longer than the query may take.

        StateReadError.
        """
        ...

    async def heartbeat_from_resource_manager(
        self, resource_id: ResourceId
    ) -> TaskExecutorHeartbeatPayload:
        """Answer a heartbeat of the ResourceManager."""
        ...

    async def heartbeat_from_job_master(
        self, job_master_id: JobMasterId, slots: AllocatedSlotReport
    ) -> ExecutionDeploymentReport:
        """Answer a heartbeat of a JobMaster and reconcile slots."""
        ...

    async def request_task_metrics(self, job_id: JobId) -> tuple[TaskMetrics, ...]:
        """Return the metrics of the job's tasks here, now."""
        ...

    async def request_log_files(self) -> tuple[LogFile, ...]:
        """Return the log files of this TaskManager, newest first; none where it writes none."""
        ...

    async def read_log_file(self, name: str, offset: int, max_bytes: int) -> LogPiece:
        """Return part of a log file of this TaskManager, at most a mebibyte. LogFileNotFoundError.

        A negative `offset` counts from the end.
        """
        ...

    async def request_thread_dump(self) -> tuple[ThreadInfo, ...]:
        """Return what every thread of the process does now."""
        ...

    async def request_profiling(self, mode: ProfilingMode, duration_s: int) -> ProfilingInfo:
        """Begin a profile of the process, which ends by itself. ProfilerBusyError."""
        ...

    async def request_profiling_list(self) -> tuple[ProfilingInfo, ...]:
        """Return the newest profiles of the process, the newest first."""
        ...

    async def request_profile(self, file_name: str) -> FlameGraphNode:
        """Return a profile that has FINISHED. ProfileNotFoundError."""
        ...

    async def request_stack_samples(
        self,
        job_id: JobId,
        vertex_id: JobVertexId,
        subtask_index: int | None,
        sample_count: int,
        delay_ms: int,
        depth_max: int,
    ) -> StackSamples:
        """Sample the stacks of the vertex's subtasks here, or of one of them, `sample_count` times each.

        Answered `sample_count` times `delay_ms` later, or after a minute with what there is by then, so that callers
        wait longer than that; at once where no such subtask runs. StackSamplerBusyError.
        """
        ...

    async def request_process_metrics(self) -> dict[str, float]:
        """Return the metrics of the process by their full names (`Status.JVM.CPU.Load`), now."""
        ...

    def disconnect_job_master(
        self, job_id: JobId, job_master_id: JobMasterId, cause: ErrorInfo | None
    ) -> None:
        """The JobMaster ends the connection; tasks of the job are failed. Without a cause the job is over."""
        ...

    def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerId, cause: str
    ) -> None:
        """The ResourceManager ends the connection; register again."""
        ...

    async def can_be_released(self) -> bool:
        """Return whether no partition here is still to be read."""
        ...

    async def shut_down(self, cause: str) -> Acknowledge:
        """Stop gracefully: fail tasks, say goodbye, end the process's work."""
        ...

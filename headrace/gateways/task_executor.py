"""TaskExecutorGateway: calls that a TaskManager answers. Not fenced: callers pass their leader session.

A TaskManager serves several leaders. StaleLeaderError is the answer to a session that no longer leads.
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
    """A partition to produce, and its edge (partitioner, buffer timeout, source operator).

    `consumer_max_parallelism` is needed for HASH partitioning.
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
    """The ResourceManager gives a slot of this TaskManager to a job; a new slot is cut for `profile`."""

    slot_id: SlotId
    job_id: JobId
    allocation_id: AllocationId
    profile: ResourceProfile
    job_master_address: str
    job_master_id: JobMasterId
    resource_manager_id: ResourceManagerId


class TaskExecutorHeartbeatPayload(msgspec.Struct, frozen=True):
    """Status that a TaskManager reports with every heartbeat. `memory` is None if it was not measured.

    `lock_watcher_address` is the endpoint of the process that watches the TaskManager's interpreter lock, or ''.
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
        """Start a task; acknowledged once its thread runs."""
        ...

    async def cancel_task(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, is_forced: bool = False
    ) -> Acknowledge:
        """Cancel a task. Unknown attempts are acknowledged. `is_forced`: end the process if the task still runs."""
        ...

    def release_partitions(
        self,
        job_id: JobId,
        job_master_id: JobMasterId,
        partition_ids: tuple[ResultPartitionId, ...],
    ) -> None:
        """Delete stored results that no consumer needs any more. Unknown ones are ignored."""
        ...

    async def promote_partitions(
        self,
        job_id: JobId,
        job_master_id: JobMasterId,
        partitions: tuple[ClusterPartition, ...],
    ) -> ClusterPartitionReport:
        """Promote stored results of a finished job to cluster partitions, and return the promoted ones. Idempotent.

        Answered once it was reported to the ResourceManager, if there is one; heartbeats report it too.
        """
        ...

    async def release_cluster_partitions(
        self, data_sets: tuple[ClusterDataSetId, ...]
    ) -> ClusterPartitionReport:
        """Delete this TaskManager's partitions of data sets, and return the remaining ones.

        Unknown ones are ignored.
        """
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

        Events for an attempt are numbered from 0; a repeated one, or one for an ended attempt, is ignored.
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
        """Start a checkpoint at this task. Answered by `acknowledge_checkpoint` or `decline_checkpoint`, or never."""
        ...

    def notify_checkpoint_complete(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, checkpoint_id: int
    ) -> None:
        """Report a published checkpoint, whose prepared output takes effect. May be lost, late or repeated."""
        ...

    def notify_checkpoint_aborted(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        checkpoint_id: int,
        latest_completed_id: int,
    ) -> None:
        """Report an aborted checkpoint. May be lost, late or repeated."""
        ...

    async def request_checkpoint_progress(
        self, attempt_id: ExecutionAttemptId, job_master_id: JobMasterId, checkpoint_id: int
    ) -> CheckpointProgress | None:
        """Return a task's progress with a checkpoint; None if it does not run. Answers also while the task is stuck."""
        ...

    async def read_state(
        self,
        attempt_id: ExecutionAttemptId,
        job_master_id: JobMasterId,
        operator_id: OperatorId,
        query: StateQuery,
    ) -> StateReadResult:
        """Read an operator's state between the batches of its task. Callers wait longer than the query may take.

        Raises StateReadError.
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
        """Return the current metrics of the job's tasks on this TaskManager."""
        ...

    async def request_log_files(self) -> tuple[LogFile, ...]:
        """Return the log files of this TaskManager, newest first; none if it writes none."""
        ...

    async def read_log_file(self, name: str, offset: int, max_bytes: int) -> LogPiece:
        """Return part of a log file of this TaskManager, at most a mebibyte. LogFileNotFoundError.

        A negative `offset` counts from the end.
        """
        ...

    async def request_thread_dump(self) -> tuple[ThreadInfo, ...]:
        """Return the call stack of every thread of the process."""
        ...

    async def request_profiling(self, mode: ProfilingMode, duration_s: int) -> ProfilingInfo:
        """Start a profile of the process, which ends by itself. ProfilerBusyError."""
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
        """Sample the stacks of the vertex's subtasks on this TaskManager, or of one of them, `sample_count` times each.

        Answered after `sample_count` times `delay_ms`, or after a minute with the samples so far, so callers wait
        longer than that; at once if no such subtask runs. Raises StackSamplerBusyError.
        """
        ...

    async def request_process_metrics(self) -> dict[str, float]:
        """Return the current metrics of the process by their full names (`Status.JVM.CPU.Load`)."""
        ...

    def disconnect_job_master(
        self, job_id: JobId, job_master_id: JobMasterId, cause: ErrorInfo | None
    ) -> None:
        """Disconnect the JobMaster; tasks of the job are failed. Without a cause the job has ended."""
        ...

    def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerId, cause: str
    ) -> None:
        """Handle the end of the connection to the ResourceManager, and register again."""
        ...

    async def can_be_released(self) -> bool:
        """Return whether no partition of this TaskManager is still needed by readers."""
        ...

    async def shut_down(self, cause: str) -> Acknowledge:
        """Stop gracefully: fail tasks, disconnect, and end the process's work."""
        ...

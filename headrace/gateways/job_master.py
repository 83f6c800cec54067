"""JobMasterGateway: calls to the leader of one job, and their messages. Fenced by JobMasterId.

Some messages show a job's tasks and failures to people and clients; `checkpoint_statistics` has those about
checkpoints.

Source: Flink JobMasterGateway, JobExceptionsInfoWithHistory.
"""

import enum
import functools
from collections import Counter
from typing import Final, Protocol

import msgspec

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.core.barriers import SavepointFormatType
from headrace.core.ids import (
    AllocationId,
    ExecutionAttemptId,
    JobId,
    JobVertexId,
    OperatorId,
    ResourceId,
    ResourceManagerId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointOverview,
    CheckpointStatistics,
)
from headrace.gateways.messages import (
    Acknowledge,
    ErrorInfo,
    ExecutionReport,
    OperatorDescription,
    RegistrationRefused,
    RegistrationRejected,
    SlotOffer,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_plan import JobPlan
from headrace.metrics.combination import combine_metrics, combined_value
from headrace.metrics.metric_name import MetricName


class ExceptionInfo(msgspec.Struct, frozen=True):
    """A failure. `task`, `resource_id` and `endpoint` (`host:port`) are empty if the job failed as a whole."""

    error: ErrorInfo
    timestamp_ms: int
    task: str = ""
    resource_id: ResourceId | None = None
    endpoint: str = ""


class RootExceptionInfo(msgspec.Struct, frozen=True):
    """A failure that caused a restart or ended the job, and the failures that came with it."""

    root: ExceptionInfo
    concurrent: tuple[ExceptionInfo, ...] = ()


_SHOWN_VERTICES: Final = 8
_SHOWN_CHARACTERS: Final = 80


class TaskManagerRegistration(msgspec.Struct, frozen=True):
    """Registration of a TaskManager at a JobMaster.

    `local_state`: the newest attempt of each of the job's subtasks with copies of its state on this TaskManager's disk.
    """

    address: str
    location: TaskManagerLocation
    local_state: tuple[ExecutionAttemptId, ...] = ()


class TaskManagerRegistered(msgspec.Struct, frozen=True, tag="registered"):
    """The JobMaster accepted. Blobs that this job's descriptors name are fetched from `blob_server_address`."""

    job_master_resource_id: ResourceId
    blob_server_address: str


TaskManagerRegistrationResponse = TaskManagerRegistered | RegistrationRefused | RegistrationRejected


class AttemptDetails(msgspec.Struct, frozen=True):
    """An earlier, ended attempt of a subtask; fields as in SubtaskDetails.

    `metrics`: only records, bytes, and the times since its start for which it was busy, idle and back-pressured.
    """

    attempt_number: int
    state: ExecutionState
    resource_id: ResourceId | None
    endpoint: str
    timestamps_ms: dict[str, int]
    metrics: dict[str, float]
    error: ErrorInfo | None = None


class SubtaskDetails(msgspec.Struct, frozen=True):
    """One subtask's current attempt, and those before it, newest last.

    `endpoint`: `host:port` of its TaskManager, empty before it has a slot. `timestamps_ms` maps each state that was
    reached to its wall-clock time. `counters`: the names of the metrics that are counters of user functions.
    `allocation_id`: that of its slot, which it may share with other subtasks; None before it has one, and in BATCH
    mode.
    """

    subtask_index: int
    attempt_number: int
    state: ExecutionState
    resource_id: ResourceId | None
    metrics: dict[str, float]
    endpoint: str = ""
    timestamps_ms: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    error: ErrorInfo | None = None
    earlier_attempts: tuple[AttemptDetails, ...] = ()
    counters: tuple[str, ...] = ()
    allocation_id: AllocationId | None = None

    def __repr__(self) -> str:
        place = "" if self.resource_id is None else f" on {self.resource_id}"
        return (
            f"SubtaskDetails({self.subtask_index}, attempt {self.attempt_number} {self.state.name}{place}, "
            f"{len(self.metrics)} metrics)"
        )


class VertexDetails(msgspec.Struct, frozen=True, dict=True):
    """One vertex and its subtasks.

    `coordinator_metrics`: metrics of its operators' coordinators, as `<operator>.coordinator.<metric>`.
    """

    vertex_id: JobVertexId
    name: str
    parallelism: int
    subtasks: tuple[SubtaskDetails, ...]
    max_parallelism: int = -1
    slot_sharing_group: str = ""
    coordinator_metrics: dict[str, float] = msgspec.field(default_factory=dict[str, float])

    @functools.cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics of the subtasks combined: counts are summed, shares of time averaged, watermarks their minimum.

        Computed on first use, because the control thread describes thousands of subtasks, of which few are read.
        """
        return combine_metrics(subtask.metrics for subtask in self.subtasks)

    def metric(self, name: MetricName) -> float | None:
        """Return one of `metrics` without computing the others; None if no subtask has it."""
        return combined_value(name.name, (subtask.metrics for subtask in self.subtasks))

    def __repr__(self) -> str:
        counts = Counter(subtask.state.name for subtask in self.subtasks)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        return f"VertexDetails({_begin_of(self.name)!r}: {states or 'no subtasks'})"


class JobNotice(msgspec.Struct, frozen=True):
    """A line that the user of a job was shown when it happened. `timestamp_ms`: wall clock."""

    timestamp_ms: int
    text: str


class DeploymentPhase(enum.Enum):
    """Phases of a deployment of all subtasks of a job together. Source: Flink DeploymentStateTimeMetrics."""

    NONE = "NONE"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    ALL_RUNNING_OR_FINISHED = "ALL_RUNNING_OR_FINISHED"


class JobDetails(msgspec.Struct, frozen=True):
    """A job as people see it. `status_timestamps_ms` maps each status that was reached to its time.

    `exceptions` and `notices`: the newest ones, oldest first; `exceptions_truncated`: True if there were older
    exceptions. `max_parallelism`: the job's setting, -1 if it is not set. `deployment_phase` began at
    `deployment_since_ms`.
    """

    job_id: JobId
    name: str
    status: JobStatus
    status_timestamps_ms: dict[str, int]
    vertices: tuple[VertexDetails, ...]
    failure: ErrorInfo | None = None
    explanation: str = ""
    checkpoints: CheckpointOverview = CheckpointOverview()
    exceptions: tuple[RootExceptionInfo, ...] = ()
    notices: tuple[JobNotice, ...] = ()
    max_parallelism: int = -1
    job_type: str = "STREAMING"
    exceptions_truncated: bool = False
    restart_count: int = 0
    deployment_phase: DeploymentPhase = DeploymentPhase.NONE
    deployment_since_ms: int = 0

    def __repr__(self) -> str:
        """Return one line for notebooks, which show the last value of a cell; all facts are in the fields."""
        shown = [repr(vertex) for vertex in self.vertices[:_SHOWN_VERTICES]]
        if len(self.vertices) > len(shown):
            shown.append(f"and {len(self.vertices) - len(shown)} more")
        parts = [str(self.job_id), repr(_begin_of(self.name)), self.status.name, *shown]
        if self.failure is not None:
            parts.append(f"failure={_begin_of(self.failure.text)!r}")
        return f"JobDetails({', '.join(parts)})"


class JobConfiguration(msgspec.Struct, frozen=True):
    """A job's settings on top of the cluster's, with secret values masked.

    `restart_strategy`: Flink's description. `parallelism`: the job's default, or, if it has none, the largest
    of its vertices. `user_parameters`: its global job parameters.
    """

    settings: dict[str, str]
    restart_strategy: str
    parallelism: int
    object_reuse: bool
    user_parameters: dict[str, str]


def _begin_of(text: str) -> str:
    """Return the first line of a text, cut if it is long."""
    line = text.partition("\n")[0]
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 1] + "…"


class CollectedPiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a batch that one attempt of a subtask collected; the batch's pieces follow each other, up to the last.

    Together they form an Arrow IPC stream. A batch whose last piece never comes belongs to a failed attempt.
    """

    subtask_index: int
    attempt_number: int
    is_last: bool
    content: bytes


class CollectedResults(msgspec.Struct, frozen=True):
    """Records of a collect sink from piece `offset` on. `is_finished`: no piece follows `pieces`.

    `coordinator_id` names the coordinator that counts the offsets: that of the job's next JobMaster counts its pieces
    anew.
    """

    offset: int
    pieces: tuple[CollectedPiece, ...]
    is_finished: bool
    coordinator_id: str = ""


class JobGateway(Protocol):
    """The endpoint that leads a job, as the Dispatcher calls it for clients."""

    async def fetch_collected_results(
        self, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        """Return collected records from `offset` on; earlier ones are forgotten."""
        ...

    async def request_job_details(self, metrics_age_max_ms: int = 0) -> JobDetails:
        """Return the job's state, with task metrics of at most this age, or `metrics.fetcher.update-interval`."""
        ...

    async def request_job_plan(self) -> JobPlan:
        """Return the job's vertices and the edges between them."""
        ...

    async def request_job_configuration(self) -> JobConfiguration:
        """Return the job's settings on top of the cluster's."""
        ...

    async def request_accumulators(self) -> dict[str, float]:
        """Return what JobResult says at the end, as the tasks have it now."""
        ...

    async def request_checkpoint_statistics(self) -> CheckpointStatistics:
        """Return counts, a summary, and the newest checkpoints and savepoints."""
        ...

    async def request_checkpoint_details(self, checkpoint_id: int) -> CheckpointDetails | None:
        """Return a checkpoint with its subtasks; None if it is not among the remembered ones."""
        ...

    async def request_checkpoint_configuration(self) -> CheckpointConfiguration:
        """Return the job's settings for checkpoints."""
        ...

    async def request_operators(self) -> tuple[OperatorDescription, ...]:
        """Return the job's operators, whose state may be read."""
        ...

    async def request_operator(self, named: str) -> OperatorDescription:
        """Return the operator of a uid, else of an id, else of a name. UnknownOperatorError."""
        ...

    async def request_latest_checkpoint(self) -> StoredCheckpoint | None:
        """Return the place of the newest complete checkpoint, or of the snapshot that the job started from, or None."""
        ...

    async def read_state(self, request: StateReadRequest) -> SubtaskState:
        """Read an operator's state in one running subtask. Callers wait longer than the request may take.

        Raises UnknownOperatorError or StateReadError.
        """
        ...

    async def trigger_checkpoint(self, is_full: bool = False) -> int:
        """Take a checkpoint now, in addition to the periodic ones; return its id once it is complete.

        Raises CheckpointFailedError with the reason.
        """
        ...

    async def trigger_savepoint(
        self,
        target_directory: str,
        format_type: SavepointFormatType,
    ) -> str:
        """Take a savepoint below a folder (empty: the configured one); return its URI once it is complete.

        Raises CheckpointFailedError with the reason; the job continues in both cases.
        """
        ...

    async def stop_with_savepoint(
        self,
        target_directory: str,
        is_drained: bool,
        format_type: SavepointFormatType,
    ) -> str:
        """Take a savepoint and end the job with it; return its URI once the job is FINISHED with all output committed.

        `is_drained`: event time ends before. Raises CheckpointFailedError.
        """
        ...

    async def cancel(self, is_forced: bool = False) -> Acknowledge:
        """Cancel the job. `is_forced`: end the processes of tasks that were cancelled before and still run."""
        ...


class JobMasterGateway(JobGateway, Protocol):
    """The endpoint that runs one job."""

    async def register_task_manager(
        self, job_id: JobId, registration: TaskManagerRegistration
    ) -> TaskManagerRegistrationResponse:
        """Register a TaskManager that holds slots of this job. Idempotent for the same address."""
        ...

    async def offer_slots(
        self, resource_id: ResourceId, offers: tuple[SlotOffer, ...]
    ) -> tuple[AllocationId, ...]:
        """Offer slots; return the accepted ones."""
        ...

    def fail_slot(self, resource_id: ResourceId, allocation_id: AllocationId, cause: str) -> None:
        """Report that an accepted slot is gone."""
        ...

    async def update_task_execution_state(self, report: ExecutionReport) -> Acknowledge:
        """Handle a state report; an unknown attempt is an error, which makes the TaskManager fail the task."""
        ...

    async def request_partition_state(
        self, partition_id: ResultPartitionId
    ) -> ExecutionState | None:
        """Return the state of the attempt that produces a partition; None if another attempt has replaced it."""
        ...

    def disconnect_task_manager(self, resource_id: ResourceId, cause: str) -> None:
        """Disconnect a TaskManager that ends or was lost: its slots and executions fail."""
        ...

    def disconnect_resource_manager(
        self, resource_manager_id: ResourceManagerId, cause: str
    ) -> None:
        """Handle the end of the connection to the ResourceManager, and register again."""
        ...

    def notify_not_enough_resources(self, explanation: str, recoverable: bool) -> None:
        """Report that the ResourceManager cannot fulfil the requirements; if `recoverable`, only at the moment."""
        ...

    def notify_task_manager_decommissioned(
        self, resource_id: ResourceId, cause: str, grace_ms: int
    ) -> None:
        """Report that the host removes a TaskManager, which runs for at most `grace_ms`: leave it before that."""
        ...

    async def request_slots_back(self, reason: str) -> bool:
        """Give back all slots if the job waits for more and none of it runs, because another job needs them.

        Returns False if a part of the job runs. Ask again if its tasks are about to end.
        """
        ...

    def notify_impossible_profile(self, profile: ResourceProfile, explanation: str) -> None:
        """Report that no TaskManager can ever provide a slot with these resources."""
        ...

    async def heartbeat_from_resource_manager(self, resource_id: ResourceId) -> Acknowledge:
        """Answer a heartbeat of the ResourceManager."""
        ...

    async def send_operator_event_to_coordinator(
        self,
        attempt_id: ExecutionAttemptId,
        operator_id: OperatorId,
        sequence_number: int,
        payload: bytes,
    ) -> Acknowledge:
        """Deliver an operator's event to its coordinator.

        Events of one operator of one attempt are numbered from 0, so that a repeated one is delivered once. A full
        coordinator refuses with CoordinatorBusyError: send the same event again.
        """
        ...

    async def acknowledge_checkpoint(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> Acknowledge:
        """Acknowledge that the task's part of a checkpoint is stored. Repetitions change nothing.

        Late parts are deleted.
        """
        ...

    async def decline_checkpoint(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        text: str,
    ) -> Acknowledge:
        """Decline the task's part, which aborts the checkpoint."""
        ...

    async def notify_end_of_data(self, attempt_id: ExecutionAttemptId) -> Acknowledge:
        """Report that all operators of the task have finished.

        The task waits for a checkpoint taken since to complete.
        """
        ...

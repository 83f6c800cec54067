"""DispatcherGateway: the entry point of the cluster. Fenced by DispatcherId."""

from typing import Protocol

import msgspec

from headrace.core.barriers import SavepointFormatType
from headrace.core.ids import JobId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.job_master import CollectedResults, JobConfiguration, JobDetails
from headrace.gateways.messages import (
    Acknowledge,
    ErrorInfo,
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_plan import JobPlan


class JobOverview(msgspec.Struct, frozen=True):
    """One job in a list. `end_ms` is -1 while it has not ended; `tasks` counts its subtasks by state.

    `last_modification_ms`: when the job ended, or else one of its subtasks last changed its state. `max_parallelism`:
    the job's setting, -1 if it is not set.
    """

    job_id: JobId
    name: str
    status: JobStatus
    start_ms: int = 0
    end_ms: int = -1
    last_modification_ms: int = 0
    job_type: str = "STREAMING"
    tasks: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    max_parallelism: int = -1


class JobResult(msgspec.Struct, frozen=True):
    """Result of a job that has ended. `accumulators`: the sums of its functions' counters."""

    job_id: JobId
    name: str
    status: JobStatus
    net_runtime_ms: int
    accumulators: dict[str, float]
    failure: ErrorInfo | None = None


class DispatcherGateway(Protocol):
    """The endpoint that accepts jobs and starts their JobMasters."""

    async def submit_job(self, graph: JobGraph) -> Acknowledge:
        """Accept a job, which is then not running yet. DuplicateJobSubmissionError for a known id.

        Blobs that the graph names must be on the blob server before, else BlobNotFoundError.
        """
        ...

    async def list_jobs(self) -> tuple[JobOverview, ...]:
        """Return running and ended jobs."""
        ...

    async def cancel_job(self, job_id: JobId, is_forced: bool = False) -> Acknowledge:
        """Cancel a job; repeated requests are acknowledged. `is_forced`: see JobMasterGateway.cancel."""
        ...

    async def report_client_heartbeat(
        self, job_id: JobId, expired_timestamp_ms: int
    ) -> Acknowledge:
        """Report that the client of a job that ends with it lives, valid until a time (epoch ms). UnknownJobError."""
        ...

    async def trigger_checkpoint(self, job_id: JobId, is_full: bool = False) -> int:
        """Take a checkpoint now and return its id, see JobMasterGateway. Callers pass a long timeout."""
        ...

    async def trigger_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        format_type: SavepointFormatType,
    ) -> str:
        """Take a savepoint and return its URI, see JobMasterGateway. Callers pass a long timeout."""
        ...

    async def stop_with_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        is_drained: bool,
        format_type: SavepointFormatType,
    ) -> str:
        """Take a savepoint and end the job with it, see JobMasterGateway. Callers pass a long timeout."""
        ...

    async def request_job_status(self, job_id: JobId) -> JobStatus:
        """Return the job's status; UnknownJobError for an unknown id."""
        ...

    async def await_job_end(self, job_id: JobId, wait_max_ms: int) -> JobStatus:
        """Return the job's status when it has ended, at the latest after `wait_max_ms`."""
        ...

    async def request_job_details(self, job_id: JobId, metrics_age_max_ms: int = 0) -> JobDetails:
        """Return the job with its vertices, and metrics of at most this age, see JobMasterGateway.

        Frequent callers should accept metrics of some seconds' age, which limits the requests to all TaskManagers.
        """
        ...

    async def request_job_plan(self, job_id: JobId) -> JobPlan:
        """Return the job's vertices and the edges between them."""
        ...

    async def request_job_configuration(self, job_id: JobId) -> JobConfiguration:
        """Return the job's settings on top of the cluster's."""
        ...

    async def request_accumulators(self, job_id: JobId) -> dict[str, float]:
        """Return the current values of the accumulators of JobResult."""
        ...

    async def request_checkpoint_statistics(self, job_id: JobId) -> CheckpointStatistics:
        """Return counts, a summary, and the newest checkpoints and savepoints."""
        ...

    async def request_checkpoint_details(
        self, job_id: JobId, checkpoint_id: int
    ) -> CheckpointDetails | None:
        """Return a checkpoint with its subtasks; None if it is not among the remembered ones."""
        ...

    async def request_checkpoint_configuration(self, job_id: JobId) -> CheckpointConfiguration:
        """Return the job's settings for checkpoints."""
        ...

    async def request_operators(self, job_id: JobId) -> tuple[OperatorDescription, ...]:
        """Return the job's operators, whose state may be read. JobAlreadyEndedError."""
        ...

    async def request_operator(self, job_id: JobId, named: str) -> OperatorDescription:
        """Return the operator of a uid, id or name, see JobMasterGateway. JobAlreadyEndedError."""
        ...

    async def request_latest_checkpoint(self, job_id: JobId) -> StoredCheckpoint | None:
        """Return the newest complete checkpoint, or the restored one, or None. JobAlreadyEndedError."""
        ...

    async def read_state(self, job_id: JobId, request: StateReadRequest) -> SubtaskState:
        """Read an operator's state in one subtask, see JobMasterGateway. JobAlreadyEndedError.

        Callers wait longer than the request may take.
        """
        ...

    async def request_job_result(self, job_id: JobId) -> JobResult:
        """Return the result when the job has ended. Callers pass a long timeout."""
        ...

    async def fetch_collected_results(
        self, job_id: JobId, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        """Return collected records from the job's JobMaster, or those of an ended job."""
        ...

    async def shut_down_cluster(self) -> Acknowledge:
        """Cancel all jobs and end the cluster."""
        ...

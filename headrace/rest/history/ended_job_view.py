"""EndedJobView: a ClusterView with one ended job. Its answers are in memory: no method waits."""

from typing import Final

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId, JobVertexId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.job_master import JobConfiguration, JobDetails, VertexDetails
from headrace.graph.job_plan import JobPlan
from headrace.rest.handler_errors import NotFoundError
from headrace.rest.models.vertices import MetricsHistoryInfo


class EndedJobView:
    """Answers the calls of archived routes' handlers to a ClusterView, for one job. Its clock stands at `now_ms`."""

    def __init__(
        self, job: EndedJob, settings: Settings, now_ms: int, metrics_history: MetricsHistoryInfo
    ) -> None:
        self.job: Final = job
        self.settings: Final = settings
        self.clock: Final = ManualClock(now_ms)
        self._metrics_history: Final = metrics_history
        self._vertices: Final = {each.vertex_id: each for each in job.details.vertices}
        self._checkpoints: Final = {each.checkpoint.checkpoint_id: each for each in job.checkpoints}

    async def jobs(self) -> tuple[JobOverview, ...]:
        """Return a list of this job."""
        return (self.job.overview,)

    async def status(self, job_id: JobId) -> JobStatus:
        """Return the status with which the job ended."""
        return self._known(job_id).details.status

    async def details(self, job_id: JobId) -> JobDetails:
        """Return the job with its vertices."""
        return self._known(job_id).details

    async def vertex(self, job_id: JobId, vertex_id: JobVertexId) -> VertexDetails:
        """Return a vertex; NotFoundError if there is none."""
        assert job_id == self.job.details.job_id
        found = self._vertices.get(vertex_id)
        if found is None:
            raise NotFoundError(f"JobVertex {vertex_id.hex()} not found.")
        return found

    async def plan(self, job_id: JobId) -> JobPlan:
        """Return the job's graph."""
        return self._known(job_id).plan

    async def configuration(self, job_id: JobId) -> JobConfiguration:
        """Return the job's settings."""
        return self._known(job_id).configuration

    async def accumulators(self, job_id: JobId) -> dict[str, float]:
        """Return the accumulators of the job's functions."""
        return self._known(job_id).result.accumulators

    async def result(self, job_id: JobId) -> JobResult:
        """Return the job's result."""
        return self._known(job_id).result

    async def checkpoints(self, job_id: JobId) -> CheckpointStatistics:
        """Return the recorded checkpoints of the job."""
        return self._known(job_id).checkpoint_statistics

    async def checkpoint(self, job_id: JobId, checkpoint_id: int) -> CheckpointDetails | None:
        """Return one checkpoint with its subtasks, None if it is not recorded."""
        assert job_id == self.job.details.job_id
        return self._checkpoints.get(checkpoint_id)

    async def checkpoint_configuration(self, job_id: JobId) -> CheckpointConfiguration:
        """Return the settings of the job's checkpoints."""
        return self._known(job_id).checkpoint_configuration

    async def metrics_history(self, job_id: JobId) -> MetricsHistoryInfo:
        """Return the job's metrics over time."""
        assert job_id == self.job.details.job_id
        return self._metrics_history

    def _known(self, job_id: JobId) -> EndedJob:
        assert job_id == self.job.details.job_id
        return self.job

"""JobInformation: answers requests for information about one job, while it runs and for its archive.

Runs on the JobMaster's main thread. Source: Flink JobMasterGateway, ExecutionGraphInfo.
"""

from collections.abc import Mapping
from typing import Final

from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.job_master.checkpointing.checkpoint_coordinator import CheckpointCoordinator
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    describe_checkpointing,
)
from headrace.cluster.job_master.coordinators.collect_coordinator import CollectCoordinator
from headrace.cluster.job_master.coordinators.operator_coordinators import OperatorCoordinators
from headrace.cluster.job_master.job_details import (
    VertexDescriber,
    accumulators_of,
    describe_configuration,
    describe_job,
    overview_of,
    result_of,
)
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.config import Settings
from headrace.core.ids import OperatorId
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.job_master import JobConfiguration, JobDetails
from headrace.gateways.job_metrics import JobFacts, JobMetrics, job_metrics
from headrace.graph.job_plan import JobPlan


class JobInformation:
    """Information about the job of one JobMaster. `cluster` are the cluster's settings, without the job's."""

    def __init__(
        self,
        scheduler: Scheduler,
        checkpointing: CheckpointCoordinator,
        notices: JobNotices,
        cluster: Settings,
        coordinators: OperatorCoordinators,
    ) -> None:
        self._scheduler: Final = scheduler
        self._checkpointing: Final = checkpointing
        self._notices: Final = notices
        self._coordinators: Final = coordinators
        self._vertices: Final = VertexDescriber(scheduler, coordinators.metrics_of)
        self.configuration: Final[JobConfiguration] = describe_configuration(
            scheduler.graph, cluster
        )
        """The job's settings over the cluster's."""
        self.checkpoint_configuration: Final[CheckpointConfiguration] = describe_checkpointing(
            cluster.with_values(scheduler.graph.settings)
        )
        """Settings by which the job takes checkpoints."""

    def details(self, explanation: str = "") -> JobDetails:
        """Return the job's current details; `explanation` is its reason to wait."""
        overview, notices = self._checkpointing.overview, self._notices.shown
        return describe_job(
            self._scheduler, self._vertices.describe(), overview, notices, explanation
        )

    @property
    def overview(self) -> JobOverview:
        """Line of the job in a list."""
        return overview_of(self._scheduler)

    @property
    def plan(self) -> JobPlan:
        """The job's vertices and edges, with the max parallelism of restored state."""
        return JobPlan.of(self._scheduler.graph)

    @property
    def accumulators(self) -> dict[str, float]:
        """Current accumulators of JobResult."""
        return accumulators_of(self._scheduler)

    @property
    def result(self) -> JobResult:
        """Result of the job, once it has ended."""
        return result_of(self._scheduler)

    @property
    def checkpoint_statistics(self) -> CheckpointStatistics:
        """Counts, a summary, and the newest checkpoints and savepoints."""
        return self._checkpointing.statistics

    def checkpoint_details(self, checkpoint_id: int) -> CheckpointDetails | None:
        """Return a checkpoint with its subtasks; None if it is not remembered."""
        return self._checkpointing.details_of(checkpoint_id)

    def metrics(self, now_ms: int) -> JobMetrics:
        """Return metrics of the job and its coordinators, but not of its tasks."""
        scheduler = self._scheduler
        counts = scheduler.executions.counts
        facts = JobFacts(
            scheduler.status,
            scheduler.status_timestamps_ms,
            self._checkpointing.overview,
            scheduler.history.restart_count,
            counts.phase,
            counts.phase_since_ms,
        )
        return JobMetrics(
            scheduler.graph.job_id,
            scheduler.graph.name,
            job_metrics(facts, now_ms),
            self._coordinators.operator_metrics(),
        )

    def archive(self, collected: Mapping[OperatorId, CollectCoordinator]) -> ArchivedJob:
        """Return the archive of the job at its end, with the records of its collect sinks."""
        job = EndedJob(
            self.details(),
            self.result,
            self.overview,
            self.plan,
            self.configuration,
            self.checkpoint_statistics,
            self.checkpoint_configuration,
            self._checkpointing.all_details,
        )
        return ArchivedJob(job, collected, self._coordinators.operator_metrics())

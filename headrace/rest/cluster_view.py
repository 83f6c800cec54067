"""ClusterView: access of handlers to the control plane, called on its own loop and at most once per refresh interval.

Source: Flink ExecutionGraphCache, which serves every handler from one snapshot of a job.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import AllocationId, JobId, JobVertexId, ResourceId
from headrace.core.lifecycle import JobStatus
from headrace.core.process.stack_sampler import StackSamples
from headrace.core.threads import run_on_loop
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import DispatcherGateway, JobOverview, JobResult
from headrace.gateways.job_master import JobConfiguration, JobDetails, VertexDetails
from headrace.gateways.job_metrics import cluster_metrics
from headrace.gateways.messages import DataSetInfo
from headrace.gateways.resource_manager import (
    ResourceManagerGateway,
    ResourceOverview,
    TaskManagerInfo,
)
from headrace.graph.job_plan import JobPlan
from headrace.metrics.process_metrics import process_metrics
from headrace.rest.flame_graph_sampler import Place
from headrace.rest.handler_errors import NotFoundError, UnavailableError
from headrace.rest.kept_answers import KeptAnswers
from headrace.rest.options import WEB_REFRESH_INTERVAL

if TYPE_CHECKING:
    from headrace.rest.models.vertices import MetricsHistoryInfo

T = TypeVar("T")
AskMetricsHistory = Callable[[JobId], Awaitable["MetricsHistoryInfo"]]

_ASK_TIMEOUT_S: Final = 30.0
_JOBS, _DATA_SETS = "jobs", "data sets"


@dataclass
class SparkPage:
    """Web page of the Spark application that hosts a cluster.

    `address` returns the page's address, such as http://127.0.0.1:4040; it may start the page first, which takes
    seconds, and raises HostError. `key`, base64url-encoded, signs the tokens that its filter JWSFilter requires.
    `asked_count`: number of waiting requests.
    """

    address: Callable[[], str]
    key: str
    asked_count: int = 0


@dataclass(frozen=True)
class ControlPlane:
    """Parts of a cluster that REST calls, and the loop on which it calls them.

    `metrics_history` returns metrics of a job over time, if they are recorded. `blob_server` stores large payloads of
    jobs that clients submit. `log_folder` contains the log files of this process, if it writes any. `spark_page` is
    the web page of the Spark that hosts the cluster, if REST may show it. `fail`, on any thread, ends the cluster
    with the name of the failed part, and its error: without REST a session could get no jobs.
    """

    dispatcher: DispatcherGateway
    resource_manager: ResourceManagerGateway
    loop: asyncio.AbstractEventLoop
    metrics_history: AskMetricsHistory | None = None
    blob_server: BlobServerGateway | None = None
    log_folder: Path | None = None
    spark_page: SparkPage | None = None
    fail: Callable[[str, BaseException], None] | None = None


class ClusterView:
    """View of a cluster, used on the REST thread's loop. `accepts_jobs`: whether clients may submit jobs."""

    def __init__(
        self, control: ControlPlane, settings: Settings, clock: Clock, *, accepts_jobs: bool = False
    ) -> None:
        self.accepts_jobs: Final = accepts_jobs
        self.blob_server: Final = control.blob_server
        self.log_folder: Final = control.log_folder
        self.spark_page: Final = control.spark_page
        self.dispatcher: Final = control.dispatcher
        self.resource_manager: Final = control.resource_manager
        self._metrics_history: Final = control.metrics_history
        self._control_loop: Final = control.loop
        self.settings: Final = settings
        self.clock: Final = clock
        self.refresh_interval_ms: Final = settings.duration_ms(WEB_REFRESH_INTERVAL)
        self._answers: Final = KeptAnswers(clock)

    async def ask(
        self, call: Coroutine[Any, Any, T], timeout_s: float | None = _ASK_TIMEOUT_S
    ) -> T:
        """Await a call of a gateway on the control loop; the answer is not cached.

        UnavailableError after `timeout_s`.
        """
        try:
            return await run_on_loop(call, self._control_loop, timeout_s)
        except TimeoutError as error:
            raise UnavailableError(
                f"the cluster has not answered within {timeout_s:g} s; ask again"
            ) from error

    async def change(
        self, call: Coroutine[Any, Any, T], timeout_s: float | None = _ASK_TIMEOUT_S
    ) -> T:
        """Await a call that changes jobs or data sets, and drop the cached lists of both."""
        try:
            return await self.ask(call, timeout_s)
        finally:
            self._answers.forget(_JOBS)
            self._answers.forget(_DATA_SETS)

    async def each(self, answers: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Await several answers concurrently, and leave out those that fail, as their source may just have gone."""
        found = await asyncio.gather(*answers, return_exceptions=True)
        return [one for one in found if not isinstance(one, BaseException)]

    async def jobs(self) -> tuple[JobOverview, ...]:
        """Return all jobs."""
        return await self._kept(_JOBS, self.dispatcher.list_jobs)

    async def resources(self) -> ResourceOverview:
        """Return all TaskManagers."""
        return await self._kept("resources", self.resource_manager.request_resource_overview)

    async def data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return the results that jobs left in the cluster."""
        return await self._kept(_DATA_SETS, self.resource_manager.list_data_sets)

    async def status(self, job_id: JobId) -> JobStatus:
        """Return a job's present status, uncached."""
        return await self.ask(self.dispatcher.request_job_status(job_id))

    async def details(self, job_id: JobId) -> JobDetails:
        """Return a job with its vertices; UnknownJobError if there is none."""
        return await self._kept(
            ("details", job_id),
            lambda: self.dispatcher.request_job_details(job_id, int(self.refresh_interval_ms)),
        )

    async def vertex(self, job_id: JobId, vertex_id: JobVertexId) -> VertexDetails:
        """Return a vertex of a job; UnknownJobError or NotFoundError if there is none."""
        for each in (await self.details(job_id)).vertices:
            if each.vertex_id == vertex_id:
                return each
        raise NotFoundError(f"JobVertex {vertex_id.hex()} not found.")

    async def accumulators(self, job_id: JobId) -> dict[str, float]:
        """Return the accumulators of a job's functions; UnknownJobError if there is no such job."""
        return await self.ask(self.dispatcher.request_accumulators(job_id))

    async def result(self, job_id: JobId) -> JobResult:
        """Return the result of a job that has ended; UnknownJobError if there is no such job."""
        return await self.ask(self.dispatcher.request_job_result(job_id))

    async def metrics_history(self, job_id: JobId) -> "MetricsHistoryInfo":
        """Return metrics of a job over time, without points if they are not recorded; UnknownJobError."""
        await self.status(job_id)
        if self._metrics_history is None:
            from headrace.rest.models.vertices import MetricsHistoryInfo

            return MetricsHistoryInfo(jid=job_id.hex(), interval=0, timestamps=[], vertices=[])
        return await self._metrics_history(job_id)

    async def plan(self, job_id: JobId) -> JobPlan:
        """Return a job's graph; UnknownJobError."""
        return await self._kept(("plan", job_id), lambda: self.dispatcher.request_job_plan(job_id))

    async def configuration(self, job_id: JobId) -> JobConfiguration:
        """Return a job's settings; UnknownJobError."""
        return await self._kept(
            ("configuration", job_id), lambda: self.dispatcher.request_job_configuration(job_id)
        )

    async def checkpoints(self, job_id: JobId) -> CheckpointStatistics:
        """Return the recorded checkpoints of a job; UnknownJobError if there is no such job."""
        return await self._kept(
            ("checkpoints", job_id), lambda: self.dispatcher.request_checkpoint_statistics(job_id)
        )

    async def checkpoint(self, job_id: JobId, checkpoint_id: int) -> CheckpointDetails | None:
        """Return one checkpoint with its subtasks, None if it is not recorded any more; UnknownJobError."""
        return await self._kept(
            ("checkpoint", job_id, checkpoint_id),
            lambda: self.dispatcher.request_checkpoint_details(job_id, checkpoint_id),
        )

    async def checkpoint_configuration(self, job_id: JobId) -> CheckpointConfiguration:
        """Return the settings of a job's checkpoints; UnknownJobError."""
        return await self._kept(
            ("checkpoint configuration", job_id),
            lambda: self.dispatcher.request_checkpoint_configuration(job_id),
        )

    async def task_manager(self, resource_id: ResourceId) -> TaskManagerInfo:
        """Return one TaskManager; UnknownTaskManagerError."""
        return await self._kept(
            ("TaskManager", resource_id),
            lambda: self.resource_manager.request_task_manager_details(resource_id),
        )

    async def task_manager_metrics(self, resource_id: ResourceId) -> Mapping[str, float]:
        """Return metrics of a TaskManager's process; UnknownTaskManagerError."""
        return await self._kept(
            ("metrics", resource_id),
            lambda: self.resource_manager.request_task_manager_metrics(resource_id),
        )

    async def stack_samples(
        self, place: Place, sample_count: int, delay_ms: int, depth_max: int
    ) -> StackSamples:
        """Return stack samples of a vertex or a subtask; takes `sample_count` times `delay_ms`."""
        job_id, vertex_id, subtask_index = place
        call = self.resource_manager.request_vertex_stack_samples(
            job_id, vertex_id, subtask_index, sample_count, delay_ms, depth_max
        )
        return await self.ask(call, sample_count * delay_ms / 1000 + _ASK_TIMEOUT_S)

    async def assigned_tasks(self) -> Counter[ResourceId | AllocationId]:
        """Return the number of subtasks that are running or starting, by TaskManager and by slot allocation."""
        return await self._answers.get(
            "assigned tasks", self.refresh_interval_ms, self._count_assigned_tasks
        )

    async def _count_assigned_tasks(self) -> Counter[ResourceId | AllocationId]:
        running = (
            job.job_id for job in await self.jobs() if not job.status.is_globally_terminal_state()
        )
        return Counter(
            place
            for details in await self.each(self.details(job_id) for job_id in running)
            for vertex in details.vertices
            for subtask in vertex.subtasks
            if not subtask.state.is_terminal
            for place in (subtask.resource_id, subtask.allocation_id)
            if place is not None
        )

    async def job_manager_metrics(self) -> Mapping[str, float]:
        """Return metrics of this process and of the cluster."""
        jobs = await self.jobs()
        running_count = sum(not job.status.is_globally_terminal_state() for job in jobs)
        return process_metrics() | cluster_metrics(await self.resources(), running_count)

    async def _kept(self, key: Hashable, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await self._answers.get(key, self.refresh_interval_ms, lambda: self.ask(call()))

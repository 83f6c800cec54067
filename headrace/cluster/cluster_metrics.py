"""ClusterMetrics: reads the metrics of the cluster and of its jobs for the registry of the driver.

They belong to the control thread, which copies them once per interval for the reporters.
Runs on the control thread, and only if there are reporters.
Source: Flink JobManagerMetricGroup, JobManagerJobMetricGroup, JobManagerOperatorMetricGroup.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from headrace.core.ids import JobId
from headrace.core.threads import spawn
from headrace.gateways.job_metrics import JobMetrics, cluster_metrics
from headrace.gateways.resource_manager import ResourceManagerGateway
from headrace.metrics.groups import samples_of
from headrace.metrics.process_metrics import process_metrics
from headrace.metrics.readings import GroupReading
from headrace.metrics.reporters.registry import MetricRegistry
from headrace.metrics.scopes import GroupKind

_LOG = logging.getLogger(__name__)

_CLUSTER: Final = "cluster"
_PROCESS: Final = "process"


class ClusterMetrics:
    """Metrics of the driver.

    `job_metrics` yields those of each job; `host` is the name by which others reach the driver.
    """

    def __init__(
        self,
        registry: MetricRegistry,
        job_metrics: Callable[[], Iterator[JobMetrics]],
        resource_manager: ResourceManagerGateway,
        host: str,
    ) -> None:
        self._registry: Final = registry
        self._job_metrics: Final = job_metrics
        self._resource_manager: Final = resource_manager
        self._variables: Final = {"host": host}
        self._cluster: dict[str, float] = {}
        self._jobs: Final[dict[JobId, tuple[GroupReading, ...]]] = {}
        self._ended: set[JobId] = set()
        self._tasks: Final[set[asyncio.Task[Any]]] = set()

    def start(self) -> None:
        """Register the metrics and start to read them periodically."""
        registry = self._registry
        registry.add(_PROCESS, lambda: (self._reading(process_metrics()),))
        registry.add(_CLUSTER, lambda: (self._reading(self._cluster),))
        if registry.is_read:
            spawn(self._run(), asyncio.get_running_loop(), "cluster metrics", self._tasks)

    async def close(self) -> None:
        """Stop, and read all metrics once more; `refresh_jobs` reads those of jobs that end after this."""
        for task in self._tasks:
            task.cancel()
        if self._registry.is_read:
            await self._refresh_safely()

    async def _run(self) -> None:
        while True:
            await self._refresh_safely()
            await asyncio.sleep(self._registry.interval_ms / 1000)

    async def _refresh_safely(self) -> None:
        try:
            await self.refresh()
        except Exception:
            _LOG.warning("could not read the metrics of the cluster", exc_info=True)

    async def refresh(self) -> None:
        """Read all metrics now."""
        running_count = self.refresh_jobs()
        resources = await self._resource_manager.request_resource_overview()
        self._cluster = cluster_metrics(resources, running_count)

    def refresh_jobs(self) -> int:
        """Read the metrics of the jobs, for the last time if a job has ended; return the number of running ones."""
        jobs = list(self._job_metrics())
        listed = {job.job_id for job in jobs}
        for job in jobs:
            if job.job_id not in self._ended:
                self._take_down(job)
        for job_id in self._jobs.keys() - listed:
            self._end(job_id)
        self._ended &= listed
        return sum(not job.has_ended for job in jobs)

    def _take_down(self, job: JobMetrics) -> None:
        job_id = job.job_id
        is_new = job_id not in self._jobs
        variables = self._variables | {"job_id": str(job_id), "job_name": job.name}
        self._jobs[job_id] = (
            GroupReading(GroupKind.JOB_MANAGER_JOB, variables, samples_of(job.metrics)),
            *(
                GroupReading(
                    GroupKind.JOB_MANAGER_OPERATOR, {**variables, **each.variables}, each.samples
                )
                for each in job.operators
            ),
        )
        if is_new:
            # Called by another thread, perhaps after the job was forgotten.
            self._registry.add(job_id, lambda: self._jobs.get(job_id, ()))
        if job.has_ended:
            self._end(job_id)

    def _end(self, job_id: JobId) -> None:
        self._registry.remove(job_id)
        self._ended.add(job_id)
        del self._jobs[job_id]

    def _reading(self, values: dict[str, float]) -> GroupReading:
        return GroupReading(GroupKind.JOB_MANAGER, self._variables, samples_of(values))

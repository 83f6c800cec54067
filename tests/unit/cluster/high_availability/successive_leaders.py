"""Leaders of one cluster that follow on each other: each takes jobs, ends some, and dies within the end of others."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from headrace.checkpoint.storage.file_systems import child_uri, files_below
from headrace.cluster.dispatcher.stored_jobs import RecoveredJobs, StoredJobs
from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.cluster.high_availability.job_graph_store import StoredJobGraph
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.core.threads import run_in_thread
from headrace.gateways.dispatcher import JobResult
from headrace.graph.job_graph import JobGraph
from tests.unit.cluster.job_master.checkpointing.durable_jobs import take


class SuccessiveLeaders:
    """Leaders with their storage at `uri`; jobs have no blobs, so that no blob server is asked."""

    def __init__(self, uri: str, folder: Path, **options: str) -> None:
        self._uri: Final = child_uri(uri, "test")
        self._settings: Final = Settings(
            {
                "high-availability.type": "file",
                "high-availability.storageDir": uri,
                "high-availability.cluster-id": "test",
                "headrace.checkpoint.key-file": str(folder / "key"),
                **options,
            }
        )
        self.taken_count = 0
        self.running: Final[set[JobId]] = set()

    def entries(self) -> list[str]:
        """Return the names of all entries of jobs that ended, or that leaders of the past can end no more."""
        return self._names("job-results")

    def stored(self) -> list[str]:
        """Return the names of all files of jobs that have not ended."""
        return [name for name in self._names("jobs") if "/" in name]

    def terms(self) -> list[str]:
        """Return the names of all records of leaders."""
        return self._names("leader")

    def lead(self, job_count: int) -> None:
        """Go on with all jobs as the next leader, end most of them, and take `job_count` others.

        Of each four jobs that it finds, it ends one with all clean-up, one without any and one up to the half, as a
        leader that dies; the fourth goes on.
        """
        asyncio.run(self._lead(job_count))

    def end_all(self) -> None:
        """End all jobs in order, as the next leader."""
        asyncio.run(self._end_all())

    def die_before_clean_up(self) -> JobId:
        """Take a job that has a checkpoint, store its end, and die before anything of it is deleted."""
        return asyncio.run(self._die_before_clean_up())

    def clean_up(self, meanwhile: Callable[[], None] = lambda: None) -> tuple[int, list[str]]:
        """Clean up as the next leader, once more where something was left; return of how many jobs, and what is left.

        `meanwhile`: before it tries again.
        """
        return asyncio.run(self._clean_up(meanwhile))

    async def _die_before_clean_up(self) -> JobId:
        services, jobs, _ = await self._next_leader()
        try:
            await self._take(jobs)
            (job_id,) = self.running
            store = CheckpointStore(self._settings, job_id, SystemClock(), system_random())
            store.recover()
            take(store)
            await jobs.job_terminal(JobResult(job_id, "job", JobStatus.FINISHED, 5, {}), False)
            self.running.clear()
            return job_id
        finally:
            services.close()

    async def _clean_up(self, meanwhile: Callable[[], None]) -> tuple[int, list[str]]:
        services, jobs, recovered = await self._next_leader()
        try:
            meanwhile()
            left: list[str] = []
            for one in recovered.unclean:
                assert one.left.not_deleted and one.left.cause
                left += (await jobs.clean_up_unclean(one.stored)).not_deleted
            return len(recovered.unclean), left
        finally:
            services.close()

    async def _lead(self, job_count: int) -> None:
        services, jobs, recovered = await self._next_leader()
        try:
            for number, stored in enumerate(recovered.jobs):
                await self._treat(number, stored, services, jobs)
            for _ in range(job_count):
                await self._take(jobs)
        finally:
            services.close()

    async def _end_all(self) -> None:
        services, jobs, recovered = await self._next_leader()
        try:
            for stored in recovered.jobs:
                await self._treat(0, stored, services, jobs)
        finally:
            services.close()

    async def _treat(
        self,
        number: int,
        stored: StoredJobGraph,
        services: HighAvailabilityServices,
        jobs: StoredJobs,
    ) -> None:
        if number % 4 == 3:
            return
        job_id = stored.graph.job_id
        await jobs.job_terminal(JobResult(job_id, "job", JobStatus.FINISHED, 5, {}), False)
        self.running.remove(job_id)
        if number % 4 == 0:
            assert not (await jobs.clean_up(job_id, None)).not_deleted
        if number % 4 == 1:
            services.job_graph_store.remove(job_id, stored.epoch, services.election.epoch)

    async def _take(self, jobs: StoredJobs) -> None:
        self.taken_count += 1
        graph = JobGraph(JobId.generate(system_random()), "job", (), (), {})
        await jobs.put(graph, self.taken_count)
        self.running.add(graph.job_id)

    async def _next_leader(self) -> tuple[HighAvailabilityServices, StoredJobs, RecoveredJobs]:
        clock, random = SystemClock(), system_random()
        services = HighAvailabilityServices(self._settings, clock, random)
        services.election.await_leadership()
        leadership = services.election.leadership
        assert leadership is not None
        jobs = StoredJobs(
            services, leadership, cast("Any", None), self._settings, clock, random, run_in_thread
        )
        recovered = await jobs.recover()
        assert {one.graph.job_id for one in recovered.jobs} == self.running
        return services, jobs, recovered

    def _names(self, folder: str) -> list[str]:
        return [file.relative_path for file in files_below(child_uri(self._uri, folder))]

"""StoredJobs: stores the jobs of a leader for later ones, from their submission to the end of their clean-up.

    put ──► stored ──job_terminal──► ended, dirty ──clean_up──► ended, clean

Each step is durable before the next one begins, and a leader continues a job from the step in which it finds it. Runs
on the Dispatcher's main thread; files are read and written by threads. Source: Flink Dispatcher,
SessionDispatcherLeaderProcess, DispatcherResourceCleaner.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.cluster.error_reports import error_info_of
from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.cluster.high_availability.job_graph_store import StoredJobGraph, UnreadableJobGraph
from headrace.cluster.high_availability.job_result_store import JobResultEntry, JobResults
from headrace.cluster.high_availability.leader_election_service import (
    Leadership,
    LeadershipLostError,
)
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import (
    CheckpointsLeft,
    CheckpointStore,
)
from headrace.core.clock import Clock, doubling_pauses
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.process.failpoints import Failpoint, reach
from headrace.core.randomness import SeededRandom
from headrace.core.threads import BlockingRunner
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.dispatcher import JobResult
from headrace.graph.job_graph import JobGraph, blob_keys

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_PAUSES_S: Final = 0.2, 10.0


@dataclass(frozen=True)
class EndedUnderEarlierLeader:
    """A job that has ended but was not cleaned up."""

    stored: StoredJobGraph
    result: JobResult


@dataclass(frozen=True)
class UncleanJob:
    """A job that has ended, and the files that the storage has not deleted. Its graph keeps only name and settings."""

    stored: StoredJobGraph
    left: CheckpointsLeft


@dataclass(frozen=True)
class RecoveredJobs:
    """Jobs that continue under the leader of an epoch, the oldest first, and jobs that are only reported.

    `unclean`: ended jobs with files that the storage has not deleted. `unreadable`: jobs that have
    not ended, but cannot be continued.
    """

    epoch: int

    jobs: list[StoredJobGraph]
    ended: list[EndedUnderEarlierLeader]
    unclean: list[UncleanJob]
    unreadable: list[UnreadableJobGraph]


class StoredJobs:
    """Stores the jobs of one leadership. `recover` and `job_terminal` retry storage calls while it lasts."""

    def __init__(
        self,
        services: HighAvailabilityServices,
        leadership: Leadership,
        blob_server: BlobServerGateway,
        settings: Settings,
        clock: Clock,
        random: SeededRandom,
        run_blocking: BlockingRunner,
    ) -> None:
        self._graphs: Final = services.job_graph_store
        self._results: Final = services.job_result_store
        self._leadership: Final = leadership
        self._services: Final = services
        self._blob_server: Final = blob_server
        self._settings: Final = settings
        self._clock: Final = clock
        self._random: Final = random
        self._run_blocking: Final = run_blocking
        # Results of jobs with files left to delete; others are forgotten, since their number has no bound.
        self._ended: Final[dict[JobId, JobResultEntry]] = {}
        # Epochs of jobs that earlier leaders have stored.
        self._stored_epochs: Final[dict[JobId, int]] = {}
        # Refused jobs whose entries of an end may be left: `put` takes these back.
        self._refused: Final[set[JobId]] = set()

    @property
    def epoch(self) -> int:
        """Number of the leadership under which jobs are stored."""
        return self._leadership.epoch

    def completed(self, graph: JobGraph, cluster: Settings) -> JobGraph:
        """Return the job with the settings added that let its checkpoints outlive this leader.

        ConfigurationError if they conflict.
        """
        added = self._services.settings_for(cluster.with_values(graph.settings))
        return msgspec.structs.replace(graph, settings={**graph.settings, **added})

    async def status_of_ended(self, job_id: JobId) -> JobStatus | None:
        """Return the last status of a job that may not run again, or None.

        CheckpointStorageError if that cannot be read.
        """
        entry = self._ended.get(job_id) or await self._run(
            "look for the result of a job", lambda: self._results.find_clean(job_id)
        )
        return None if entry is None else entry.result.status

    async def recover(self) -> RecoveredJobs:
        """Read the jobs that the previous leader has left, and fetch the blobs of those that continue.

        RecordNotTrustedError if a record has a bad seal, or another version wrote it.
        """
        results = await self._try_on("read the results of jobs", self._results.recover)
        found = await self._try_on(
            "read the stored jobs",
            lambda: self._graphs.recover(self.epoch, self._leadership.confirm),
        )
        self._stored_epochs.update({one.job_id: one.epoch for one in found})
        results.leave_out_before(self._stored_epochs)
        await self._try_on(
            "shut out the leaders before", lambda: self._shut_out_earlier(results, found)
        )
        entries = {**results.clean, **results.dirty}
        stored = [one for one in found if isinstance(one, StoredJobGraph)]
        unreadable = [one for one in found if isinstance(one, UnreadableJobGraph)]
        jobs = [one for one in stored if one.job_id not in entries]
        for one in jobs:
            keys = blob_keys(one.graph)
            if keys:
                await self._blob_server.retain_job(one.job_id, keys, one.epoch)
        ended = [one for one in stored if one.job_id in entries]
        # A leader that can read the graph again finds by its entry that the job has ended.
        kept = {one.job_id for one in (*jobs, *unreadable)}
        unclean = await self._try_on(
            "clean up ended jobs", lambda: self._clean_up_ended(results, ended, kept)
        )
        left = kept | {one.stored.job_id for one in unclean}
        self._ended.update({key: one for key, one in results.dirty.items() if key in left})
        told = [EndedUnderEarlierLeader(one, entries[one.job_id].result) for one in ended]
        with_graphs = {one.job_id for one in ended}
        told += [
            self._without_graph(entry.result)
            for job_id, entry in entries.items()
            if job_id not in with_graphs
        ]
        lost = [one for one in unreadable if one.job_id not in entries]
        return RecoveredJobs(self.epoch, jobs, told, unclean, lost)

    async def put(self, graph: JobGraph, submitted_ms: int) -> None:
        """Store a job, after its blobs; when this returns, every later leader knows it."""
        reach(Failpoint.JOB_ACCEPTED)
        stored = StoredJobGraph(graph, submitted_ms, self.epoch)
        was_refused = graph.job_id in self._refused

        def write() -> None:
            reach(Failpoint.JOB_CHECKED)
            if was_refused:
                self._results.take_back(graph.job_id, self.epoch)
            self._graphs.put(stored)

        await self._run("store a job", write)
        reach(Failpoint.JOB_WRITTEN)
        # Confirm only afterwards: a successor first takes its epoch, then reads.
        await self._run("see who leads", self._leadership.confirm)
        reach(Failpoint.JOB_STORED)

    async def remove(self, graph: JobGraph, cause: Exception) -> None:
        """Forget a job that did not start, and whose client is told so.

        Tried once: it may not have been stored at all.
        """
        job_id = graph.job_id
        self._refused.add(job_id)
        failure = error_info_of(cause, f"the submission of job '{graph.name}'")
        entry = JobResultEntry(JobResult(job_id, graph.name, JobStatus.FAILED, 0, {}, failure))

        def forget() -> None:
            # Record an end first, which fails if a later leader continues the job: then its graph stays.
            if self._results.create_dirty(entry, self.epoch):
                self._remove_graph(job_id)
                # If another process leads by now, it has seen the end, or is about to.
                self._leadership.validate()
                self._results.take_back(job_id, self.epoch)

        try:
            await self._run("forget a job", forget)
            self._refused.discard(job_id)
        except (CheckpointStorageError, LeadershipLostError) as error:
            _LOG.error(
                "job %s was refused, but its record could not be removed, and the next leader may find it: %s",
                job_id,
                error,
            )

    async def job_terminal(self, result: JobResult, keeps_latest: bool) -> None:
        """Record that a job has ended, before any of its files is deleted."""
        reach(Failpoint.JOB_ENDED)
        entry = JobResultEntry(result, keeps_latest)

        def create() -> bool:
            reach(Failpoint.RESULT_CHECKED)
            return self._results.create_dirty(entry, self.epoch)

        if not await self._try_on("store the result of a job", create):
            self._leadership.lose(f"another process continues job {result.job_id}")
            self._leadership.validate()
        self._ended[result.job_id] = entry
        reach(Failpoint.RESULT_STORED)

    async def clean_up(
        self, job_id: JobId, delete: Callable[[], Awaitable[CheckpointsLeft]] | None
    ) -> CheckpointsLeft:
        """Try once to delete the files of an ended job, and to forget the job; return what is left.

        `delete` deletes its checkpoints, None if there are none. LeadershipLostError if this process no longer leads;
        the next leader does the rest.
        """
        left = CheckpointsLeft() if delete is None else await delete()
        if left.not_deleted:
            return left
        entry = self._ended[job_id]
        try:
            await self._run("forget a job", lambda: self._remove_graph(job_id))
            await self._run("mark a job clean", lambda: self._results.mark_clean(entry))
        except CheckpointStorageError as error:
            return CheckpointsLeft(not_deleted=(error.uri,), cause=str(error))
        del self._ended[job_id]
        self._stored_epochs.pop(job_id, None)
        return left

    async def clean_up_unclean(self, stored: StoredJobGraph) -> CheckpointsLeft:
        """Try once to clean up after a job of an earlier leader; see `clean_up`."""
        graph, entry = stored.graph, self._ended[stored.job_id]

        async def delete() -> CheckpointsLeft:
            return await self._run(
                "delete checkpoints", lambda: self._delete_checkpoints(graph, entry)
            )

        return await self.clean_up(graph.job_id, delete)

    def _remove_graph(self, job_id: JobId) -> None:
        self._graphs.remove(job_id, self._stored_epochs.get(job_id, self.epoch), self.epoch)

    def _without_graph(self, result: JobResult) -> EndedUnderEarlierLeader:
        """Return an ended job whose graph is gone, but whose result clients may still request."""
        graph = JobGraph(result.job_id, result.name, (), (), {})
        submitted_ms = self._clock.now_ms() - result.net_runtime_ms
        stored = StoredJobGraph(graph, submitted_ms, self.epoch)
        return EndedUnderEarlierLeader(stored, result)

    def _shut_out_earlier(
        self, results: JobResults, found: list[StoredJobGraph | UnreadableJobGraph]
    ) -> None:
        """Prevent earlier leaders, which may be frozen, from ending jobs that continue.

        Find jobs that they have just ended.
        """
        for one in found:
            job_id = one.job_id
            if job_id in results.dirty or job_id in results.clean:
                continue
            epochs = set(range(one.epoch, self.epoch))
            entry = self._results.shut_out(job_id, epochs - results.shut_out.get(job_id, set()))
            if entry is not None:
                results.dirty[job_id] = entry

    def _clean_up_ended(
        self, results: JobResults, ended: list[StoredJobGraph], kept: set[JobId]
    ) -> list[UncleanJob]:
        """Delete the files that earlier leaders had left of ended jobs; return the jobs for which that failed.

        `kept`: jobs whose files stay.
        """
        unclean: list[UncleanJob] = []
        for one in ended:
            job_id = one.job_id
            entry = results.dirty.get(job_id)
            checkpoints = None if entry is None else self._delete_checkpoints(one.graph, entry)
            if checkpoints is not None and checkpoints.not_deleted:
                unclean.append(UncleanJob(without_vertices(one), checkpoints))
                continue
            self._remove_graph(job_id)
        left = kept | {one.stored.job_id for one in unclean}
        for job_id, entry in results.dirty.items():
            if job_id not in left:
                self._results.mark_clean(entry)
        for job_id in results.shut_out.keys() - results.dirty.keys() - kept:
            self._results.forget(job_id)
        return unclean

    def _delete_checkpoints(self, graph: JobGraph, entry: JobResultEntry) -> CheckpointsLeft:
        """Try to delete the checkpoints of an ended job; return those that the storage refused to delete."""
        settings = self._settings.with_values(graph.settings)
        fence = self._leadership.validate
        try:
            # The job may have been refused because of its options.
            store = CheckpointStore(settings, graph.job_id, self._clock, self._random, fence=fence)
            store.recover()
            return store.close(entry.result.status, keeps_latest=entry.keeps_latest)
        except LeadershipLostError:
            raise
        except CheckpointStorageError as error:
            return CheckpointsLeft(not_deleted=(error.uri,), cause=str(error))
        except HeadraceError as error:
            _LOG.warning(
                "not all files of job '%s' (%s), which has ended, could be deleted: %s",
                graph.name, graph.job_id, error,
            )  # fmt: skip
            return CheckpointsLeft()

    async def _run(self, what: str, body: Callable[[], T]) -> T:
        """Run a call of the storage while this process leads.

        LeadershipLostError if another process may lead by now.
        """

        def fenced() -> T:
            self._leadership.validate()
            try:
                return body()
            except CheckpointStorageError:
                # A service has closed the connection of a process that was frozen for longer than its lease.
                self._leadership.validate()
                raise

        return await self._run_blocking(f"high availability: {what}", fenced)

    async def _try_on(self, what: str, body: Callable[[], T]) -> T:
        """Retry a storage call until it succeeds, or this process no longer leads."""
        pauses_s = doubling_pauses(*_PAUSES_S)
        while True:
            try:
                return await self._run(what, body)
            except CheckpointStorageError as error:
                pause_s = next(pauses_s)
                _LOG.warning("cannot %s: %s; retrying in %g s", what, error, pause_s)
            await asyncio.sleep(pause_s)


def without_vertices(stored: StoredJobGraph) -> StoredJobGraph:
    """Return the record of an ended job while some of its files are still to be deleted."""
    graph = stored.graph
    bare = JobGraph(graph.job_id, graph.name, (), (), graph.settings)
    return msgspec.structs.replace(stored, graph=bare)

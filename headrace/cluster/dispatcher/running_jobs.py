"""RunningJobs: the jobs of a cluster that have not ended, with their JobMasters. They outlive each Dispatcher.

    submitted ──stored, if there is a store──► running ──JobMaster ends──► in the archive, its record removed

One per leadership, on the loop of the RpcService: a failed Dispatcher is replaced by another one without effect on
jobs. Work in progress for a job, such as storing a submission, goes on meanwhile.
Source: Flink JobManagerRunnerRegistry, Dispatcher.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from headrace.cluster.blob.blob_client import release_blobs
from headrace.cluster.dispatcher.client_heartbeats import ClientHeartbeats
from headrace.cluster.dispatcher.job_archive import ArchivedJob, JobArchive
from headrace.cluster.dispatcher.job_clean_ups import JobCleanUps
from headrace.cluster.dispatcher.job_leader import BatchJobMasters, JobLeader, JobLeaderFactory
from headrace.cluster.dispatcher.slot_quota import refuse_above_quota
from headrace.cluster.dispatcher.sparse_job_archive import (
    archive_lost_job,
    archive_of_result,
    archive_of_submission,
)
from headrace.cluster.dispatcher.stored_jobs import (
    EndedUnderEarlierLeader,
    StoredJobs,
    without_vertices,
)
from headrace.cluster.error_reports import error_info_of
from headrace.cluster.high_availability.job_graph_store import StoredJobGraph
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import DeletionLeft
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointsLeft
from headrace.cluster.job_master.shared_services import JobManagerSharedServices
from headrace.cluster.leadership import LeaderElection, job_component
from headrace.core.clock import Cancellable
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import (
    ConfigurationError,
    HeadraceError,
    NotInstalledError,
    ProgramError,
)
from headrace.core.ids import JobId, JobMasterId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.ended_job import EndedJob, OnJobEnded
from headrace.gateways.errors import (
    ClusterShutDownError,
    DuplicateJobSubmissionError,
    NotLeadingError,
    UnknownJobError,
)
from headrace.gateways.job_master import JobGateway
from headrace.graph.job_graph import JobGraph, blob_keys
from headrace.graph.pipeline_options import runs_in_batch
from headrace.rpc.service import RpcService

_LOG: Final = logging.getLogger(__name__)

SHUTDOWN_JOBS_TIMEOUT: Final = ConfigOption(
    "headrace.cluster.shutdown-jobs-timeout",
    timedelta,
    timedelta(seconds=10),
    "Time for which a closing cluster waits for its jobs to be cancelled.",
)


@dataclass(frozen=True)
class RunningJob:
    """A job that has not ended, and the time of its submission (wall clock). `ended` completes with its result."""

    graph: JobGraph
    submitted_ms: int
    job_master: JobLeader
    gateway: JobGateway
    ended: asyncio.Future[JobResult]


@dataclass(frozen=True)
class Submission:
    """An accepted job, `shown` to clients; it has no JobMaster until `work`, which stores it, is done."""

    shown: ArchivedJob
    work: asyncio.Task[None]


class RunningJobs:
    """Jobs of one leadership. `archive` keeps ended jobs, also of earlier ones. `on_job_ended` is called with each one.

    With `stored_jobs` the jobs of the previous leader continue, and this one's are left to the next leader unless a
    client ends the cluster: `on_leaving` is called before. An error that no job has caused ends the process.
    `batch_job_masters` makes the JobMasters of jobs in BATCH mode, if there is Spark.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        services: JobManagerSharedServices,
        *,
        leader_election: LeaderElection,
        archive: JobArchive,
        on_leaving: Callable[[], None] = lambda: None,
        on_job_ended: OnJobEnded | None = None,
        stored_jobs: StoredJobs | None = None,
        batch_job_masters: BatchJobMasters | None = None,
    ) -> None:
        self._rpc_service: Final = rpc_service
        self._services: Final = services
        self._leader_election: Final = leader_election
        self._archive: Final = archive
        self._on_leaving: Final = on_leaving
        self._on_job_ended: Final = on_job_ended
        self._stored: Final = stored_jobs
        self._job_masters: Final = JobLeaderFactory(
            rpc_service,
            services,
            self._job_ended,
            None if stored_jobs is None else stored_jobs.job_terminal,
            batch_job_masters,
        )
        self._clients: Final = ClientHeartbeats(rpc_service, self._client_gone)
        self._jobs: Final[dict[JobId, RunningJob]] = {}
        self._submitting: Final[dict[JobId, Submission]] = {}
        self._clean_ups: Final = JobCleanUps(rpc_service, has_successors=stored_jobs is not None)
        # Ends of JobMasters whose jobs are left to the next leader, and other work for jobs that have ended.
        self._left: Final[list[asyncio.Future[None]]] = []
        self._forgetting: Final[dict[asyncio.Task[None], None]] = {}
        self._expiry: Cancellable | None = None
        self._failure: BaseException | None = None
        self._is_recovered = False
        self._is_shutting_down = False
        self._has_left = False

    def find(self, job_id: JobId) -> RunningJob | None:
        """Return a job, or None if it has ended or never existed."""
        return self._jobs.get(job_id)

    def __iter__(self) -> Iterator[RunningJob]:
        return iter(tuple(self._jobs.values()))

    def archived(self) -> tuple[ArchivedJob, ...]:
        """Return the ended jobs that are remembered."""
        return self._archive.jobs()

    def submissions(self) -> tuple[ArchivedJob, ...]:
        """Return the jobs that are INITIALIZING and have no JobMaster yet."""
        return tuple(filter(None, map(self.find_submission, self._submitting)))

    def find_submission(self, job_id: JobId) -> ArchivedJob | None:
        """Return a job that is INITIALIZING and has no JobMaster yet, or None."""
        submission = self._submitting.get(job_id)
        if submission is None or job_id in self._jobs:
            return None
        return submission.shown

    async def await_job_master(self, job_id: JobId) -> None:
        """Wait until a job that is being stored has its JobMaster, or its submission has failed."""
        submission = self._submitting.get(job_id)
        if submission is not None:
            await asyncio.wait([submission.work])

    def find_archived(self, job_id: JobId) -> ArchivedJob:
        """Return an ended job. UnknownJobError if there is none; NotLeadingError if it was left to the next leader."""
        archived = self._archive.find(job_id)
        if archived is None:
            raise self._unknown(job_id)
        return archived

    def status_of(self, job_id: JobId) -> JobStatus:
        """Return the status of a job that was accepted, runs or has ended; errors as in `find_archived`."""
        status = self._known_status(job_id)
        if status is None:
            raise self._unknown(job_id)
        return status

    def heard_client(self, job_id: JobId, expired_timestamp_ms: int) -> None:
        """Record a heartbeat of a job's client. See ClientHeartbeats."""
        self._clients.heard(job_id, expired_timestamp_ms)

    async def recover(self) -> None:
        """Continue the jobs that the previous leader has left, once. Raises the errors of StoredJobs."""
        if self._stored is None or self._is_recovered:
            return
        recovered = await self._stored.recover()
        self._is_recovered = True
        for ended in recovered.ended:
            self._archive_ended(ended)
        for unclean in recovered.unclean:
            attempt = functools.partial(self._stored.clean_up_unclean, unclean.stored)
            self._clean_ups.add(unclean.stored.graph.job_id, attempt, unclean.left)
        refused: list[tuple[StoredJobGraph, HeadraceError]] = []
        for stored in recovered.jobs:
            graph, first_attempt_number = stored.graph, stored.first_attempt_number(recovered.epoch)
            try:
                self._start(graph, stored.submitted_ms, first_attempt_number)
            except (ConfigurationError, ProgramError) as error:
                if not is_job_to_blame(error, graph):
                    raise
                # Every later leader would be refused it too, and all other jobs with it.
                refused.append((stored, error))
            else:
                _LOG.warning("job '%s' (%s) continues under this leader", graph.name, graph.job_id)
        for stored, error in refused:
            self._release_blobs(stored.graph)
            await self._end_refused(self._stored, stored.graph, stored.submitted_ms, error)
            bare = without_vertices(stored)
            self._clean_ups.add(
                stored.job_id, functools.partial(self._stored.clean_up_unclean, bare)
            )
        for unreadable in recovered.unreadable:
            name = f"unreadable-{unreadable.job_id}"
            graph = JobGraph(unreadable.job_id, name, (), (), {})
            now_ms = self._rpc_service.clock.now_ms()
            await self._end_refused(self._stored, graph, now_ms, unreadable.error)

    async def submit(self, graph: JobGraph) -> None:
        """Start a job; a graph that cannot run is refused with its error. NotLeadingError if another process leads.

        If the caller is cancelled, the submission still completes or fails as a whole.
        """
        job_id = graph.job_id
        self._refuse_if_failed()
        self._refuse_known(job_id)
        if not graph.vertices:
            raise ProgramError(f"the job '{graph.name}' has no operators")
        refuse_above_quota(graph, self._rpc_service.settings)
        if self._stored is not None and runs_in_batch(Settings(graph.settings)):
            raise ProgramError(
                f"job '{graph.name}' is in BATCH mode, which has no checkpoints: the next leader of a cluster with "
                "high availability could not go on with it. Submit it to a session without high availability, or run "
                "it in STREAMING mode, which gives the same final results"
            )
        now_ms = self._rpc_service.clock.now_ms()
        shown = archive_of_submission(graph, self._rpc_service.settings, now_ms)
        work = self._rpc_service.spawn(self._submit(graph, now_ms), f"submission of job {job_id}")
        self._submitting[job_id] = Submission(shown, work)
        work.add_done_callback(functools.partial(self._submitted, job_id))
        try:
            await asyncio.shield(work)
        except LeadershipLostError as error:
            # The next leader has the job, or its client submits it again.
            raise NotLeadingError(str(error)) from error

    def shut_down(self) -> None:
        """Stop all jobs, whose checkpoints stay, and accept no more."""
        self._is_shutting_down = True
        self._failure = self._failure or ClusterShutDownError()
        for job in self:
            job.job_master.cancel_by_dispatcher()

    def fail(self, error: BaseException) -> None:
        """Fail all jobs with `error` and accept no more, because the cluster cannot go on."""
        self._failure = self._failure or error
        self.fail_jobs(error)

    def fail_jobs(self, error: BaseException) -> None:
        """End all jobs because the host is gone; stored jobs are left to the next leader."""
        if self._stored is not None:
            self._failure = self._failure or error
            self._leave()
            return
        for job in self:
            try:
                job.job_master.fail_for_good(error)
            except Exception:
                _LOG.exception("could not end job '%s' after a fatal error", job.graph.name)
                job.job_master.on_fatal_error(error)

    async def fail_jobs_and_wait(self, error: BaseException) -> None:
        """Fail all jobs with `error` because the host is about to go; wait a limited time for their tasks to end."""
        self.fail_jobs(error)
        await self._await_ends()

    async def close(self) -> None:
        """Cancel all jobs and, after a limited wait, end their JobMasters; or leave the jobs to the next leader.

        Accepts no more jobs. Idempotent.
        """
        self._failure = self._failure or ClusterShutDownError()
        if self._stored is not None and not self._is_shutting_down:
            self._leave()
        for job in self:
            job.job_master.cancel_by_dispatcher()
        await self._await_ends()
        for job in self:
            await job.job_master.close()
        for work in (*self._submissions_under_way(), *self._forgetting):
            work.cancel()
        self._clean_ups.close()
        if self._expiry is not None:
            self._expiry.cancel()

    # Submission

    async def _submit(self, graph: JobGraph, submitted_ms: int) -> None:
        if self._stored is not None:
            ended = await self._stored.status_of_ended(graph.job_id)
            if ended is not None:
                raise DuplicateJobSubmissionError(str(graph.job_id), ended.name)
            graph = self._stored.completed(graph, self._rpc_service.settings)
        keys = blob_keys(graph)
        if keys:
            epoch = 0 if self._stored is None else self._stored.epoch
            await self._services.blob_server.retain_job(graph.job_id, keys, epoch)
        try:
            if self._stored is not None:
                await self._stored.put(graph, submitted_ms)
            self._refuse_if_failed()
            self._start(graph, submitted_ms)
        except BaseException as error:
            self._release_blobs(graph)
            if self._stored is not None and isinstance(error, Exception):
                await self._stored.remove(graph, error)
            raise

    def _submitted(self, job_id: JobId, submission: asyncio.Task[None]) -> None:
        del self._submitting[job_id]
        if not submission.cancelled():
            submission.exception()  # all waiting callers may have gone

    def _submissions_under_way(self) -> list[asyncio.Task[None]]:
        return [submission.work for submission in self._submitting.values()]

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _refuse_known(self, job_id: JobId) -> None:
        known = self._known_status(job_id)
        if known is not None:
            raise DuplicateJobSubmissionError(str(job_id), known.name)

    def _known_status(self, job_id: JobId) -> JobStatus | None:
        job = self._jobs.get(job_id)
        if job is not None:
            return job.job_master.status
        archived = self.find_submission(job_id) or self._archive.find(job_id)
        return None if archived is None else archived.job.details.status

    def _unknown(self, job_id: JobId) -> Exception:
        """Return the error for a job that is not here, or no longer here because jobs were left to the next leader."""
        if self._has_left:
            return NotLeadingError("its jobs are left to the next leader")
        return UnknownJobError(str(job_id))

    def _start(self, graph: JobGraph, submitted_ms: int, first_attempt_number: int = 0) -> None:
        job_id = graph.job_id
        job_master_id = self._leader_election.grant(job_component(str(job_id)), JobMasterId)
        with self._rpc_service.forgetting_half_made():
            job_master = self._job_masters.create(
                job_master_id, graph, submitted_ms, first_attempt_number
            )
        self._jobs[job_id] = RunningJob(
            graph,
            submitted_ms,
            job_master,
            job_master.self_gateway(JobGateway),
            self._rpc_service.loop.create_future(),
        )
        job_master.termination.add_done_callback(
            functools.partial(self._job_master_terminated, job_id)
        )
        job_master.start()
        self._clients.follow(job_id, graph.client_heartbeat_timeout_ms)

    # Ends of jobs

    def _client_gone(self, job_id: JobId) -> None:
        job = self._jobs.get(job_id)
        if job is not None:
            _LOG.warning(
                "cancelling job '%s' (%s): its client, with which it must end "
                "(execution.shutdown-on-attached-exit), has sent no heartbeat in time (client.heartbeat.timeout)",
                job.graph.name,
                job_id,
            )
            job.job_master.cancel_by_dispatcher()

    def _job_ended(self, archived: ArchivedJob) -> None:
        """Archive a job that has ended. Called by the JobMaster, on the same thread."""
        job_id = archived.job.details.job_id
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        self._clients.forget(job_id)
        self._remember(archived)
        self._tell_ended(archived.job)
        if not job.ended.done():
            job.ended.set_result(archived.job.result)
        job.job_master.close_async()
        self._clean_up(job_id, job.job_master.deletion_left)

    def _clean_up(self, job_id: JobId, deletion: DeletionLeft | None) -> None:
        left = CheckpointsLeft() if deletion is None else deletion.left
        again = None if deletion is None else deletion.again
        if self._stored is not None:
            attempt = functools.partial(self._stored.clean_up, job_id, again)
            self._clean_ups.add(job_id, attempt, left)
        elif again is not None:
            self._clean_ups.add(job_id, again, left)

    def _tell_ended(self, job: EndedJob) -> None:
        if self._on_job_ended is None:
            return
        try:
            self._on_job_ended(job)
        except Exception:
            _LOG.exception("could not report that job '%s' has ended", job.details.name)

    def _job_master_terminated(self, job_id: JobId, termination: asyncio.Future[None]) -> None:
        """Fail a job whose JobMaster has ended before it, with the cause."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        error = termination.exception() or RuntimeError("the JobMaster was closed")
        if isinstance(error, LeadershipLostError):
            return  # the job belongs to the next leader, and the cluster is about to notice
        info = error_info_of(error, f"the JobMaster of job '{job.graph.name}'")
        self._release_blobs(job.graph)
        now_ms, settings = self._rpc_service.clock.now_ms(), self._rpc_service.settings
        lost = archive_lost_job(job.graph, settings, info, job.submitted_ms, now_ms)
        if self._stored is None:
            self._job_ended(lost)
        else:
            self._forget(self._store_lost(self._stored, lost), f"record the end of job {job_id}")

    async def _store_lost(self, stored: StoredJobs, lost: ArchivedJob) -> None:
        await stored.job_terminal(lost.job.result, keeps_latest=True)
        self._job_ended(lost)

    async def _end_refused(
        self, stored: StoredJobs, graph: JobGraph, submitted_ms: int, error: Exception
    ) -> None:
        """End a job as FAILED that no leader can continue; its newest checkpoint stays."""
        _LOG.error(
            "job '%s' (%s) cannot continue under this leader and is FAILED; its newest checkpoint stays: %s",
            graph.name, graph.job_id, error, exc_info=error,
        )  # fmt: skip
        info = error_info_of(error, f"the start of job '{graph.name}' under this leader")
        now_ms, settings = self._rpc_service.clock.now_ms(), self._rpc_service.settings
        lost = archive_lost_job(graph, settings, info, submitted_ms, now_ms)
        await stored.job_terminal(lost.job.result, keeps_latest=True)
        self._remember(lost)
        self._tell_ended(lost.job)

    def _archive_ended(self, ended: EndedUnderEarlierLeader) -> None:
        """Archive a job that ended under an earlier leader, so that requests are answered with its result."""
        graph, submitted_ms, result = ended.stored.graph, ended.stored.submitted_ms, ended.result
        if self._archive.find(graph.job_id) is not None:
            return
        ended_ms = submitted_ms + result.net_runtime_ms
        settings = self._rpc_service.settings
        self._remember(archive_of_result(graph, settings, result, submitted_ms, ended_ms))

    def _remember(self, archived: ArchivedJob) -> None:
        self._archive.add(archived)
        if self._expiry is None:
            self._await_expiry()

    def _await_expiry(self) -> None:
        """Schedule the expiry of the next archived job, so that it is freed without a request."""
        due_ms = self._archive.next_expiry_ms
        self._expiry = None if due_ms is None else self._rpc_service.schedule(due_ms, self._expire)

    def _expire(self) -> None:
        self._archive.forget_expired()
        self._await_expiry()

    def _leave(self) -> None:
        """End the JobMasters of all jobs, and leave their checkpoints and graphs to the next leader."""
        self._on_leaving()
        self._has_left = True
        jobs = list(self._jobs.items())
        self._jobs.clear()
        now_ms = self._rpc_service.clock.now_ms()
        for job_id, job in jobs:
            _LOG.warning("job '%s' (%s) is left to the next leader", job.graph.name, job_id)
            self._clients.forget(job_id)
            if not job.ended.done():
                name, runtime_ms = job.graph.name, now_ms - job.submitted_ms
                job.ended.set_result(JobResult(job_id, name, JobStatus.SUSPENDED, runtime_ms, {}))
            self._left.append(job.job_master.close_async())
            # The next leader may be another process, which deletes only its own copies.
            self._release_blobs(job.graph)

    async def _await_ends(self) -> None:
        await self._wait_a_while([*(job.ended for job in self._jobs.values()), *self._left])
        under_way = [*self._submissions_under_way(), *self._forgetting]
        await self._wait_a_while([*under_way, self._clean_ups.finish()])

    async def _wait_a_while(self, ends: Sequence[asyncio.Future[Any]]) -> None:
        if not ends:
            return
        timeout_ms = self._rpc_service.settings.duration_ms(SHUTDOWN_JOBS_TIMEOUT)
        _, late = await asyncio.wait(ends, timeout=timeout_ms / 1000)
        if late:
            _LOG.warning("%d job(s) did not end in time", len(late))

    def _release_blobs(self, graph: JobGraph) -> None:
        """Release the blobs of a job that has no JobMaster to do so."""
        if blob_keys(graph):
            self._forget(release_blobs(graph, self._services.blob_server), "release blobs")

    def _forget(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start work for a job that has ended; `close` waits a limited time for it."""
        forgetting = self._rpc_service.spawn(work, name)
        self._forgetting[forgetting] = None
        forgetting.add_done_callback(self._forgotten)

    def _forgotten(self, forgetting: asyncio.Task[None]) -> None:
        del self._forgetting[forgetting]
        error = None if forgetting.cancelled() else forgetting.exception()
        # The next leader does the remaining work.
        if error is not None and not isinstance(error, LeadershipLostError):
            self._rpc_service.fatal_error(error)


def is_job_to_blame(error: HeadraceError, graph: JobGraph) -> bool:
    """Return whether a job's own graph or settings are at fault, so that no other driver would start it either."""
    if isinstance(error, ConfigurationError):
        return Settings(graph.settings).has_value_of(error.key)
    return isinstance(error, ProgramError) and not isinstance(error, NotInstalledError)

"""Dispatcher: accepts jobs, starts a JobMaster for each, and remembers their results. Source: Flink Dispatcher."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeVar

from headrace.cluster.blob.blob_client import release_blobs
from headrace.cluster.dispatcher.client_heartbeats import ClientHeartbeats
from headrace.cluster.dispatcher.job_archive import ArchivedJob, JobArchive
from headrace.cluster.dispatcher.job_leader import BatchJobMasters, JobLeader
from headrace.cluster.dispatcher.lost_job import archive_lost_job, archive_of_result
from headrace.cluster.dispatcher.slot_quota import refuse_above_quota
from headrace.cluster.dispatcher.stored_jobs import EndedUnderEarlierLeader, StoredJobs
from headrace.cluster.error_reports import error_info_of, first_line
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.cluster.job_master.job_master import JobManagerSharedServices, JobMaster
from headrace.cluster.leadership import LeaderElection, job_component
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import DispatcherId, JobId, JobMasterId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import DispatcherGateway, JobOverview, JobResult
from headrace.gateways.ended_job import EndedJob, OnJobEnded
from headrace.gateways.errors import (
    ClusterShutDownError,
    DuplicateJobSubmissionError,
    JobAlreadyEndedError,
    NothingCollectedError,
    NotLeadingError,
    UnknownJobError,
)
from headrace.gateways.job_master import (
    CollectedResults,
    JobConfiguration,
    JobDetails,
    JobGateway,
)
from headrace.gateways.job_metrics import JobMetrics, job_metrics
from headrace.gateways.messages import (
    Acknowledge,
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_graph import JobGraph, blob_keys
from headrace.graph.job_plan import JobPlan
from headrace.graph.pipeline_options import runs_in_batch
from headrace.rpc.endpoint import FencedRpcEndpoint
from headrace.rpc.errors import EndpointFailedError, RecipientUnreachableError
from headrace.rpc.proxies import gateway_address, with_timeout
from headrace.rpc.service import RpcService

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_SAVEPOINT_TIMEOUT_MS: Final = timedelta(days=7).total_seconds() * 1000
"""Bound of a call that takes a savepoint, which `execution.checkpointing.timeout` ends long before.

Stopping waits for sinks to commit as well.
"""

SHUTDOWN_JOBS_TIMEOUT: Final = ConfigOption(
    "headrace.cluster.shutdown-jobs-timeout",
    timedelta,
    timedelta(seconds=10),
    "Time for which a cluster that ends waits for its jobs to be cancelled.",
)


@dataclass(frozen=True)
class _RunningJob:
    """A job that has not ended, and when it was submitted (wall clock). `ended` is completed with its result."""

    graph: JobGraph
    submitted_ms: int
    job_master: JobLeader
    gateway: JobGateway
    ended: asyncio.Future[JobResult]


class Dispatcher(FencedRpcEndpoint[DispatcherId], DispatcherGateway):
    """One per cluster. `on_shut_down` is called when a client asks for the end of the cluster.

    `batch_job_masters` makes the JobMasters of jobs in BATCH mode, where there is a Spark for them.

    `on_job_ended` is told all about each job that has ended. With `stored_jobs` it goes on with the jobs of the leader
    before it, and leaves its own to the next one unless a client ends the cluster: `on_leaving` hears of it before.
    `archive` remembers ended jobs, also those of Dispatchers before. `is_followed`: whether another Dispatcher follows
    where this one fails; else the process is told.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        dispatcher_id: DispatcherId,
        services: JobManagerSharedServices,
        *,
        leader_election: LeaderElection,
        archive: JobArchive,
        on_shut_down: Callable[[], None],
        on_leaving: Callable[[], None] = lambda: None,
        is_followed: Callable[[], bool] = lambda: False,
        on_job_ended: OnJobEnded | None = None,
        stored_jobs: StoredJobs | None = None,
        batch_job_masters: BatchJobMasters | None = None,
    ) -> None:
        name = rpc_service.create_endpoint_name("dispatcher")
        super().__init__(rpc_service, name, dispatcher_id)
        self._stored: Final = stored_jobs
        self._batch_job_masters: Final = batch_job_masters
        self._submitting: Final[set[JobId]] = set()
        self._is_shutting_down = False
        self._has_left = False
        # Ends of JobMasters whose jobs are left to the next leader, and jobs that are being forgotten.
        self._left: Final[list[asyncio.Future[None]]] = []
        self._forgetting: Final[set[asyncio.Task[None]]] = set()
        self._services: Final = services
        self._leader_election: Final = leader_election
        self._on_shut_down: Final = on_shut_down
        self._on_job_ended: Final = on_job_ended
        self._jobs: dict[JobId, _RunningJob] = {}
        self._clients: Final = ClientHeartbeats(self, self._client_gone)
        self._archive: Final = archive
        self._on_leaving: Final = on_leaving
        self._is_followed: Final = is_followed
        self._failure: BaseException | None = None

    def on_fatal_error(self, error: BaseException) -> None:
        """Leave the jobs to the Dispatcher that follows.

        Where none does, the cluster fails, and this endpoint says what became of the jobs until its owner closes it.
        """
        if self._is_followed():
            super().on_fatal_error(error)
        else:
            self.rpc_service.fatal_error(EndpointFailedError(self.address, error))

    async def on_start(self) -> None:
        """Go on with what the leader before this one has left. No client is heard before."""
        self.schedule_run_async(self._archive.expiration_ms, self._archive.forget_expired)
        if self._stored is None:
            return
        recovered = await self._stored.recover()
        for ended in recovered.ended:
            self._archive_ended(ended)
        for stored in recovered.jobs:
            graph = stored.graph
            _LOG.warning("job '%s' (%s) goes on under this leader", graph.name, graph.job_id)
            self._start_job(
                graph, stored.submitted_ms, stored.first_attempt_number(recovered.epoch)
            )

    async def on_stop(self) -> None:
        """Cancel all jobs, give them a little time, then end their JobMasters; or leave them to the next leader."""
        if self._stored is not None and not self._is_shutting_down:
            self._leave_jobs()
        for job in list(self._jobs.values()):
            job.job_master.cancel_by_dispatcher()
        await self._await_ends()
        for job in list(self._jobs.values()):
            await job.job_master.close()

    async def submit_job(self, graph: JobGraph) -> Acknowledge:
        """Start a job; a graph that cannot run at all is refused with its error."""
        job_id = graph.job_id
        self._refuse_if_failed()
        self._refuse_known(job_id)
        if not graph.vertices:
            raise ProgramError(f"the job '{graph.name}' has no operators")
        refuse_above_quota(graph, self.settings)
        submitted_ms = self.clock.now_ms()
        self._submitting.add(job_id)
        try:
            if self._stored is not None:
                graph = self._stored.completed(graph, self.settings)
            keys = blob_keys(graph)
            if keys:
                await self._services.blob_server.retain_job(job_id, keys)
            await self._start_stored(graph, submitted_ms)
        finally:
            self._submitting.discard(job_id)
        return Acknowledge()

    async def _start_stored(self, graph: JobGraph, submitted_ms: int) -> None:
        """Start a job whose blobs are there; before that, store it for later leaders."""
        try:
            if self._stored is not None:
                await self._stored.put(graph, submitted_ms)
            self._refuse_if_failed()
            self._start_job(graph, submitted_ms)
        except BaseException as error:
            self._release_blobs(graph)
            if self._stored is not None and isinstance(error, Exception):
                await self._stored.remove(graph.job_id)
            raise

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _refuse_known(self, job_id: JobId) -> None:
        known = self._status_of(job_id)
        if known is None and self._stored is not None:
            known = self._stored.status_of_ended(job_id)
        if known is None and job_id in self._submitting:
            known = JobStatus.INITIALIZING
        if known is not None:
            raise DuplicateJobSubmissionError(str(job_id), known.name)

    def _start_job(self, graph: JobGraph, submitted_ms: int, first_attempt_number: int = 0) -> None:
        job_id = graph.job_id
        job_master_id = self._leader_election.grant(job_component(str(job_id)), JobMasterId)
        job_master = self._new_job_master(job_master_id, graph, first_attempt_number)
        self._jobs[job_id] = _RunningJob(
            graph,
            submitted_ms,
            job_master,
            job_master.self_gateway(JobGateway),
            self.rpc_service.loop.create_future(),
        )
        job_master.termination.add_done_callback(
            lambda termination: self._job_master_terminated(job_id, termination)
        )
        job_master.start()
        self._clients.follow(job_id, graph.client_heartbeat_timeout_ms)

    def _new_job_master(
        self, job_master_id: JobMasterId, graph: JobGraph, first_attempt_number: int
    ) -> JobLeader:
        if runs_in_batch(Settings(graph.settings)):
            if self._batch_job_masters is None:
                raise ProgramError(
                    f"job '{graph.name}' is in BATCH mode, which runs on Spark stages, and this cluster has no Spark: "
                    "run it in STREAMING mode, which gives the same results"
                )
            return self._batch_job_masters(self.rpc_service, job_master_id, graph, self._job_ended)
        return JobMaster(
            self.rpc_service,
            job_master_id,
            graph,
            self._services,
            on_ended=self._job_ended,
            on_terminal=None if self._stored is None else self._stored.job_terminal,
            first_attempt_number=first_attempt_number,
        )

    def _release_blobs(self, graph: JobGraph) -> None:
        """Release the blobs of a job that has no JobMaster to do so."""
        if blob_keys(graph):
            self._forget(release_blobs(graph, self._services.blob_server), "release blobs")

    def _forget(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Spawn work that the end of this Dispatcher waits for a little."""
        forgetting = self.spawn(work, name)
        self._forgetting.add(forgetting)
        forgetting.add_done_callback(self._forgetting.discard)

    async def request_blob_server_address(self) -> str:
        return gateway_address(self._services.blob_server)

    async def list_jobs(self) -> tuple[JobOverview, ...]:
        """Return all jobs, running ones first."""
        running = [job.job_master.overview for job in self._jobs.values()]
        return (*running, *(each.job.overview for each in self._archive.jobs()))

    def job_metrics(self) -> Iterator[JobMetrics]:
        """Yield the metrics of each job, also of those that have ended; for the driver, on this thread."""
        for job in self._jobs.values():
            yield job.job_master.metrics
        now_ms = self.clock.now_ms()
        for archived in self._archive.jobs():
            details = archived.job.details
            values = job_metrics(details, now_ms)
            yield JobMetrics(details.job_id, details.name, values, archived.operators, True)

    async def cancel_job(self, job_id: JobId, is_forced: bool = False) -> Acknowledge:
        return await self._ask_job(
            job_id, lambda running: running.cancel(is_forced), _acknowledge_cancelled
        )

    async def report_client_heartbeat(
        self, job_id: JobId, expired_timestamp_ms: int
    ) -> Acknowledge:
        await self.request_job_status(job_id)
        self._clients.heard(job_id, expired_timestamp_ms)
        return Acknowledge()

    def _client_gone(self, job_id: JobId) -> None:
        job = self._jobs.get(job_id)
        if job is not None:
            _LOG.warning(
                "job '%s' (%s) is cancelled: its client, with which it was to end "
                "(execution.shutdown-on-attached-exit), has sent no heartbeat in time (client.heartbeat.timeout)",
                job.graph.name,
                job_id,
            )
            job.job_master.cancel_by_dispatcher()

    async def trigger_checkpoint(self, job_id: JobId, is_full: bool = False) -> int:
        return await self._ask_job(
            job_id, lambda running: _waiting(running).trigger_checkpoint(is_full), _refuse_ended
        )

    async def trigger_savepoint(self, job_id: JobId, target_directory: str) -> str:
        return await self._ask_job(
            job_id,
            lambda running: _waiting(running).trigger_savepoint(target_directory),
            _refuse_ended,
        )

    async def stop_with_savepoint(
        self, job_id: JobId, target_directory: str, is_drained: bool
    ) -> str:
        return await self._ask_job(
            job_id,
            lambda running: _waiting(running).stop_with_savepoint(target_directory, is_drained),
            _refuse_ended,
        )

    async def request_job_status(self, job_id: JobId) -> JobStatus:
        status = self._status_of(job_id)
        if status is None:
            raise self._unknown(job_id)
        return status

    async def await_job_end(self, job_id: JobId, wait_max_ms: int) -> JobStatus:
        job = self._jobs.get(job_id)
        if job is not None:
            await asyncio.wait([job.ended], timeout=wait_max_ms / 1000)
        return await self.request_job_status(job_id)

    async def request_job_details(self, job_id: JobId, metrics_age_max_ms: int = 0) -> JobDetails:
        return await self._ask_job(
            job_id,
            lambda running: running.request_job_details(metrics_age_max_ms),
            lambda ended: ended.job.details,
        )

    async def request_job_plan(self, job_id: JobId) -> JobPlan:
        return await self._ask_job(
            job_id, lambda running: running.request_job_plan(), lambda ended: ended.job.plan
        )

    async def request_job_configuration(self, job_id: JobId) -> JobConfiguration:
        return await self._ask_job(
            job_id,
            lambda running: running.request_job_configuration(),
            lambda ended: ended.job.configuration,
        )

    async def request_accumulators(
        self, job_id: JobId, metrics_age_max_ms: int = 0
    ) -> dict[str, float]:
        return await self._ask_job(
            job_id,
            lambda running: running.request_accumulators(metrics_age_max_ms),
            lambda ended: ended.job.result.accumulators,
        )

    async def request_checkpoint_statistics(self, job_id: JobId) -> CheckpointStatistics:
        return await self._ask_job(
            job_id,
            lambda running: running.request_checkpoint_statistics(),
            lambda ended: ended.job.checkpoint_statistics,
        )

    async def request_checkpoint_details(
        self, job_id: JobId, checkpoint_id: int
    ) -> CheckpointDetails | None:
        return await self._ask_job(
            job_id,
            lambda running: running.request_checkpoint_details(checkpoint_id),
            lambda ended: ended.job.checkpoint(checkpoint_id),
        )

    async def request_checkpoint_configuration(self, job_id: JobId) -> CheckpointConfiguration:
        return await self._ask_job(
            job_id,
            lambda running: running.request_checkpoint_configuration(),
            lambda ended: ended.job.checkpoint_configuration,
        )

    async def request_operators(self, job_id: JobId) -> tuple[OperatorDescription, ...]:
        return await self._ask_job(
            job_id, lambda running: running.request_operators(), _refuse_ended
        )

    async def request_operator(self, job_id: JobId, named: str) -> OperatorDescription:
        return await self._ask_job(
            job_id, lambda running: running.request_operator(named), _refuse_ended
        )

    async def request_latest_checkpoint(self, job_id: JobId) -> StoredCheckpoint | None:
        return await self._ask_job(
            job_id, lambda running: running.request_latest_checkpoint(), _refuse_ended
        )

    async def read_state(self, job_id: JobId, request: StateReadRequest) -> SubtaskState:
        return await self._ask_job(
            job_id, lambda running: _waiting(running).read_state(request), _refuse_ended
        )

    async def request_job_result(self, job_id: JobId) -> JobResult:
        job = self._jobs.get(job_id)
        if job is None:
            return self._archived(job_id).job.result
        return await asyncio.shield(job.ended)

    async def fetch_collected_results(
        self, job_id: JobId, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        def of_ended(ended: ArchivedJob) -> CollectedResults:
            if operator_id not in ended.collected:
                raise NothingCollectedError(str(job_id), str(operator_id))
            return ended.fetch(operator_id, offset, max_piece_count)

        return await self._ask_job(
            job_id,
            lambda running: running.fetch_collected_results(operator_id, offset, max_piece_count),
            of_ended,
        )

    async def _ask_job(
        self,
        job_id: JobId,
        of_running: Callable[[JobGateway], Awaitable[T]],
        of_ended: Callable[[ArchivedJob], T],
    ) -> T:
        """Answer from the job's JobMaster or, once the job has ended, from what it left behind.

        A JobMaster may end while it is asked. That is no failure of the request: what the job left behind answers it.
        """
        job = self._jobs.get(job_id)
        if job is not None:
            try:
                return await of_running(job.gateway)
            except RecipientUnreachableError as error:
                if not (error.is_gone and error.target == job.job_master.address):
                    raise
                await asyncio.shield(job.ended)
        return of_ended(self._archived(job_id))

    async def shut_down_cluster(self) -> Acknowledge:
        """Give up all jobs, whose checkpoints stay, and take none any more; whoever holds the cluster closes it."""
        self._is_shutting_down = True
        self._failure = self._failure or ClusterShutDownError()
        for job in list(self._jobs.values()):
            job.job_master.cancel_by_dispatcher()
        self._on_shut_down()
        return Acknowledge()

    def fail(self, error: BaseException) -> None:
        """The cluster cannot go on: all jobs fail with `error`, and none is taken any more."""
        self._failure = self._failure or error
        self.fail_all_jobs(error)

    def fail_all_jobs(self, error: BaseException) -> None:
        """The host is gone: nothing can run any more. Jobs that are stored are left to the next leader."""
        if self._stored is not None:
            self._failure = self._failure or error
            self._leave_jobs()
            return
        for job in list(self._jobs.values()):
            try:
                job.job_master.fail_for_good(error)
            except Exception:
                _LOG.exception("job '%s' could not be ended after a fatal error", job.graph.name)
                job.job_master.on_fatal_error(error)

    async def fail_all_jobs_and_wait(self, error: BaseException) -> None:
        """The host is about to go: fail all jobs with `error`, and give their tasks a little time to end."""
        self.fail_all_jobs(error)
        await self._await_ends()

    def _leave_jobs(self) -> None:
        """End the JobMasters of all jobs, whose checkpoints and graphs stay: the next leader goes on with them."""
        self._on_leaving()
        self._has_left = True
        jobs = list(self._jobs.items())
        self._jobs.clear()
        now_ms = self.clock.now_ms()
        for job_id, job in jobs:
            _LOG.warning("job '%s' (%s) is left to the next leader", job.graph.name, job_id)
            if not job.ended.done():
                name, runtime_ms = job.graph.name, now_ms - job.submitted_ms
                job.ended.set_result(JobResult(job_id, name, JobStatus.SUSPENDED, runtime_ms, {}))
            self._left.append(job.job_master.close_async())
            # The next leader may be another process, which deletes its own copies only.
            self._release_blobs(job.graph)

    async def _await_ends(self) -> None:
        await self._wait_a_while([*(job.ended for job in self._jobs.values()), *self._left])
        await self._wait_a_while(list(self._forgetting))

    async def _wait_a_while(self, ends: Sequence[asyncio.Future[Any]]) -> None:
        if not ends:
            return
        timeout_ms = self.settings.duration_ms(SHUTDOWN_JOBS_TIMEOUT)
        _, late = await asyncio.wait(ends, timeout=timeout_ms / 1000)
        if late:
            _LOG.warning("%d job(s) did not end in time", len(late))

    def _status_of(self, job_id: JobId) -> JobStatus | None:
        job = self._jobs.get(job_id)
        if job is not None:
            return job.job_master.status
        archived = self._archive.find(job_id)
        return None if archived is None else archived.job.details.status

    def _archived(self, job_id: JobId) -> ArchivedJob:
        archived = self._archive.find(job_id)
        if archived is None:
            raise self._unknown(job_id)
        return archived

    def _unknown(self, job_id: JobId) -> Exception:
        """Return the error for a job that is not here: any more, where jobs were left to the next leader."""
        if self._has_left:
            return NotLeadingError("its jobs are left to the next leader")
        return UnknownJobError(str(job_id))

    def _job_ended(self, archived: ArchivedJob) -> None:
        """Called by the JobMaster, on the same thread."""
        job_id = archived.job.details.job_id
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        self._clients.forget(job_id)
        self._archive.add(archived)
        self._tell_ended(archived.job)
        # Looked at when it is due even if nobody asks: what expires must not wait in memory for a question.
        self.schedule_run_async(self._archive.expiration_ms, self._archive.forget_expired)
        if not job.ended.done():
            job.ended.set_result(archived.job.result)
        job.job_master.close_async()
        if self._stored is not None:
            self._forget(self._stored.clean_up(job_id), f"forget job {job_id}")

    def _tell_ended(self, job: EndedJob) -> None:
        if self._on_job_ended is None:
            return
        try:
            self._on_job_ended(job)
        except Exception:
            _LOG.exception("nobody was told that job '%s' has ended", job.details.name)

    def _job_master_terminated(self, job_id: JobId, termination: asyncio.Future[None]) -> None:
        """A JobMaster that ends before its job has failed itself: the job is FAILED with what killed it."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        error = termination.exception() or RuntimeError("the JobMaster was closed")
        if isinstance(error, LeadershipLostError):
            return  # the job is the next leader's, and the cluster is about to notice
        info = error_info_of(error, f"the JobMaster of job '{job.graph.name}'")
        self._release_blobs(job.graph)
        now_ms = self.clock.now_ms()
        lost = archive_lost_job(job.graph, self.settings, info, job.submitted_ms, now_ms)
        if self._stored is None:
            self._job_ended(lost)
        else:
            self.spawn(self._store_lost(lost), f"record the end of job {job_id}")

    async def _store_lost(self, lost: ArchivedJob) -> None:
        assert self._stored is not None
        await self._stored.job_terminal(lost.job.result, keeps_latest=True)
        self._job_ended(lost)

    def _archive_ended(self, ended: EndedUnderEarlierLeader) -> None:
        """Answer for a job that ended under an earlier leader, with its result, for as long as for one's own."""
        graph, submitted_ms, result = ended.stored.graph, ended.stored.submitted_ms, ended.result
        if self._archive.find(graph.job_id) is not None:
            return
        self._archive.add(
            archive_of_result(
                graph, self.settings, result, submitted_ms, submitted_ms + result.net_runtime_ms
            )
        )
        self.schedule_run_async(self._archive.expiration_ms, self._archive.forget_expired)


def _waiting(gateway: JobGateway) -> JobGateway:
    """`gateway` for calls that may take as long as they like: the JobMaster bounds them itself."""
    return with_timeout(gateway, _SAVEPOINT_TIMEOUT_MS)


def _refuse_ended(ended: ArchivedJob) -> NoReturn:
    details = ended.job.details
    reason = "" if details.failure is None else first_line(details.failure)
    raise JobAlreadyEndedError(str(details.job_id), details.status.name, reason)


def _acknowledge_cancelled(ended: ArchivedJob) -> Acknowledge:
    if ended.job.details.status is not JobStatus.CANCELED:
        _refuse_ended(ended)
    return Acknowledge()

"""Dispatcher: accepts jobs from clients and serves their requests about each job. Source: Flink Dispatcher."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Final, NoReturn, TypeVar

from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.dispatcher.running_jobs import RunningJobs
from headrace.cluster.error_reports import first_line
from headrace.core.barriers import SavepointFormatType
from headrace.core.ids import DispatcherId, JobId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import DispatcherGateway, JobOverview, JobResult
from headrace.gateways.errors import (
    JobAlreadyEndedError,
    NothingCollectedError,
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
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_plan import JobPlan
from headrace.rpc.endpoint import FencedRpcEndpoint
from headrace.rpc.errors import EndpointFailedError, RecipientUnreachableError
from headrace.rpc.proxies import with_timeout
from headrace.rpc.service import RpcService

T = TypeVar("T")

_SAVEPOINT_TIMEOUT_MS: Final = timedelta(days=7).total_seconds() * 1000
"""Time-out of a call that takes a savepoint, which `execution.checkpointing.timeout` ends long before.

Stopping waits for sinks to commit as well.
"""


class Dispatcher(FencedRpcEndpoint[DispatcherId], DispatcherGateway):
    """Serves the requests for the cluster's `jobs`, which outlive it.

    `on_shut_down`: a client requests the cluster's end. `is_followed` returns whether another Dispatcher will replace
    this one after a failure; if not, the cluster fails.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        dispatcher_id: DispatcherId,
        jobs: RunningJobs,
        *,
        on_shut_down: Callable[[], None],
        is_followed: Callable[[], bool] = lambda: False,
    ) -> None:
        name = rpc_service.create_endpoint_name("dispatcher")
        super().__init__(rpc_service, name, dispatcher_id)
        self._jobs: Final = jobs
        self._on_shut_down: Final = on_shut_down
        self._is_followed: Final = is_followed

    def on_fatal_error(self, error: BaseException) -> None:
        """Leave the jobs to the next Dispatcher, if there will be one.

        Otherwise the cluster fails, and this endpoint reports the state of the jobs until its owner closes it.
        """
        if self._is_followed():
            super().on_fatal_error(error)
        else:
            self.rpc_service.fatal_error(EndpointFailedError(self.address, error))

    async def on_start(self) -> None:
        """Continue the jobs that the previous leader has left, before any client is served."""
        await self._jobs.recover()

    async def submit_job(self, graph: JobGraph) -> Acknowledge:
        """Start a job; a graph that cannot run is refused with its error."""
        await self._jobs.submit(graph)
        return Acknowledge()

    async def list_jobs(self) -> tuple[JobOverview, ...]:
        """Return all jobs, running ones first."""
        running = [job.job_master.overview for job in self._jobs]
        others = (*self._jobs.submissions(), *self._jobs.archived())
        return (*running, *(each.job.overview for each in others))

    def job_metrics(self) -> Iterator[JobMetrics]:
        """Yield the metrics of each job, including ended ones; for the driver, on this thread."""
        for job in self._jobs:
            yield job.job_master.metrics
        now_ms = self.clock.now_ms()
        for archived in self._jobs.archived():
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
        self._jobs.status_of(job_id)
        self._jobs.heard_client(job_id, expired_timestamp_ms)
        return Acknowledge()

    async def trigger_checkpoint(self, job_id: JobId, is_full: bool = False) -> int:
        return await self._ask_job(
            job_id, lambda running: _waiting(running).trigger_checkpoint(is_full), _refuse_ended
        )

    async def trigger_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        format_type: SavepointFormatType,
    ) -> str:
        return await self._ask_job(
            job_id,
            lambda running: _waiting(running).trigger_savepoint(target_directory, format_type),
            _refuse_ended,
        )

    async def stop_with_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        is_drained: bool,
        format_type: SavepointFormatType,
    ) -> str:
        return await self._ask_job(
            job_id,
            lambda running: _waiting(running).stop_with_savepoint(
                target_directory, is_drained, format_type
            ),
            _refuse_ended,
        )

    async def request_job_status(self, job_id: JobId) -> JobStatus:
        return self._jobs.status_of(job_id)

    async def await_job_end(self, job_id: JobId, wait_max_ms: int) -> JobStatus:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_max_ms / 1000):
                await self._jobs.await_job_master(job_id)
                job = self._jobs.find(job_id)
                if job is not None:
                    await asyncio.wait([job.ended])
        return await self.request_job_status(job_id)

    async def request_job_details(self, job_id: JobId, metrics_age_max_ms: int = 0) -> JobDetails:
        return await self._read_job(
            job_id,
            lambda running: running.request_job_details(metrics_age_max_ms),
            lambda ended: ended.job.details,
        )

    async def request_job_plan(self, job_id: JobId) -> JobPlan:
        return await self._read_job(
            job_id, lambda running: running.request_job_plan(), lambda ended: ended.job.plan
        )

    async def request_job_configuration(self, job_id: JobId) -> JobConfiguration:
        return await self._read_job(
            job_id,
            lambda running: running.request_job_configuration(),
            lambda ended: ended.job.configuration,
        )

    async def request_accumulators(self, job_id: JobId) -> dict[str, float]:
        return await self._read_job(
            job_id,
            lambda running: running.request_accumulators(),
            lambda ended: ended.job.result.accumulators,
        )

    async def request_checkpoint_statistics(self, job_id: JobId) -> CheckpointStatistics:
        return await self._read_job(
            job_id,
            lambda running: running.request_checkpoint_statistics(),
            lambda ended: ended.job.checkpoint_statistics,
        )

    async def request_checkpoint_details(
        self, job_id: JobId, checkpoint_id: int
    ) -> CheckpointDetails | None:
        return await self._read_job(
            job_id,
            lambda running: running.request_checkpoint_details(checkpoint_id),
            lambda ended: ended.job.checkpoint(checkpoint_id),
        )

    async def request_checkpoint_configuration(self, job_id: JobId) -> CheckpointConfiguration:
        return await self._read_job(
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
        await self._jobs.await_job_master(job_id)
        job = self._jobs.find(job_id)
        if job is None:
            return self._jobs.find_archived(job_id).job.result
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

    async def _read_job(
        self,
        job_id: JobId,
        of_running: Callable[[JobGateway], Awaitable[T]],
        of_archived: Callable[[ArchivedJob], T],
    ) -> T:
        """Answer a request that needs no JobMaster: for a job that is being stored, or has ended."""
        submitted = self._jobs.find_submission(job_id)
        if submitted is not None:
            return of_archived(submitted)
        return await self._ask_job(job_id, of_running, of_archived)

    async def _ask_job(
        self,
        job_id: JobId,
        of_running: Callable[[JobGateway], Awaitable[T]],
        of_ended: Callable[[ArchivedJob], T],
    ) -> T:
        """Answer from the job's JobMaster or, once the job has ended, from the archive.

        If a job has no JobMaster yet, wait for it, so that an early cancellation is not lost. If a JobMaster
        ends during the request, the archive answers it.
        """
        await self._jobs.await_job_master(job_id)
        job = self._jobs.find(job_id)
        if job is not None:
            try:
                return await of_running(job.gateway)
            except RecipientUnreachableError as error:
                if not (error.is_gone and error.target == job.job_master.address):
                    raise
                await asyncio.shield(job.ended)
        return of_ended(self._jobs.find_archived(job_id))

    async def shut_down_cluster(self) -> Acknowledge:
        """Stop all jobs, whose checkpoints stay, and accept no more; the holder of the cluster closes it."""
        self._jobs.shut_down()
        self._on_shut_down()
        return Acknowledge()


def _waiting(gateway: JobGateway) -> JobGateway:
    """Return `gateway` with a long time-out, for calls that the JobMaster itself bounds."""
    return with_timeout(gateway, _SAVEPOINT_TIMEOUT_MS)


def _refuse_ended(ended: ArchivedJob) -> NoReturn:
    details = ended.job.details
    reason = "" if details.failure is None else first_line(details.failure)
    raise JobAlreadyEndedError(str(details.job_id), details.status.name, reason)


def _acknowledge_cancelled(ended: ArchivedJob) -> Acknowledge:
    if ended.job.details.status is not JobStatus.CANCELED:
        _refuse_ended(ended)
    return Acknowledge()

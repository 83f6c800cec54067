"""JobLeader: a job's JobMaster as seen by its Dispatcher, in STREAMING and BATCH mode, and its factory.

Source: Flink JobManagerRunner, JobMasterServiceLeadershipRunnerFactory.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import DeletionLeft
from headrace.cluster.job_master.job_master import JobMaster
from headrace.cluster.job_master.shared_services import JobManagerSharedServices, OnTerminal
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import JobMasterId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobOverview
from headrace.gateways.job_metrics import JobMetrics
from headrace.graph.job_graph import JobGraph
from headrace.graph.pipeline_options import runs_in_batch
from headrace.rpc.service import RpcService

T = TypeVar("T")


class JobLeader(Protocol):
    """A job's JobMaster as seen by the Dispatcher, on its thread; see JobMaster."""

    @property
    def address(self) -> str: ...
    @property
    def termination(self) -> asyncio.Future[None]: ...
    @property
    def status(self) -> JobStatus: ...
    @property
    def overview(self) -> JobOverview: ...
    @property
    def metrics(self) -> JobMetrics: ...
    def self_gateway(self, gateway_type: type[T], /) -> T: ...
    def start(self) -> None: ...
    def close_async(self) -> asyncio.Future[None]: ...
    async def close(self) -> None: ...
    @property
    def deletion_left(self) -> DeletionLeft | None: ...
    def cancel_by_dispatcher(self) -> None: ...
    def fail_for_good(self, error: BaseException, /) -> None: ...
    def on_fatal_error(self, error: BaseException, /) -> None: ...


BatchJobMasters = Callable[
    [RpcService, JobMasterId, JobGraph, int, Callable[[ArchivedJob], None]], JobLeader
]
"""Makes the JobMaster of a job in BATCH mode, from the same arguments as another job's.

ProgramError if it cannot run.
"""


class JobLeaderFactory:
    """Makes the JobMasters of one Dispatcher; `batch_job_masters` makes those in BATCH mode, None without Spark.

    `on_ended` and `on_terminal`: see JobMaster.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        services: JobManagerSharedServices,
        on_ended: Callable[[ArchivedJob], None],
        on_terminal: OnTerminal | None,
        batch_job_masters: BatchJobMasters | None,
    ) -> None:
        self._rpc_service: Final = rpc_service
        self._services: Final = services
        self._on_ended: Final = on_ended
        self._on_terminal: Final = on_terminal
        self._batch_job_masters: Final = batch_job_masters

    def create(
        self,
        job_master_id: JobMasterId,
        graph: JobGraph,
        submitted_ms: int,
        first_attempt_number: int,
    ) -> JobLeader:
        """Return a JobMaster that is not started yet. ProgramError, or any error that keeps it from being made."""
        if runs_in_batch(Settings(graph.settings)):
            if self._batch_job_masters is None:
                raise ProgramError(
                    f"job '{graph.name}' is in BATCH mode, which runs on Spark stages, but this cluster has no Spark: "
                    "run it in STREAMING mode, which gives the same results"
                )
            return self._batch_job_masters(
                self._rpc_service, job_master_id, graph, submitted_ms, self._on_ended
            )
        return JobMaster(
            self._rpc_service,
            job_master_id,
            graph,
            self._services,
            on_ended=self._on_ended,
            on_terminal=self._on_terminal,
            first_attempt_number=first_attempt_number,
            submitted_ms=submitted_ms,
        )

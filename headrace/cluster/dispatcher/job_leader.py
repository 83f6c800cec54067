"""JobLeader: the JobMaster of a job as its Dispatcher has it, in STREAMING and in BATCH mode.

Source: Flink JobManagerRunner.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import DeletionLeft
from headrace.core.ids import JobMasterId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobOverview
from headrace.gateways.job_metrics import JobMetrics
from headrace.graph.job_graph import JobGraph
from headrace.rpc.service import RpcService

T = TypeVar("T")


class JobLeader(Protocol):
    """A job's JobMaster as the Dispatcher has it, on its own thread: see JobMaster."""

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
"""Makes the JobMaster of a job in BATCH mode, from what that of another job is made from; ProgramError."""

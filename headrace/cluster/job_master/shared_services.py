"""JobManagerSharedServices: services that the Dispatcher of a cluster passes to each of its JobMasters.

Source: Flink JobManagerSharedServices.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorFactories
from headrace.cluster.job_master.job_status_listener import OnAttempt, ReportSpan
from headrace.cluster.leadership import always_leads
from headrace.cluster.shuffle_master import ShuffleMaster
from headrace.core.threads import BlockingRunner, BlockingStarter, run_in_thread, start_thread
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.dispatcher import JobResult


@dataclass(frozen=True)
class JobManagerSharedServices:
    """Services that the Dispatcher shares with all JobMasters of one cluster.

    `run_blocking` runs calls that wait for files or other systems, concurrently with the main thread; `start_blocking`
    starts such calls without awaiting them. `report_span` takes spans of checkpoints and restarts, None without
    reporters. `fence` is called before any change of checkpoints or output, and raises if this process no longer leads
    its cluster. `on_attempt` is called with each start of a job.
    """

    leader_retrieval_address: str
    coordinator_factories: CoordinatorFactories
    blob_server: BlobServerGateway
    shuffle_master: ShuffleMaster
    run_blocking: BlockingRunner = run_in_thread
    start_blocking: BlockingStarter = start_thread
    report_span: ReportSpan | None = None
    fence: Callable[[], None] = always_leads
    on_attempt: OnAttempt | None = None


OnTerminal = Callable[[JobResult, bool], Awaitable[None]]
"""Records that a job has ended, before any of its files is deleted, and whether its newest checkpoint must stay."""

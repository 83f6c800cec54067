"""JobManagerSharedServices: what the Dispatcher of a cluster gives to each of its JobMasters.

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
    starts those that nobody awaits. `report_span` takes spans of checkpoints and restarts, if anybody reports them.
    `fence` is called before whatever changes checkpoints or output, and raises where this process does not lead its
    cluster any more. `on_attempt` is told of starts of jobs.
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
"""Records that a job has ended, before anything of it is deleted; also whether its newest checkpoint has to stay."""

"""Factory of a job's checkpointing: the CheckpointCoordinator with all that it acts through.

Source: Flink DefaultExecutionGraph.enableCheckpointing.
"""

from collections.abc import Callable

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.checkpoint_coordinator import CheckpointCoordinator
from headrace.cluster.job_master.checkpointing.checkpoint_history import CHECKPOINTS_HISTORY
from headrace.cluster.job_master.checkpointing.checkpoint_tasks import CheckpointTasks
from headrace.cluster.job_master.checkpointing.commits.sink_commits import SinkCommits
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.coordinators.operator_coordinator_handler import (
    OperatorCoordinatorHandler,
)
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.threads import BlockingRunner, BlockingStarter
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.options import HEARTBEAT_INTERVAL


def open_checkpointing(
    endpoint: RpcEndpoint,
    scheduler: Scheduler,
    task_managers: TaskManagers,
    coordination: OperatorCoordinatorHandler,
    settings: Settings,
    run_blocking: BlockingRunner,
    start_blocking: BlockingStarter,
    notices: JobNotices,
    on_ended: Callable[[PendingCheckpoint, CompletedCheckpoint | CheckpointFailureReason], None],
    fence: Callable[[], None],
) -> CheckpointCoordinator:
    """Return the coordinator of a job. `settings` are the job's over the cluster's. ConfigurationError if invalid.

    `fence` raises if another process may lead the job by now.
    """
    configuration = CheckpointCoordinatorConfiguration.from_settings(settings)

    def failed(error: HeadraceError) -> None:
        # Never inside a handler of the coordinator or of the scheduler.
        endpoint.run_async(lambda: scheduler.fail_job(Failure.of_error(error)))

    def subsumed_left(count: int) -> None:
        endpoint.run_async(lambda: checkpointing.subsumed_left(count))

    checkpointing = CheckpointCoordinator(
        endpoint,
        lambda: scheduler.execution_graph,
        configuration,
        CheckpointStore(
            settings,
            scheduler.graph.job_id,
            endpoint.clock,
            endpoint.rpc_service.random,
            subsumed_left,
            start_blocking,
            fence,
        ),
        tasks=CheckpointTasks(
            scheduler, task_managers, after_tasks_finish=configuration.after_tasks_finish
        ),
        coordinators=coordination.coordinators,
        commits=SinkCommits(
            endpoint,
            scheduler.graph,
            settings,
            run_blocking,
            on_changed=lambda: checkpointing.brakes_changed(),
            on_failed=failed,
            tell=lambda text: notices.tell("commits", text),
            fence=fence,
        ),
        run_blocking=run_blocking,
        on_failed=failed,
        on_ended=on_ended,
        on_final_savepoint=scheduler.stopped_with,
        on_completed=scheduler.checkpoint_completed,
        notices=notices,
        reminder_ms=settings.duration_ms(HEARTBEAT_INTERVAL),
        history_size=settings.get_option(CHECKPOINTS_HISTORY),
        fence=fence,
    )
    return checkpointing

"""Puts together what the checkpoints of one job need."""

from collections.abc import Callable

from headrace.cluster.job_master.checkpointing.durable_store import DurableCheckpointStore
from headrace.cluster.job_master.checkpointing.job_checkpointing import JobCheckpointing
from headrace.cluster.job_master.checkpointing.rules import CheckpointRules
from headrace.cluster.job_master.checkpointing.sink_commits import SinkCommits
from headrace.cluster.job_master.checkpointing.task_calls import TaskCalls
from headrace.cluster.job_master.failover import Failure
from headrace.cluster.job_master.job_coordination import JobCoordination
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.scheduling import Scheduler
from headrace.cluster.job_master.task_managers import TaskManagers
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.threads import BlockingRunner, run_in_thread, start_thread
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.options import HEARTBEAT_INTERVAL


def open_checkpointing(
    endpoint: RpcEndpoint,
    scheduler: Scheduler,
    task_managers: TaskManagers,
    coordination: JobCoordination,
    settings: Settings,
    run_blocking: BlockingRunner,
    notices: JobNotices,
) -> JobCheckpointing:
    """Return the checkpointing of a job. `settings` are the job's over the cluster's. ConfigurationError."""
    rules = CheckpointRules.from_settings(settings)

    def failed(error: HeadraceError) -> None:
        # Never inside a handler of the coordinator or of the scheduler.
        endpoint.run_async(lambda: scheduler.fail_job(Failure.of_error(error)))

    def commits(owner: JobCheckpointing) -> SinkCommits:
        return SinkCommits(
            endpoint,
            scheduler.graph,
            settings,
            run_blocking,
            on_changed=owner.brakes_changed,
            on_failed=failed,
            tell=lambda text: notices.tell("commits", text),
        )

    def subsumed_left(count: int) -> None:
        endpoint.run_async(lambda: checkpointing.subsumed_left(count))

    checkpointing = JobCheckpointing(
        endpoint,
        lambda: scheduler.execution_graph,
        rules,
        DurableCheckpointStore(
            settings,
            scheduler.graph.job_id,
            endpoint.clock,
            endpoint.rpc_service.random,
            subsumed_left,
            start_thread if run_blocking is run_in_thread else _at_once,
        ),
        tasks=TaskCalls(scheduler, task_managers, after_tasks_finish=rules.after_tasks_finish),
        coordinators=coordination.coordinators,
        commits=commits,
        run_blocking=run_blocking,
        on_failed=failed,
        on_final_savepoint=scheduler.stopped_with,
        on_completed=scheduler.checkpoint_completed,
        notices=notices,
        reminder_ms=settings.duration_ms(HEARTBEAT_INTERVAL),
    )
    return checkpointing


def _at_once(name: str, body: Callable[[], None]) -> None:
    """In a simulation, where everything that blocks runs at once."""
    body()

"""CheckpointCoordinator: carries out the decisions of the CheckpointProtocol for one job, and reports events to it.

Runs on the JobMaster's main thread; calls of the storage run beside it, one after the other. Source: Flink
CheckpointCoordinator (its input and output), SchedulerBase.

CheckpointTimers: the coordinator's timers on the JobMaster's main thread.

SnapshotRequests: the callers that wait for a snapshot, by request.

Runs on the JobMaster's main thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headrace.checkpoint.errors import (
    CheckpointExistsError,
    CheckpointFailureReason,
    CheckpointFencedError,
)
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.checkpoint_notifier import CheckpointNotifier
from headrace.cluster.job_master.checkpointing.checkpoint_tasks import CheckpointTasks
from headrace.cluster.job_master.checkpointing.collaborators import (
    CheckpointedCoordinators,
    CheckpointedTasks,
)
from headrace.cluster.job_master.checkpointing.commits.sink_commits import SinkCommits
from headrace.cluster.job_master.checkpointing.final_checkpoint import FinalCheckpoint
from headrace.cluster.job_master.checkpointing.job_lineage import JobLineage
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_protocol import (
    CheckpointProtocol,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import (
    ArmPeriodicTimer,
    ArmTimeout,
    BacklogChanged,
    BrakesChanged,
    CalculatePlan,
    CancelTimeout,
    CheckpointRequested,
    CheckpointStepFailed,
    CheckpointTimedOut,
    CompleteRequest,
    CoordinatorAction,
    CoordinatorEvent,
    CreateLocation,
    DiscardLocation,
    DiscardState,
    FailJob,
    FailRequest,
    NotifyAborted,
    NotifyComplete,
    PeriodicTimerFired,
    Publish,
    Published,
    RegisterSharedState,
    SchedulingStarted,
    SchedulingStopped,
    SendTriggers,
    SnapshotCoordinators,
    TakeId,
    TaskAcknowledged,
    TaskDeclined,
    TaskGone,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointRefusedError
from headrace.cluster.job_master.checkpointing.protocol.request_queue import CheckpointRequest
from headrace.cluster.job_master.checkpointing.publisher import (
    PublishedContent,
    Publisher,
    discard,
)
from headrace.cluster.job_master.checkpointing.source_position import source_position
from headrace.cluster.job_master.checkpointing.statistics import (
    CheckpointStatistics,
    describe_expired,
)
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import (
    CheckpointIds,
    CheckpointIo,
)
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import (
    CheckpointStore,
    DurableCheckpointStore,
)
from headrace.cluster.job_master.checkpointing.trigger_steps import TriggerSteps
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.coordinators.operator_coordinator_handler import (
    OperatorCoordinatorHandler,
)
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.scheduler.event_queue import EventQueue
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.barriers import SnapshotKind
from headrace.core.clock import Cancellable
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import ExecutionAttemptId
from headrace.core.lifecycle import JobStatus
from headrace.core.threads import BlockingRunner, run_in_thread, start_thread
from headrace.gateways.checkpoints import CheckpointOverview
from headrace.gateways.errors import CheckpointFailedError
from headrace.graph.execution_graph import ExecutionGraph
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.options import HEARTBEAT_INTERVAL


class SnapshotRequests:
    """Numbers that the coordinator knows requests by, and the futures of those that somebody waits for."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[CompletedCheckpoint]] = {}
        self._next_number = 1

    def take_number(self) -> int:
        """Return the number of a new request that nobody waits for."""
        number, self._next_number = self._next_number, self._next_number + 1
        return number

    def wait(self) -> tuple[int, asyncio.Future[CompletedCheckpoint]]:
        """Return the number of a new request and its future, which fails with CheckpointFailedError."""
        number = self.take_number()
        done = asyncio.get_running_loop().create_future()
        self._waiting[number] = done
        return number, done

    def complete(self, request: CheckpointRequest, snapshot: CompletedCheckpoint) -> None:
        """It is published."""
        waiting = self._waiting.pop(request.number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(snapshot)

    def fail(self, request: CheckpointRequest, text: str) -> None:
        """It came to nothing."""
        waiting = self._waiting.pop(request.number, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(CheckpointFailedError(text))


class CheckpointTimers:
    """One for the next periodic checkpoint, and one for each that is under way.

    `later` runs an action after a delay in ms; `on_due` gets a generation, `on_timeout` an id.
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], Cancellable],
        on_due: Callable[[int], None],
        on_timeout: Callable[[int], None],
    ) -> None:
        self._later: Final = later
        self._on_due: Final = on_due
        self._on_timeout: Final = on_timeout
        self._periodic: Cancellable | None = None
        self._timeouts: dict[int, Cancellable] = {}

    def perform(self, action: ArmPeriodicTimer | ArmTimeout | CancelTimeout) -> None:
        """Set or take away a timer."""
        match action:
            case ArmPeriodicTimer(generation, delay_ms):
                if self._periodic is not None:
                    self._periodic.cancel()
                self._periodic = self._later(delay_ms, lambda: self._on_due(generation))
            case ArmTimeout(checkpoint_id, delay_ms):
                self._timeouts[checkpoint_id] = self._later(
                    delay_ms, lambda: self._on_timeout(checkpoint_id)
                )
            case CancelTimeout(checkpoint_id):
                timer = self._timeouts.pop(checkpoint_id, None)
                if timer is not None:
                    timer.cancel()


_LOG = logging.getLogger(__name__)
_R = CheckpointFailureReason


class CheckpointCoordinator:
    """One per JobMaster. `on_failed`: the job has to fail over, or, where the error is not recoverable, to end.

    `on_final_savepoint` hears the URI of the savepoint with which the job stops, before anything of it is committed;
    `on_completed`, how far the sources had read by each checkpoint that the job restarts from, and its timestamp.
    After `reminder_ms` tasks that wait for a checkpoint are told of it again.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        graph: Callable[[], ExecutionGraph],
        rules: CheckpointCoordinatorConfiguration,
        store: CheckpointStore,
        *,
        tasks: CheckpointedTasks,
        coordinators: CheckpointedCoordinators,
        commits: Callable[["CheckpointCoordinator"], SinkCommits],
        run_blocking: BlockingRunner,
        on_failed: Callable[[HeadraceError], None],
        on_final_savepoint: Callable[[str], None],
        on_completed: Callable[[bytes, int], None],
        notices: JobNotices,
        reminder_ms: float,
    ) -> None:
        self._on_final_savepoint: Final = on_final_savepoint
        self._on_completed: Final = on_completed
        self._endpoint: Final = endpoint
        self._graph: Final = graph
        self._job_id: Final = graph().job_graph.job_id
        self._rules: Final = rules
        self._tasks: Final = tasks
        self._coordinators: Final = coordinators
        self._on_failed: Final = on_failed
        self._calls: Final = CheckpointIo(store, run_blocking, endpoint.spawn, self.brakes_changed)
        self._ids: Final = CheckpointIds(self._calls, endpoint.spawn)
        self._statistics: Final = CheckpointStatistics()
        self._coordinator: Final = CheckpointProtocol(rules, endpoint.rpc_service.random)
        self._events: Final = EventQueue[CoordinatorEvent](self._handle)
        self._steps: Final = self._create_steps()
        self._notices: Final = CheckpointNotifier(
            graph().job_graph.name,
            tasks,
            coordinators,
            notices,
            on_failed=on_failed,
            on_told=self._steps.snapshot_waiting,
        )
        self.commits: Final = commits(self)
        self._timers: Final = CheckpointTimers(
            self._later,
            on_due=self._due,
            on_timeout=self._timed_out,
        )
        self._requests: Final = SnapshotRequests()
        self._publisher: Final = Publisher(
            self._calls, self.commits, endpoint.spawn, self._published, self._publication_failed
        )
        self.lineage: Final = self._create_lineage()
        """What the job starts from, and leaves."""
        self.final: Final = self._create_final(reminder_ms)
        """Hears whose data has ended."""
        # What was published just now, for as long as the coordinator has it told.
        self._content: PublishedContent | None = None
        coordinators.when_backlog_changes(lambda is_any: self._events.put(BacklogChanged(is_any)))

    def _create_steps(self) -> TriggerSteps:
        return TriggerSteps(
            self._tasks,
            self._coordinators,
            self._calls,
            self._ids,
            self._rules,
            self._endpoint.clock,
            handle=self._events.put,
            spawn=self._endpoint.spawn,
            is_pending=lambda key: self._find(key) is not None,
            on_storage_failed=self._storage_failed,
            on_given_up=lambda why: self._notices.given_up(why),
        )

    def _create_lineage(self) -> JobLineage:
        return JobLineage(
            self._job_id,
            self._calls,
            self._ids,
            self.commits,
            self._publisher,
            self._coordinator,
            self._statistics,
        )

    def _create_final(self, reminder_ms: float) -> FinalCheckpoint:
        return FinalCheckpoint(
            self._tasks,
            request=self._request_final,
            is_idle=lambda: not self._coordinator.pending and not self._coordinator.waiting_count,
            later=self._later,
            reminder_ms=reminder_ms,
        )

    # The job

    def status_changed(self, status: JobStatus) -> None:
        """Periodic checkpoints run as long as the job does."""
        if status is JobStatus.RUNNING:
            self._events.put(SchedulingStarted())
            self._take_id_ahead()
        elif status.is_terminal_state():
            self._events.put(SchedulingStopped(_R.CHECKPOINT_COORDINATOR_SHUTDOWN))
        else:
            self._events.put(SchedulingStopped())

    def suspend(self) -> None:
        """Abort all pending checkpoints, and take no periodic ones until `resume`."""
        self._events.put(SchedulingStopped())

    def resume(self) -> None:
        """Take periodic checkpoints again."""
        self._events.put(SchedulingStarted())

    def task_gone(self, attempt_id: ExecutionAttemptId, *, is_failure: bool) -> None:
        """An attempt has ended."""
        self._events.put(TaskGone(attempt_id, is_failure))

    @property
    def newest_id(self) -> int:
        """The checkpoint that the job would restart from; 0 where it would start afresh."""
        return self._coordinator.latest_completed_id

    @property
    def overview(self) -> CheckpointOverview:
        """Return the overview of checkpoints that is shown to people."""
        return self._statistics.overview(
            self._coordinator.pending,
            self._graph(),
            uncommitted_ids=self.commits.undecided_ids,
            blocking_sinks=self.commits.blocking_sinks,
            is_commit_backlog_full=self.commits.is_backlog_full,
            cleaning_count=self._calls.cleaning_count,
            max_concurrent=self._rules.max_concurrent,
        )

    # Requests

    async def trigger(self, kind: SnapshotKind, target: str = "") -> CompletedCheckpoint:
        """Take a snapshot now and return it once it is complete. CheckpointFailedError."""
        number, done = self._requests.wait()
        self._events.put(CheckpointRequested(number, kind, target))
        return await done

    def _request_final(self) -> int:
        number = self._requests.take_number()
        self._events.put(CheckpointRequested(number, SnapshotKind.CHECKPOINT))
        return number

    # Answers of tasks

    def acknowledge(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> None:
        """A subtask's part is stored."""
        checkpoint = self._find(checkpoint_id)
        # This very attempt has to take part: an older one says nothing of the subtask's events.
        if checkpoint is not None and checkpoint.concerns(attempt_id):
            self._coordinators.acknowledged(attempt_id, checkpoint_id)
        self._events.put(TaskAcknowledged(attempt_id, checkpoint_id, snapshot, metrics))
        self._steps.snapshot_waiting()

    def decline(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        text: str,
    ) -> None:
        """A subtask does not take its part."""
        self._events.put(TaskDeclined(attempt_id, checkpoint_id, reason, text))

    # Actions

    def _handle(self, event: CoordinatorEvent) -> None:
        actions = self._coordinator.handle(event, self._now_ms)
        for action in actions:
            self._perform(action)
        self._notices.tell_user(actions)

    def _perform(self, action: CoordinatorAction) -> None:
        match action:
            case CalculatePlan(number):
                self._steps.calculate_plan(number)
            case TakeId(number):
                self._steps.take_id(number)
            case CreateLocation(checkpoint_id, kind, target):
                self._steps.create_location(checkpoint_id, kind, target)
            case SnapshotCoordinators(checkpoint_id):
                self._steps.snapshot_coordinators(checkpoint_id)
            case SendTriggers(checkpoint):
                self._steps.send_triggers(checkpoint)
            case Publish(checkpoint):
                self._publisher.publish(checkpoint, self._graph().job_graph)
            case NotifyComplete(checkpoint):
                self._notify_complete(checkpoint)
            case NotifyAborted():
                self._notify_aborted(action)
            case ArmTimeout(checkpoint_id):
                self._statistics.begun(checkpoint_id, self._now_ms)
                self._timers.perform(action)
            case ArmPeriodicTimer() | CancelTimeout():
                self._timers.perform(action)
            case RegisterSharedState() | DiscardState() | DiscardLocation():
                self._calls.perform(action)
            case CompleteRequest() | FailRequest() | FailJob():
                self._answer(action)

    def _due(self, generation: int) -> None:
        self._events.put(PeriodicTimerFired(generation))
        self._notices.held_up(self._why_held_up(), self.newest_id, self._now_ms)

    def _why_held_up(self) -> str:
        """Return the cause of a delay that never expires by itself; empty if there is none."""
        if self._coordinator.is_publishing or self._coordinator.is_triggering:
            return "the checkpoint storage does not answer"
        if self._coordinator.pending:
            return ""
        if self.commits.is_backlog_full:
            names = ", ".join(f"'{name}'" for name in self.commits.blocking_sinks)
            return f"the sink(s) {names} have not committed the output of earlier checkpoints yet"
        if self._calls.cleaning_count > self._rules.max_concurrent:
            return "files of obsolete checkpoints are not deleted yet"
        return ""

    def _timed_out(self, checkpoint_id: int) -> None:
        checkpoint = self._find(checkpoint_id)
        if checkpoint is None or not checkpoint.waiting:
            self._events.put(CheckpointTimedOut(checkpoint_id))
        else:
            self._endpoint.spawn(self._expire(checkpoint), "ask what holds a checkpoint up")

    async def _expire(self, checkpoint: PendingCheckpoint) -> None:
        """Give it up once it is known where it is stuck; should it get through meanwhile, so much the better."""
        text = await describe_expired(checkpoint, self._graph(), self._tasks)
        self._events.put(CheckpointTimedOut(checkpoint.checkpoint_id, text))

    def _find(self, checkpoint_id: int) -> PendingCheckpoint | None:
        pending = self._coordinator.pending
        return next((each for each in pending if each.checkpoint_id == checkpoint_id), None)

    # The end of a checkpoint

    def _published(self, checkpoint: PendingCheckpoint, content: PublishedContent) -> None:
        checkpoint_id = checkpoint.checkpoint_id
        self._statistics.completed(checkpoint, content.completed, self._now_ms)
        if checkpoint.kind.is_synchronous:
            self._on_final_savepoint(content.completed.uri)
        self._content = content
        self._events.put(Published(checkpoint_id))
        self._content = None
        if not checkpoint.commits:
            self._notices.over(checkpoint_id)
        self._take_id_ahead()

    def _take_id_ahead(self) -> None:
        """For the next periodic checkpoint or, where the job ends before that, for the last one."""
        if self._rules.interval_ms is not None and not self._tasks.has_all_data_ended:
            self._ids.take_ahead()

    def _publication_failed(self, checkpoint: PendingCheckpoint, error: Exception) -> None:
        reason = _R.FINALIZE_CHECKPOINT_FAILURE
        if isinstance(error, CheckpointRefusedError):
            reason = error.reason
        else:
            self._storage_failed(error)
        self._events.put(CheckpointStepFailed(checkpoint.checkpoint_id, reason, str(error)))

    def _notify_complete(self, checkpoint: PendingCheckpoint) -> None:
        checkpoint_id = checkpoint.checkpoint_id
        content = self._content
        assert content is not None and content.completed.checkpoint_id == checkpoint_id
        self.final.published(checkpoint)
        self.commits.published(content.metadata, content.sent)
        position = source_position(content.metadata, self._graph().job_graph)
        self._on_completed(position, content.metadata.timestamp_ms)
        self._notices.complete(checkpoint)

    def _notify_aborted(self, action: NotifyAborted) -> None:
        checkpoint = action.checkpoint
        checkpoint_id = checkpoint.checkpoint_id
        _LOG.info(
            "checkpoint %d of job %s failed: %s",
            checkpoint_id, self._job_id, action.text,
        )  # fmt: skip
        self._statistics.failed(checkpoint, action.reason, action.text, self._now_ms)
        if action.reason is not _R.FINALIZE_CHECKPOINT_FAILURE:
            # What became of that one's files was decided where it failed.
            discard(self._calls, checkpoint)
        self._notices.aborted(checkpoint, action.latest_completed_id)

    def subsumed_left(self, count: int) -> None:
        """Record the number of subsumed checkpoints whose deletion is not done."""
        self._calls.subsumed_left(count)

    def brakes_changed(self) -> None:
        """A sink has committed or has more to commit, or something was deleted."""
        count = self._calls.cleaning_count
        self._events.put(BrakesChanged(count, self.commits.is_backlog_full))

    def _answer(self, action: CompleteRequest | FailRequest | FailJob) -> None:
        match action:
            case CompleteRequest(request):
                assert self._content is not None
                self._requests.complete(request, self._content.completed)
            case FailRequest(request, reason, text):
                self._requests.fail(request, text)
                self.final.failed(request, reason)
                if request.is_periodic:
                    _LOG.debug("no checkpoint was taken: %s (%s)", text, reason.name)
            case FailJob(text, reason):
                # Time may have run out for a process or a message that was lost: a restart mends that.
                repeats = reason is not _R.CHECKPOINT_EXPIRED
                self._on_failed(CheckpointFailedError(text, repeats=repeats))

    # Storage

    def _storage_failed(self, error: Exception) -> None:
        """End the job without a restart if another JobMaster leads it by now; log unexpected errors."""
        if isinstance(error, (CheckpointFencedError, CheckpointExistsError)):
            self._on_failed(error)
        elif not isinstance(error, HeadraceError):
            _LOG.exception("the checkpoint storage failed", exc_info=error)

    @property
    def _now_ms(self) -> float:
        return self._endpoint.clock.monotonic_ms()

    def _later(self, delay_ms: float, action: Callable[[], None]) -> Cancellable:
        return self._endpoint.schedule_run_async(delay_ms, action)


def open_checkpointing(
    endpoint: RpcEndpoint,
    scheduler: Scheduler,
    task_managers: TaskManagers,
    coordination: OperatorCoordinatorHandler,
    settings: Settings,
    run_blocking: BlockingRunner,
    notices: JobNotices,
) -> CheckpointCoordinator:
    """Return the checkpointing of a job. `settings` are the job's over the cluster's. ConfigurationError."""
    rules = CheckpointCoordinatorConfiguration.from_settings(settings)

    def failed(error: HeadraceError) -> None:
        # Never inside a handler of the coordinator or of the scheduler.
        endpoint.run_async(lambda: scheduler.fail_job(Failure.of_error(error)))

    def commits(owner: CheckpointCoordinator) -> SinkCommits:
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

    checkpointing = CheckpointCoordinator(
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
        tasks=CheckpointTasks(
            scheduler, task_managers, after_tasks_finish=rules.after_tasks_finish
        ),
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

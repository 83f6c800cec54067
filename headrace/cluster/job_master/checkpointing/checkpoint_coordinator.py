"""CheckpointCoordinator: takes a job's checkpoints by performing the actions of the CheckpointProtocol.

Runs on the JobMaster's main thread; calls of the storage run on other threads, one at a time.
Source: Flink CheckpointCoordinator (its input and output), SchedulerBase.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.checkpoint.errors import (
    CheckpointExistsError,
    CheckpointFailureReason,
    CheckpointFencedError,
    PublicationUnknownError,
)
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.checkpoint_history import CHECKPOINTS_HISTORY
from headrace.cluster.job_master.checkpointing.checkpoint_notifier import CheckpointNotifier
from headrace.cluster.job_master.checkpointing.checkpoint_statistics_tracker import (
    CheckpointStatisticsTracker,
)
from headrace.cluster.job_master.checkpointing.checkpoint_tasks import (
    CheckpointTasks,
    describe_expired,
)
from headrace.cluster.job_master.checkpointing.commits.sink_commits import SinkCommits
from headrace.cluster.job_master.checkpointing.final_checkpoint import FinalCheckpoint
from headrace.cluster.job_master.checkpointing.job_lineage import JobLineage
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import (
    CheckpointPlan,
    CheckpointRefusedError,
)
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_protocol import (
    CheckpointProtocol,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import (
    ArmPeriodicTimer,
    BacklogChanged,
    BrakesChanged,
    CheckpointPrepared,
    CheckpointRequested,
    CheckpointStepFailed,
    CheckpointTimedOut,
    CoordinatorAction,
    CoordinatorEvent,
    CoordinatorsSnapshotted,
    DiscardFiles,
    FailJob,
    FailRequest,
    NotifyAborted,
    NotifyComplete,
    PeriodicTimerFired,
    PrepareCheckpoint,
    Publish,
    Published,
    RegisterSharedState,
    SchedulingStarted,
    SchedulingStopped,
    SendTriggers,
    SnapshotCoordinators,
    TaskAcknowledged,
    TaskDeclined,
    TaskGone,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import (
    CheckpointRequest,
    PendingCheckpoint,
)
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import (
    CheckpointIdCounter,
    CheckpointIo,
)
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.cluster.job_master.checkpointing.store.metadata_builder import (
    build_metadata,
    source_position,
)
from headrace.cluster.job_master.coordinators.operator_coordinators import OperatorCoordinators
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.scheduler.scheduler import EventQueue
from headrace.cluster.leadership import always_leads
from headrace.core.barriers import (
    NEVER_UNALIGNED,
    AlignmentMode,
    CheckpointOptions,
    SnapshotKind,
)
from headrace.core.clock import Cancellable
from headrace.core.errors import HeadraceError
from headrace.core.ids import ExecutionAttemptId
from headrace.core.lifecycle import JobStatus
from headrace.core.process.failpoints import Failpoint, reach
from headrace.core.threads import BlockingRunner
from headrace.gateways.checkpoint_statistics import (
    CheckpointDetails,
    CheckpointOverview,
    CheckpointStatistics,
)
from headrace.gateways.errors import CheckpointFailedError
from headrace.graph.execution_graph import ExecutionGraph
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)
_R = CheckpointFailureReason
_NO_LOCATION: Final = (
    f"{_R.CHECKPOINT_EXPIRED.value}: the checkpoint storage has not created its location"
)


class CheckpointCoordinator:
    """Takes the checkpoints of one JobMaster.

    `on_failed`: the job must fail over or, if the error is not recoverable, end. `on_final_savepoint` is called with
    the URI of the savepoint that stops the job, before any output is committed; `on_completed` with the source position
    and the timestamp of each checkpoint from which the job may restart. After `reminder_ms`, tasks that wait for a
    checkpoint are notified again.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        graph: Callable[[], ExecutionGraph],
        configuration: CheckpointCoordinatorConfiguration,
        store: CheckpointStore,
        *,
        tasks: CheckpointTasks,
        coordinators: OperatorCoordinators,
        commits: SinkCommits,
        run_blocking: BlockingRunner,
        on_failed: Callable[[HeadraceError], None],
        on_ended: Callable[
            [PendingCheckpoint, CompletedCheckpoint | CheckpointFailureReason], None
        ],
        on_final_savepoint: Callable[[str], None],
        on_completed: Callable[[bytes, int], None],
        notices: JobNotices,
        reminder_ms: float,
        history_size: int = CHECKPOINTS_HISTORY.default,
        fence: Callable[[], None] = always_leads,
    ) -> None:
        self._endpoint: Final = endpoint
        self._graph: Final = graph
        self._configuration: Final = configuration
        self._tasks: Final = tasks
        self._coordinators: Final = coordinators
        self.commits: Final = commits
        self._on_failed: Final = on_failed
        self._on_final_savepoint: Final = on_final_savepoint
        self._on_ended: Final = on_ended
        self._on_completed: Final = on_completed
        self._io: Final = CheckpointIo(
            store, run_blocking, endpoint.spawn, self.brakes_changed, fence
        )
        self._ids: Final = CheckpointIdCounter(self._io, endpoint.spawn)
        self._statistics: Final = CheckpointStatisticsTracker(endpoint.clock, history_size)
        self._protocol: Final = CheckpointProtocol(configuration, endpoint.rpc_service.random)
        self._events: Final = EventQueue[CoordinatorEvent](self._handle)
        self._numbers: Final = itertools.count(1)
        # Futures of callers that wait for a snapshot, by the number of the request.
        self._waiting: Final[dict[int, asyncio.Future[CompletedCheckpoint]]] = {}
        self._periodic_timer: Cancellable | None = None
        self._timeouts: Final[dict[int, Cancellable]] = {}
        # Checkpoints whose operator coordinators will be snapshotted once all their events have arrived.
        self._unsnapshotted: Final = deque[PendingCheckpoint]()
        # Set while no publication is in progress: then the latest checkpoint is known.
        self._is_settled: Final = asyncio.Event()
        self._is_settled.set()
        self._notifier: Final = CheckpointNotifier(
            graph().job_graph.name,
            tasks,
            coordinators,
            notices,
            on_failed=on_failed,
            on_notified=self._snapshot_coordinators,
        )
        self.lineage: Final = self._create_lineage()
        """Finds the checkpoint from which the job starts, and closes the store at its end."""
        self.final: Final = self._create_final(reminder_ms)
        """Takes the last checkpoint when all tasks have processed their data."""
        coordinators.when_quiet(self._snapshot_coordinators)
        coordinators.when_backlog_changes(lambda is_any: self._events.put(BacklogChanged(is_any)))

    def _create_lineage(self) -> JobLineage:
        return JobLineage(
            self._graph().job_graph.job_id,
            self._io,
            self._ids,
            self.commits,
            self._is_settled,
            self._protocol,
            self._statistics,
        )

    def _create_final(self, reminder_ms: float) -> FinalCheckpoint:
        return FinalCheckpoint(
            self._tasks,
            request=self._request_final,
            is_idle=lambda: self._protocol.is_idle,
            later=self._later,
            reminder_ms=reminder_ms,
        )

    # The job

    def status_changed(self, status: JobStatus) -> None:
        """Start periodic checkpoints if the job runs; otherwise stop them, and abort all pending checkpoints."""
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
        """Resume periodic checkpoints."""
        self._events.put(SchedulingStarted())

    def task_gone(self, attempt_id: ExecutionAttemptId, *, is_failure: bool) -> None:
        """Abort the checkpoints that wait for an attempt which has ended."""
        self._events.put(TaskGone(attempt_id, is_failure))

    @property
    def is_periodic(self) -> bool:
        """Return whether checkpoints are taken periodically."""
        return self._configuration.interval_ms is not None

    @property
    def newest_id(self) -> int:
        """Id of the checkpoint from which the job would restart; 0 if it would start anew."""
        return self._protocol.latest_completed_id

    @property
    def overview(self) -> CheckpointOverview:
        """Overview of checkpoints for people."""
        return self._statistics.overview(
            uncommitted_ids=self.commits.undecided_ids,
            blocking_sinks=self.commits.blocking_sinks,
            is_commit_backlog_full=self.commits.is_backlog_full,
            cleaning_count=self._io.cleaning_count,
            max_concurrent=self._configuration.max_concurrent,
        )

    @property
    def statistics(self) -> CheckpointStatistics:
        """Return counts, a summary and the newest checkpoints."""
        return self._statistics.statistics(is_enabled=self.is_periodic)

    def details_of(self, checkpoint_id: int) -> CheckpointDetails | None:
        """Return a checkpoint with its subtasks; None if it is not remembered."""
        return self._statistics.details(checkpoint_id)

    @property
    def all_details(self) -> tuple[CheckpointDetails, ...]:
        """All remembered checkpoints with their subtasks."""
        return self._statistics.all_details

    def subsumed_left(self, count: int) -> None:
        """Record the number of subsumed checkpoints that are not deleted yet."""
        self._io.subsumed_left(count)

    def brakes_changed(self) -> None:
        """Check whether a checkpoint may begin, because a sink's backlog or the number of deletions has changed."""
        count = self._io.cleaning_count
        self._events.put(BrakesChanged(count, self.commits.is_backlog_full))

    # Requests

    async def trigger(self, kind: SnapshotKind, target: str = "") -> CompletedCheckpoint:
        """Take a snapshot now and return it once it is complete. CheckpointFailedError if it fails."""
        number, done = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = done
        self._events.put(CheckpointRequested(number, kind, target))
        return await done

    def _request_final(self) -> int:
        number = next(self._numbers)
        self._events.put(CheckpointRequested(number, SnapshotKind.CHECKPOINT))
        return number

    def _answer(
        self, request: CheckpointRequest, result: CompletedCheckpoint | CheckpointFailedError
    ) -> None:
        waiting = self._waiting.pop(request.number, None)
        if waiting is None or waiting.done():
            return
        if isinstance(result, CheckpointFailedError):
            waiting.set_exception(result)
        else:
            waiting.set_result(result)

    # Answers of tasks

    def acknowledge(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> None:
        """Record the handles of a subtask's stored part."""
        checkpoint = self._find(checkpoint_id)
        # This very attempt must take part: an older one proves nothing about the subtask's events.
        if checkpoint is not None and checkpoint.concerns(attempt_id):
            self._coordinators.acknowledged(attempt_id, checkpoint_id)
            self._statistics.acknowledged(attempt_id, checkpoint_id, snapshot, metrics)
        self._events.put(TaskAcknowledged(attempt_id, checkpoint_id, snapshot, metrics))
        self._snapshot_coordinators()

    def decline(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        text: str,
    ) -> None:
        """Abort a checkpoint because a subtask declines its part."""
        checkpoint = self._find(checkpoint_id)
        if checkpoint is not None and checkpoint.concerns(attempt_id):
            self._statistics.declined(attempt_id, checkpoint_id)
        self._events.put(TaskDeclined(attempt_id, checkpoint_id, reason, text))

    # Actions

    def _handle(self, event: CoordinatorEvent) -> None:
        actions = self._protocol.handle(event, self._now_ms)
        for action in actions:
            self._perform(action)
        self._notifier.tell_user(actions)

    def _perform(self, action: CoordinatorAction) -> None:
        match action:
            case ArmPeriodicTimer(generation, delay_ms):
                if self._periodic_timer is not None:
                    self._periodic_timer.cancel()
                self._periodic_timer = self._later(delay_ms, lambda: self._due(generation))
            case PrepareCheckpoint(request):
                self._prepare(request)
            case SnapshotCoordinators(checkpoint, timeout_ms):
                self._begin(checkpoint, timeout_ms)
            case SendTriggers(checkpoint):
                for attempt_id in checkpoint.plan.to_trigger:
                    self._tasks.trigger(attempt_id, checkpoint)
            case RegisterSharedState(checkpoint_id, snapshot):
                self._io.register_shared(checkpoint_id, snapshot)
            case DiscardFiles(checkpoint_id, options, files):
                self._io.discard(checkpoint_id, options, files)
            case Publish(checkpoint):
                self._publish(checkpoint)
            case NotifyComplete(checkpoint, completed):
                self._notify_complete(checkpoint, completed)
            case NotifyAborted():
                self._notify_aborted(action)
            case FailRequest(request, reason, text):
                self._answer(request, CheckpointFailedError(text))
                self.final.failed(request, reason)
                if request.is_periodic:
                    _LOG.debug("no checkpoint was taken: %s (%s)", text, reason.name)
            case FailJob(text, reason):
                # The time-out may be due to a lost process or message: a restart repairs that.
                repeats = reason is not _R.CHECKPOINT_EXPIRED
                self._on_failed(CheckpointFailedError(text, repeats=repeats))

    # Preparation

    def _prepare(self, request: CheckpointRequest) -> None:
        try:
            plan = self._tasks.plan()
        except CheckpointRefusedError as error:
            self._events.put(CheckpointStepFailed(request.number, error.reason, str(error)))
            if error.is_lasting:
                self._notifier.given_up(str(error))
        else:
            self._endpoint.spawn(self._locate(request, plan), "prepare a checkpoint")

    async def _locate(self, request: CheckpointRequest, plan: CheckpointPlan) -> None:
        """Take the next id, and create the location of the checkpoint's files."""
        number, kind = request.number, request.kind
        try:
            checkpoint_id = await self._ids.take()
        except Exception as error:
            self._storage_failed(error)
            self._events.put(CheckpointStepFailed(number, _R.IO_EXCEPTION, str(error)))
            return
        if not self._protocol.is_preparing(number):
            return
        timestamp_ms, begun_ms = self._endpoint.clock.now_ms(), self._now_ms
        store, wanted = self._io.store, self._options(kind)

        def give_up(reason: CheckpointFailureReason, text: str) -> None:
            if self._protocol.is_preparing(number):
                self._statistics.not_located(
                    checkpoint_id, kind, timestamp_ms, begun_ms, reason, text
                )
                self._events.put(CheckpointStepFailed(number, reason, text))

        timer = self._later(
            self._configuration.timeout_ms, lambda: give_up(_R.CHECKPOINT_EXPIRED, _NO_LOCATION)
        )
        try:
            options = await self._io.call(
                "create a location", lambda: store.locate(checkpoint_id, wanted, request.target)
            )
        except Exception as error:
            self._storage_failed(error)
            give_up(_R.IO_EXCEPTION, str(error))
        else:
            self._events.put(CheckpointPrepared(number, checkpoint_id, timestamp_ms, plan, options))
        finally:
            timer.cancel()

    def _options(self, kind: SnapshotKind) -> CheckpointOptions:
        alignment, timeout_ms = (
            self._configuration.alignment,
            self._configuration.aligned_timeout_ms,
        )
        if kind.is_savepoint and alignment is not AlignmentMode.AT_LEAST_ONCE:
            # A snapshot from which another version of the job may start contains no in-flight data.
            alignment, timeout_ms = AlignmentMode.ALIGNED, NEVER_UNALIGNED
        return CheckpointOptions(kind, alignment, aligned_timeout_ms=timeout_ms)

    def _begin(self, checkpoint: PendingCheckpoint, timeout_ms: float) -> None:
        checkpoint_id = checkpoint.checkpoint_id
        self._statistics.begun(checkpoint)
        self._timeouts[checkpoint_id] = self._later(
            timeout_ms, lambda: self._timed_out(checkpoint_id)
        )
        self._unsnapshotted.append(checkpoint)
        self._snapshot_coordinators()

    def _snapshot_coordinators(self) -> None:
        """Snapshot operator coordinators, unless their events are in flight or held back for an earlier barrier."""
        while self._unsnapshotted and self._coordinators.can_be_snapshotted:
            checkpoint = self._unsnapshotted.popleft()
            checkpoint_id = checkpoint.checkpoint_id
            if self._find(checkpoint_id) is None:
                continue
            try:
                states = self._coordinators.checkpoint(checkpoint_id)
            except Exception as error:
                text = f"an operator coordinator failed: {type(error).__name__}: {error}"
                _LOG.exception("checkpoint %d: %s", checkpoint_id, text)
                number, reason = checkpoint.request.number, _R.TRIGGER_CHECKPOINT_FAILURE
                self._events.put(CheckpointStepFailed(number, reason, text))
            else:
                self._events.put(CoordinatorsSnapshotted(checkpoint_id, states))

    # Timers

    def _due(self, generation: int) -> None:
        self._events.put(PeriodicTimerFired(generation))
        self._notifier.held_up(self._why_held_up(), self.newest_id, self._now_ms)

    def _why_held_up(self) -> str:
        """Return the cause of a delay that does not expire by itself; empty if there is none."""
        if self._protocol.is_publishing or self._protocol.is_triggering:
            return "the checkpoint storage does not respond"
        if self._protocol.pending:
            return ""
        if self.commits.is_backlog_full:
            names = ", ".join(f"'{name}'" for name in self.commits.blocking_sinks)
            return f"the sink(s) {names} have not committed the output of earlier checkpoints yet"
        if self._io.cleaning_count > self._configuration.max_concurrent:
            return "files of obsolete checkpoints are not deleted yet"
        return ""

    def _timed_out(self, checkpoint_id: int) -> None:
        checkpoint = self._find(checkpoint_id)
        if checkpoint is None or not checkpoint.waiting:
            self._events.put(CheckpointTimedOut(checkpoint_id))
        else:
            self._endpoint.spawn(self._expire(checkpoint), "find the cause of a checkpoint's delay")

    async def _expire(self, checkpoint: PendingCheckpoint) -> None:
        """Abort a checkpoint after finding out where it is stuck, unless it completes meanwhile."""
        text = await describe_expired(checkpoint, self._graph(), self._tasks)
        self._events.put(CheckpointTimedOut(checkpoint.checkpoint_id, text))

    def _cancel_timeout(self, checkpoint_id: int) -> None:
        timer = self._timeouts.pop(checkpoint_id, None)
        if timer is not None:
            timer.cancel()

    def _find(self, checkpoint_id: int) -> PendingCheckpoint | None:
        pending = self._protocol.pending
        return next((each for each in pending if each.checkpoint_id == checkpoint_id), None)

    # The end of a checkpoint

    def _publish(self, checkpoint: PendingCheckpoint) -> None:
        self._cancel_timeout(checkpoint.checkpoint_id)
        store = self._io.store
        try:
            acknowledged = build_metadata(
                checkpoint, self._graph().job_graph, store.lineage_id, store.epoch
            )
        except CheckpointRefusedError as error:
            number = checkpoint.request.number
            self._events.put(CheckpointStepFailed(number, error.reason, str(error)))
            return
        metadata = self.commits.complete(acknowledged)
        self._is_settled.clear()
        self._endpoint.spawn(self._store_metadata(checkpoint, metadata), "publish a checkpoint")

    async def _store_metadata(
        self, checkpoint: PendingCheckpoint, metadata: CheckpointMetadata
    ) -> None:
        store = self._io.store
        try:
            completed = await self._io.call(
                "publish", lambda: store.publish(metadata, checkpoint.options)
            )
        except Exception as error:
            self._storage_failed(error)
            number, reason = checkpoint.request.number, _R.FINALIZE_CHECKPOINT_FAILURE
            is_unknown = isinstance(error, PublicationUnknownError)
            self._events.put(CheckpointStepFailed(number, reason, str(error), is_unknown))
        else:
            self._statistics.completed(checkpoint, completed, store.retained_ids)
            if checkpoint.kind.is_synchronous:
                self._on_final_savepoint(completed.uri)
            self._events.put(Published(completed))
            self._take_id_ahead()
        finally:
            self._is_settled.set()

    def _take_id_ahead(self) -> None:
        """Reserve an id for the next periodic checkpoint or, if the job ends before, for the last one."""
        if self.is_periodic and not self._tasks.has_all_data_ended:
            self._ids.take_ahead()

    def _notify_complete(
        self, checkpoint: PendingCheckpoint, completed: CompletedCheckpoint
    ) -> None:
        metadata = completed.metadata
        reach(Failpoint.CHECKPOINT_PUBLISHED)
        if checkpoint.commits:
            self.final.published(checkpoint)
            self.commits.published(metadata, checkpoint.committable_keys)
            position = source_position(metadata, self._graph().job_graph)
            self._on_completed(position, metadata.timestamp_ms)
            self._notifier.complete(checkpoint)
        else:
            self._notifier.over(checkpoint.checkpoint_id)
        self._answer(checkpoint.request, completed)
        self._on_ended(checkpoint, completed)

    def _notify_aborted(self, action: NotifyAborted) -> None:
        checkpoint, checkpoint_id = action.checkpoint, action.checkpoint.checkpoint_id
        reason, text = action.reason, action.text
        job_id = self._graph().job_graph.job_id
        _LOG.info("checkpoint %d of job %s failed: %s", checkpoint_id, job_id, text)
        self._cancel_timeout(checkpoint_id)
        self._statistics.failed(checkpoint, reason, text)
        if not action.keeps_files:
            files = (each for one in checkpoint.snapshots.values() for each in one.files())
            self._io.discard(checkpoint_id, checkpoint.options, files)
        self._notifier.aborted(checkpoint, action.latest_completed_id)
        self._on_ended(checkpoint, reason)

    def _storage_failed(self, error: Exception) -> None:
        """End the job without a restart if another JobMaster now leads it; log unexpected errors."""
        if isinstance(error, (CheckpointFencedError, CheckpointExistsError)):
            self._on_failed(error)
        elif not isinstance(error, HeadraceError):
            _LOG.exception("the checkpoint storage failed unexpectedly", exc_info=error)

    @property
    def _now_ms(self) -> float:
        return self._endpoint.clock.monotonic_ms()

    def _later(self, delay_ms: float, action: Callable[[], None]) -> Cancellable:
        return self._endpoint.schedule_run_async(delay_ms, action)

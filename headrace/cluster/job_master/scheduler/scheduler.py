"""Scheduler: passes events to the job's state, and performs its actions through the services of the JobMaster.

Runs on the JobMaster's main thread; no event may re-enter a handler, so events that arise inside one are queued.
Source: Flink AdaptiveScheduler, DefaultScheduler.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from headrace.checkpoint.handles import SubtaskRestore
from headrace.cluster.job_master.connections.cached_results import DataSetLookup
from headrace.cluster.job_master.connections.partition_registrar import PartitionRegistrar
from headrace.cluster.job_master.connections.slot_requests import SlotRequests
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.executions import (
    ATTEMPTS_HISTORY_SIZE,
    Execution,
    Executions,
    ReportVerdict,
)
from headrace.cluster.job_master.failover.failover_strategies import FinishedRegions
from headrace.cluster.job_master.failover.failure_handler import ExecutionFailureHandler
from headrace.cluster.job_master.failover.failure_history import Failure, FailureHistory
from headrace.cluster.job_master.failover.restart_strategies import RestartStrategy
from headrace.cluster.job_master.results.cached_inputs import CachedInputs, DataSetPlaces
from headrace.cluster.job_master.results.partition_tracker import PartitionTracker
from headrace.cluster.job_master.scheduler.deployment_plan import registrations_of
from headrace.cluster.job_master.scheduler.execution_deployer import ExecutionDeployer
from headrace.cluster.job_master.scheduler.scheduler_states import (
    Created,
    Ended,
    RegisteringPartitions,
    Restoring,
    SchedulerState,
    WaitingForSlots,
)
from headrace.cluster.job_master.slots.slot_pool import SlotPool
from headrace.cluster.job_master.slots.slot_sharing import GroupSlots, share_slots
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    ResourceId,
)
from headrace.core.lifecycle import ExecutionState, JobStatus, check_job_transition
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.gateways.messages import ErrorInfo, ExecutionReport
from headrace.graph.execution_graph import expand
from headrace.graph.job_graph import JobGraph

E = TypeVar("E")


@dataclass(frozen=True)
class SchedulerServices:
    """Services of one JobMaster through which its scheduler acts; every call returns at once.

    `restore(scope, version)` finds the state of subtasks, and answers with `Scheduler.restored` or `fail_job`.
    `commit()` lets the coordinators finish, and answers with `Scheduler.committed` or `fail_job`.
    `execution_changed` and `status_changed` are called with each change of an execution and of the job.
    `restarts(cause, delay_ms, restart_count)` is called once for each restart.
    `schedule_run_async(delay_ms, action)` runs an action later on the main thread.
    """

    task_managers: TaskManagers
    slots: SlotRequests
    registrar: PartitionRegistrar
    data_sets: DataSetLookup
    restore: Callable[[frozenset[ExecutionVertexId], int], None]
    commit: Callable[[], None]
    execution_changed: Callable[[Execution], None]
    status_changed: Callable[[JobStatus], None]
    restarts: Callable[[Failure, float, int], None]
    schedule_run_async: Callable[[float, Callable[[], None]], object]


class Scheduler:
    """Executions, slots and state of one job. `connect` must be called once, before any other call."""

    services: SchedulerServices
    _deployer: ExecutionDeployer

    def __init__(
        self,
        graph: JobGraph,
        strategy: RestartStrategy,
        clock: Clock,
        partitions: PartitionTracker,
        settings: Settings | None = None,
        first_attempt_number: int = 0,
        submitted_ms: int | None = None,
    ) -> None:
        """Set up the job; `submitted_ms` is the time of its submission to its first leader, None for now."""
        self.graph = graph
        self.clock = clock
        self.pool = SlotPool()
        self.partitions = partitions
        settings = settings or Settings()
        self.executions = Executions(
            graph,
            clock.now_ms(),
            settings.get_option(ATTEMPTS_HISTORY_SIZE),
            first_attempt_number,
        )
        first = JobStatus.RECONCILING if first_attempt_number else JobStatus.INITIALIZING
        now_ms = clock.now_ms()
        # The clock of the host that accepted the job may be ahead.
        self.started_ms = now_ms if submitted_ms is None else min(submitted_ms, now_ms)
        """Time at which the job was submitted, under any leader."""
        self.status_timestamps_ms = {JobStatus.INITIALIZING.name: self.started_ms}
        self.status_timestamps_ms.setdefault(first.name, now_ms)
        self.execution_graph = expand(graph)
        self.failures: Final = ExecutionFailureHandler(
            self.execution_graph,
            self.executions,
            partitions,
            strategy,
            clock,
            settings,
            lambda cause, delay_ms, count: self.services.restarts(cause, delay_ms, count),
        )
        """Records failures and decides on restarts; used by the states."""
        self._regions = FinishedRegions(self.execution_graph)
        self.cached_inputs: Final = CachedInputs(graph)
        self._slots = GroupSlots(share_slots(self.execution_graph), self.pool)
        # Subtasks that are being started or restarted; empty while all run or have ended.
        self._set_scope(self.executions.subtasks)
        self._restores: Mapping[ExecutionVertexId, SubtaskRestore] = {}
        self._created = Created(self, first)
        self._state: SchedulerState = self._created
        # Incremented with every deployment: answers to an older one have no effect.
        self._version = 0
        self._events: Final = EventQueue[Callable[[SchedulerState], SchedulerState]](
            lambda event: self._transition(event(self._state))
        )

    def connect(self, services: SchedulerServices) -> None:
        """Set the services of the scheduler, which may already refer to it."""
        self.services = services
        self._deployer = ExecutionDeployer(
            lambda: self.execution_graph,
            self.executions,
            self.partitions,
            self.cached_inputs,
            services.task_managers,
            services.registrar,
            self._become,
            self.submit_answered,
        )

    @property
    def status(self) -> JobStatus:
        """Status of the job."""
        return self._state.status

    @property
    def is_waiting_for_slots(self) -> bool:
        """Return whether nothing is deployed because slots are missing."""
        return isinstance(self._state, WaitingForSlots)

    @property
    def is_waiting_with_nothing_deployed(self) -> bool:
        """Return whether the job waits for slots, and no part of it is deployed meanwhile."""
        return self.is_waiting_for_slots and not any(each.is_deployed for each in self.executions)

    @property
    def is_any_part_running(self) -> bool:
        """Return whether a task has its slot and is not being cancelled."""
        return any(
            each.is_deployed and each.state is not ExecutionState.CANCELING
            for each in self.executions
        )

    @property
    def history(self) -> FailureHistory:
        """Failures of the job so far."""
        return self.failures.history

    def awaits_restore(self, version: int) -> bool:
        """Return whether the answer to this `SchedulerServices.restore` call still counts."""
        return version == self._version and isinstance(self._state, Restoring)

    def adopt(self, graph: JobGraph) -> None:
        """Replace the graph by the same one with the max parallelism of restored state, before any deployment."""
        self.graph = graph
        self.execution_graph = expand(graph)

    def checkpoint_completed(self, position: bytes, triggered_ms: int) -> None:
        """Record a checkpoint that counts as progress, with the source position `position`."""
        self.failures.checkpoint_completed(position, triggered_ms)

    def stopped_with(self, savepoint_uri: str) -> None:
        """Record that the savepoint which stops the job is complete: no restart may follow or continue."""
        self.failures.stopped_with(savepoint_uri)
        self._events.put(lambda state: state.savepoint_completed())

    # Events

    def start(self) -> None:
        """Start the job."""
        self._events.put(lambda state: self._created.start() if state is self._created else state)

    def slots_changed(self) -> None:
        """Handle that slots were accepted."""
        self._events.put(lambda state: state.slots_changed())

    def report(self, report: ExecutionReport) -> ReportVerdict:
        """Apply a TaskManager's report of a task's state."""
        verdict = self.executions.report(report, self.clock.now_ms())
        execution = self.executions.find(report.attempt_id)
        if verdict is ReportVerdict.APPLIED and execution is not None:
            self._changed(execution)
        return verdict

    def submit_answered(self, attempt_id: ExecutionAttemptId, error: ErrorInfo | None) -> None:
        """Handle a TaskManager's answer to a submission; `error` is None if it accepted the task."""
        execution = self.executions.find(attempt_id)
        if execution is None:
            return
        execution.is_submit_pending = False
        if error is not None:
            self.lose(execution, error)

    def lose(self, execution: Execution, error: ErrorInfo) -> None:
        """Handle that an execution cannot continue in its slot."""
        if not execution.state.is_terminal:
            self.executions.lose(execution, error, self.clock.now_ms())
            self._changed(execution)

    def lose_task_manager(self, resource_id: ResourceId, error: ErrorInfo) -> None:
        """Handle the loss of a TaskManager with all its slots."""
        lost = self.executions.on_task_manager(resource_id)
        subtasks = (each.attempt_id.execution_vertex_id for each in self.executions)
        readers = filter(self._regions.needs_input, subtasks)
        error = self.cached_inputs.lost_with(resource_id, readers) or error
        error = self.executions.with_tasks(error, lost)
        self.partitions.lost(resource_id)
        self.pool.fail_task_manager(resource_id)
        for execution in lost:
            self.lose(execution, error)

    def restored(self, restores: Mapping[ExecutionVertexId, SubtaskRestore], version: int) -> None:
        """Handle the state found for the scope; subtasks without an entry in `restores` start without state."""
        if self.awaits_restore(version):
            self._restores = restores
            self._events.put(lambda state: state.restored())

    def inputs_found(self, places: DataSetPlaces, version: int) -> None:
        """Handle the locations of earlier jobs' data sets; ignored if they were requested again meanwhile."""
        if not self._is_registering(version):
            return
        error = self.cached_inputs.found(places)
        if error is not None:
            self.fail_job(Failure(error))
        else:
            self._register_partitions()

    def lookup_failed(self, error: ErrorInfo, version: int) -> None:
        """Handle that the ResourceManager did not return the locations in time.

        Ignored if requested again meanwhile.
        """
        if self._is_registering(version):
            self.fail_job(Failure(error))

    def partitions_registered(self, descriptors: Sequence[ShuffleDescriptor], version: int) -> None:
        """Handle the registration of all partitions; if it comes too late, external ones are released."""
        if not self._is_registering(version):
            self.services.registrar.release_externally(
                [each for each in descriptors if each.is_external]
            )
            return
        self._deployer.partitions_registered(descriptors)
        self._events.put(lambda state: state.partitions_registered())

    def registration_failed(self, attempt_id: ExecutionAttemptId, error: ErrorInfo) -> None:
        """Handle that the shuffle master rejected a partition of this attempt, or did not answer in time."""
        execution = self.executions.find(attempt_id)
        if execution is not None:
            self.lose(execution, error)

    def data_ended(self, attempt_id: ExecutionAttemptId) -> bool:
        """Record that a task has processed all its data and waits; return False if it is not the current attempt."""
        execution = self.executions.find(attempt_id)
        if execution is None:
            return False
        execution.has_data_ended = True
        return True

    def fail_job(self, failure: Failure) -> None:
        """Fail the job as a whole."""
        self._events.put(lambda state: state.failed(failure))

    def slots_cannot_come(self, failure: Failure) -> None:
        """Handle that the slots will not come; no effect once the job has them."""
        self._events.put(lambda state: state.slots_cannot_come(failure))

    def committed(self) -> None:
        """Handle that the coordinators have finished."""
        self._events.put(lambda state: state.committed())

    def cancel(self) -> None:
        """Cancel the job for the user."""
        self._events.put(lambda state: state.cancel())

    # Actions of the states

    def restore(self) -> None:
        """Find the state from which the scope starts; the answer is `restored` or `fail_job`."""
        self._version += 1
        self.services.restore(self._scope, self._version)

    def declare_slots(self) -> None:
        """Declare all slots that the job needs, without waiting for them yet."""
        self.services.slots.declare(self._slots.profiles)

    def await_slots(self) -> None:
        """Declare all slots that the job needs, and start the timer of `slot.request.timeout`."""
        for execution in self.executions.of(self._scope):
            self._become(execution, ExecutionState.SCHEDULED)
        self.services.slots.request(self._slots.profiles)

    def reserve_slots(self) -> bool:
        """Reserve a slot for every execution slot sharing group of the scope that has none; all or none."""
        slots = self._slots.reserve(self._scope)
        if slots is None:
            return False
        location_of = self.services.task_managers.location_of
        for subtask, slot in slots.items():
            execution, place = self.executions.current(subtask), location_of(slot.resource_id)
            execution.slot, execution.endpoint = slot, f"{place.host}:{place.data_port}"
        return True

    def register_partitions(self) -> None:
        """Register all partitions of the scope at the shuffle master, after finding the inputs from earlier jobs.

        The answer is `partitions_registered`, `registration_failed` or `lookup_failed`.
        """
        self._version += 1
        needed = self.cached_inputs.needed_by(self._scope)
        if needed:
            self.services.data_sets.find(
                needed, self._version, self.inputs_found, self.lookup_failed
            )
        else:
            self._register_partitions()

    def _register_partitions(self) -> None:
        location_of = self.services.task_managers.location_of
        registrations = [
            registration
            for execution in self.executions.of(self._scope)
            for registration in registrations_of(self.execution_graph, execution, location_of)
        ]
        self.services.registrar.register(
            registrations, self._version, self.partitions_registered, self.registration_failed
        )

    def deploy(self) -> None:
        """Submit every execution of the scope, producers first, and empty the scope."""
        restores, self._restores = self._restores, {}
        starting = self.executions.of(self._scope)
        self._set_scope(frozenset())
        self.history.overcome()
        self._deployer.deploy(starting, restores)

    def cancel_executions(self) -> None:
        """Cancel every execution that has not ended."""
        self.failures.not_restarting()
        self._cancel(self.executions)

    def cancel_scope(self) -> None:
        """Cancel the executions of the scope that have not ended."""
        self._cancel(self.executions.of(self._scope))

    def _cancel(self, executions: Iterable[Execution]) -> None:
        now_ms = self.clock.now_ms()
        for execution in executions:
            before = execution.state
            if self.executions.cancel(execution, now_ms):
                self.services.task_managers.cancel_task(execution)
            if execution.state is not before:
                self.services.execution_changed(execution)

    @property
    def has_scope_ended(self) -> bool:
        """Return whether all executions of the scope have ended."""
        return self._scope_end.holds

    def decide_failover(self, failure: Failure) -> float | None:
        """Remember a failure and widen the scope; return the pause before a restart in ms, or None if it is final."""
        delay_ms = self.failures.decide(failure)
        if delay_ms is not None:
            self.widen_scope(failure)
        return delay_ms

    def widen_scope(self, failure: Failure) -> None:
        """Add to the scope the subtasks that must restart because of this failure."""
        self._set_scope(self.failures.subtasks_to_restart(failure, self._scope))

    def start_backoff_timer(self, delay_ms: float) -> None:
        """Call `backoff_over` of the state after `delay_ms`."""
        self._version += 1
        version = self._version

        def is_over() -> None:
            if version == self._version:
                self._events.put(lambda state: state.backoff_over())

        self.services.schedule_run_async(delay_ms, is_over)

    def prepare_restart(self) -> None:
        """Give the executions of the scope new attempts."""
        self._version += 1
        self.failures.restarting()
        self._deployer.restarted(self._scope)
        self._regions.restarted(self._scope)
        self.executions.reset(self._scope, self.clock.now_ms())
        self._set_scope(self._scope)

    @property
    def has_ended(self) -> bool:
        """Return whether the job has reached its last status."""
        return isinstance(self._state, Ended)

    # Machinery

    def _is_registering(self, version: int) -> bool:
        return version == self._version and isinstance(self._state, RegisteringPartitions)

    def _set_scope(self, subtasks: frozenset[ExecutionVertexId]) -> None:
        self._scope = subtasks
        self._scope_end = self.executions.end_of(subtasks)

    def _changed(self, execution: Execution) -> None:
        self.services.execution_changed(execution)
        if not execution.state.is_terminal:
            return
        if execution.state is ExecutionState.FAILED:
            self._events.put(lambda state: state.failed(self._failure_of(execution)))
            return
        if execution.state is ExecutionState.FINISHED:
            subtask = execution.attempt_id.execution_vertex_id
            self._deployer.finished(self._regions.finished(subtask))
        if execution.error is not None:
            # It failed while it was being cancelled: perhaps it caused the failures of the others.
            self.failures.refine(self._failure_of(execution))
        self._events.put(lambda state: state.execution_ended(execution))

    def _failure_of(self, execution: Execution) -> Failure:
        if execution.error is not None and execution.error.lost_data_set is not None:
            # A restarted job must not get this data set again.
            self.services.data_sets.release_data_set(execution.error.lost_data_set)
        return Failure.of_execution(execution)

    def _become(self, execution: Execution, state: ExecutionState) -> None:
        execution.become(state, self.clock.now_ms())
        self.services.execution_changed(execution)

    def _transition(self, following: SchedulerState) -> None:
        while following is not self._state:
            before = self._state.status
            self._state = following
            if following.status is not before:
                check_job_transition(before, following.status)
                self.status_timestamps_ms[following.status.name] = self.clock.now_ms()
                self.services.status_changed(following.status)
                if following.status in (JobStatus.FAILING, JobStatus.CANCELLING):
                    # Nothing more will be deployed: lost results need not be replaced.
                    self.services.slots.declare(())
            following = following.enter()


class EventQueue(Generic[E]):
    """Queue that handles each event to its end before the next. One thread; after an error the rest stays queued."""

    def __init__(self, handle: Callable[[E], None]) -> None:
        self._handle: Final = handle
        self._events: deque[E] = deque()
        self._is_handling = False

    def put(self, event: E) -> None:
        """Handle the event now or, if called from within a handler, once that has returned."""
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._is_handling = False

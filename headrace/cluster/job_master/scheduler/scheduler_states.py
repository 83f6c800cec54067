"""States of a job from its submission to its end: one small class per state, whose handlers return the next state.

    Created -> Restoring -> WaitingForSlots -> RegisteringPartitions -> Executing -> Finishing -> Ended(FINISHED)
                  ^   | failure   | failure      | failure                | failure    | a commit failed
                  |   v           v              v                        v            v
                Restarting <--   or   --> Failing -> Ended(FAILED)
    the savepoint to stop with is complete, from Restarting or the Restoring after it: Failing
    a user's cancel from anywhere but Finishing: Cancelling -> Ended(CANCELED)

The states restore, deploy and restart the scheduler's scope: all subtasks at first, and after a failure those that the
failover strategy chooses, while the others run on. A failure of another subtask meanwhile widens the scope. States
decide, and act through their Scheduler; an action answers only by an event to the present state.
A job that this leader goes on with is RECONCILING until deployment begins, other than one that starts: its first
states are the same ones, with another status.
Source: Flink AdaptiveScheduler and its states.
"""

from typing import TYPE_CHECKING

from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.core.lifecycle import ExecutionState, JobStatus

if TYPE_CHECKING:
    from headrace.cluster.job_master.scheduler.scheduler import Scheduler


class SchedulerState:
    """Base: every event leaves the state as it is, except cancellation and failure."""

    status: JobStatus

    def __init__(self, scheduler: "Scheduler") -> None:
        self.scheduler = scheduler

    def enter(self) -> "SchedulerState":
        """Called once, right after the transition; may lead on at once."""
        return self

    def restored(self) -> "SchedulerState":
        """The checkpoint from which the scope starts was found."""
        return self

    def slots_changed(self) -> "SchedulerState":
        """Slots were accepted."""
        return self

    def partitions_registered(self) -> "SchedulerState":
        """The shuffle master knows all partitions."""
        return self

    def execution_ended(self, execution: Execution) -> "SchedulerState":
        """An execution reached a terminal state that is no failure; cancelled though nobody asked for it, it is one."""
        if execution.state is ExecutionState.CANCELED:
            return self.failed(Failure.unexpected_cancellation(execution))
        return self

    def backoff_over(self) -> "SchedulerState":
        """The pause before a restart is over."""
        return self

    def committed(self) -> "SchedulerState":
        """All coordinators have finished."""
        return self

    def savepoint_completed(self) -> "SchedulerState":
        """The savepoint is complete with which the job stops."""
        return self

    def failed(self, failure: Failure) -> "SchedulerState":
        """An execution or a coordinator failed, or what the present state waits for."""
        delay_ms = self.scheduler.decide_failover(failure)
        if delay_ms is None:
            return Failing(self.scheduler)
        return Restarting(self.scheduler, delay_ms)

    def slots_cannot_come(self, failure: Failure) -> "SchedulerState":
        """The search for slots failed; without effect where none are needed, or no longer."""
        return self

    def cancel(self) -> "SchedulerState":
        """The user wants the job to end."""
        return Cancelling(self.scheduler)


class Created(SchedulerState):
    """The graph is known, nothing has begun. `status`: of this state and of those until the job is RUNNING."""

    def __init__(self, scheduler: "Scheduler", status: JobStatus) -> None:
        super().__init__(scheduler)
        self.status = status

    def start(self) -> SchedulerState:
        """Begin."""
        return RestoringFirst(self.scheduler, self.status)

    def failed(self, failure: Failure) -> SchedulerState:
        """A coordinator could not be started: final."""
        self.scheduler.decide_failover(failure)
        return Failing(self.scheduler)


class Restoring(SchedulerState):
    """Finds the state the scope starts from, and commits all published output, before anything is deployed."""

    status = JobStatus.RESTARTING

    def enter(self) -> SchedulerState:
        """Ask."""
        self.scheduler.restore()
        return self

    def restored(self) -> SchedulerState:
        """Go on."""
        return WaitingForSlots(self.scheduler)

    def savepoint_completed(self) -> SchedulerState:
        self.scheduler.failures.forbid_restart()
        return Failing(self.scheduler)


class RestoringFirst(Restoring):
    """Restores when the job begins; slots arrive meanwhile, as the restored state does not change their number."""

    def __init__(self, scheduler: "Scheduler", status: JobStatus) -> None:
        super().__init__(scheduler)
        self.status = status

    def enter(self) -> SchedulerState:
        """Declare and ask."""
        self.scheduler.declare_slots()
        return super().enter()

    def failed(self, failure: Failure) -> SchedulerState:
        """Fail the job for good: neither its checkpoint nor its slots would be there after a restart."""
        self.scheduler.decide_failover(failure.as_final())
        return Failing(self.scheduler)

    def restored(self) -> SchedulerState:
        """Go on; a job that is new is CREATED for this moment."""
        if self.status is JobStatus.RECONCILING:
            return Reconciling(self.scheduler)
        return RestoredFirst(self.scheduler)

    def slots_cannot_come(self, failure: Failure) -> SchedulerState:
        """Fail without waiting for the checkpoint: there are no slots to restore it into."""
        return self.failed(failure)


class RestoredFirst(SchedulerState):
    """Everything is known that the job starts from; nobody sees it here, as nothing is left to wait for."""

    status = JobStatus.CREATED

    def enter(self) -> SchedulerState:
        """Go on."""
        return WaitingForSlots(self.scheduler)


class WaitingForSlots(SchedulerState):
    """Slots were declared; deployment waits for all of them."""

    status = JobStatus.RUNNING

    def enter(self) -> SchedulerState:
        """Declare, and begin to wait."""
        self.scheduler.await_slots()
        return self.slots_changed()

    def slots_changed(self) -> SchedulerState:
        """Go on once every group has its slot."""
        return RegisteringPartitions(self.scheduler) if self.scheduler.reserve_slots() else self

    def slots_cannot_come(self, failure: Failure) -> SchedulerState:
        """There is no use in waiting."""
        return self.failed(failure)


class Reconciling(WaitingForSlots):
    """Waits for slots under a new leader: of TaskManagers that register again, and of new ones for the others."""

    status = JobStatus.RECONCILING


class RegisteringPartitions(SchedulerState):
    """Every execution has its slot; nothing is deployed before it is known where each result is going to lie."""

    status = JobStatus.RUNNING

    def enter(self) -> SchedulerState:
        """Register."""
        self.scheduler.register_partitions()
        return self

    def partitions_registered(self) -> SchedulerState:
        """Go on."""
        return Executing(self.scheduler)


class Executing(SchedulerState):
    """Executions are being deployed or run."""

    status = JobStatus.RUNNING

    def enter(self) -> SchedulerState:
        """Deploy."""
        self.scheduler.deploy()
        return self

    def execution_ended(self, execution: Execution) -> SchedulerState:
        """The job finishes with its last execution."""
        if self.scheduler.executions.all_finished:
            return Finishing(self.scheduler)
        return super().execution_ended(execution)


class Finishing(SchedulerState):
    """Every execution is FINISHED; coordinators commit."""

    status = JobStatus.RUNNING

    def enter(self) -> SchedulerState:
        """Commit."""
        self.scheduler.services.commit()
        return self

    def committed(self) -> SchedulerState:
        """Done."""
        return Ended(self.scheduler, JobStatus.FINISHED)

    def failed(self, failure: Failure) -> SchedulerState:
        """A failed commit is final: the tasks that could repeat it have ended."""
        self.scheduler.decide_failover(failure.as_final())
        return Failing(self.scheduler)

    def cancel(self) -> SchedulerState:
        """Too late: output that is being written is not called cancelled; the job ends as its commit does."""
        return self


class _CancellingExecutions(SchedulerState):
    """Waits until every execution has ended."""

    def enter(self) -> SchedulerState:
        """Cancel them."""
        self.scheduler.cancel_executions()
        return self._next()

    def execution_ended(self, execution: Execution) -> SchedulerState:
        """Count down."""
        return self._next()

    def failed(self, failure: Failure) -> SchedulerState:
        """Executions may still fail; the first failure stays the cause, unless it was only a consequence."""
        self.scheduler.failures.refine(failure)
        return self._next()

    def _next(self) -> SchedulerState:
        return self._after() if self.scheduler.executions.all_ended else self

    def _after(self) -> SchedulerState:
        raise NotImplementedError


class Failing(_CancellingExecutions):
    """The failure is final; tasks are being cancelled."""

    status = JobStatus.FAILING

    def _after(self) -> SchedulerState:
        return Ended(self.scheduler, JobStatus.FAILED)


class Cancelling(_CancellingExecutions):
    """The user cancelled; tasks are being cancelled."""

    status = JobStatus.CANCELLING

    def cancel(self) -> SchedulerState:
        """Once is enough."""
        return self

    def _after(self) -> SchedulerState:
        return Ended(self.scheduler, JobStatus.CANCELED)


class Restarting(SchedulerState):
    """The scope is being cancelled, and the pause runs; both must be over."""

    status = JobStatus.RESTARTING

    def __init__(self, scheduler: "Scheduler", delay_ms: float) -> None:
        super().__init__(scheduler)
        self._delay_ms = delay_ms
        self._is_backoff_over = False

    def enter(self) -> SchedulerState:
        """Start the pause, then cancel."""
        self.scheduler.start_backoff_timer(self._delay_ms)
        self.scheduler.cancel_scope()
        return self._next()

    def execution_ended(self, execution: Execution) -> SchedulerState:
        """Count down, unless it is one that was to run on."""
        if execution.state is ExecutionState.CANCELED and not execution.was_cancelled:
            return self.failed(Failure.unexpected_cancellation(execution))
        return self._next()

    def failed(self, failure: Failure) -> SchedulerState:
        """One more failure belongs to the same restart, unless it forbids any."""
        self.scheduler.failures.refine(failure)
        if failure.is_final or not failure.error.recoverable:
            return Failing(self.scheduler)
        self.scheduler.widen_scope(failure)
        self.scheduler.cancel_scope()
        return self._next()

    def savepoint_completed(self) -> SchedulerState:
        """Fail the job, and start from nothing older than the savepoint: that would emit its output twice."""
        self.scheduler.failures.forbid_restart()
        return Failing(self.scheduler)

    def backoff_over(self) -> SchedulerState:
        """The pause is over."""
        self._is_backoff_over = True
        return self._next()

    def _next(self) -> SchedulerState:
        if not self._is_backoff_over or not self.scheduler.has_scope_ended:
            return self
        self.scheduler.prepare_restart()
        return Restoring(self.scheduler)


class Ended(SchedulerState):
    """Nothing follows."""

    def __init__(self, scheduler: "Scheduler", status: JobStatus) -> None:
        super().__init__(scheduler)
        assert status.is_globally_terminal_state()
        self.status = status

    def failed(self, failure: Failure) -> SchedulerState:
        """Too late."""
        return self

    def cancel(self) -> SchedulerState:
        """Too late."""
        return self

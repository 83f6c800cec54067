"""States of a job from its submission to its end: one class per state, whose handlers return the next state.

    Created -> Restoring -> WaitingForSlots -> RegisteringPartitions -> Executing -> Finishing -> Ended(FINISHED)
                  ^   | failure   | failure      | failure                | failure    | a commit failed
                  |   v           v              v                        v            v
                Restarting <--   or   --> Failing -> Ended(FAILED)
    the savepoint to stop with is complete, from Restarting or the Restoring after it: Failing
    a user's cancel from anywhere but Finishing: Cancelling -> Ended(CANCELED)

The states restore, deploy and restart the scheduler's scope: first all subtasks, and after a failure those that the
failover strategy chooses, while the others keep running. A failure of another subtask meanwhile widens the scope.
States decide, and act through their Scheduler; actions answer only by events to the current state. A job that this
leader continues is RECONCILING until deployment begins, unlike one that starts: its first states are the same ones,
with another status.
Source: Flink AdaptiveScheduler and its states.
"""

from typing import TYPE_CHECKING

from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.core.lifecycle import ExecutionState, JobStatus

if TYPE_CHECKING:
    from headrace.cluster.job_master.scheduler.scheduler import Scheduler


class SchedulerState:
    """Base of states: by default every event leaves the state unchanged, except cancellation and failure."""

    status: JobStatus

    def __init__(self, scheduler: "Scheduler") -> None:
        self.scheduler = scheduler

    def enter(self) -> "SchedulerState":
        """Act on the transition to this state, and return the next state, which may be this one. Called once."""
        return self

    def restored(self) -> "SchedulerState":
        """Handle that the state from which the scope starts was found."""
        return self

    def slots_changed(self) -> "SchedulerState":
        """Handle that slots were accepted."""
        return self

    def partitions_registered(self) -> "SchedulerState":
        """Handle that the shuffle master has registered all partitions."""
        return self

    def execution_ended(self, execution: Execution) -> "SchedulerState":
        """Handle the end of an execution without failure; a cancellation that was not requested counts as a failure."""
        if execution.state is ExecutionState.CANCELED:
            return self.failed(Failure.unexpected_cancellation(execution))
        return self

    def backoff_over(self) -> "SchedulerState":
        """Handle the end of the pause before a restart."""
        return self

    def committed(self) -> "SchedulerState":
        """Handle that all coordinators have finished."""
        return self

    def savepoint_completed(self) -> "SchedulerState":
        """Handle that the savepoint which stops the job is complete."""
        return self

    def failed(self, failure: Failure) -> "SchedulerState":
        """Handle the failure of an execution, a coordinator or the current state's action."""
        delay_ms = self.scheduler.decide_failover(failure)
        if delay_ms is None:
            return Failing(self.scheduler)
        return Restarting(self.scheduler, delay_ms)

    def slots_cannot_come(self, failure: Failure) -> "SchedulerState":
        """Handle that slots will not come; no effect if none are needed now."""
        return self

    def cancel(self) -> "SchedulerState":
        """Cancel the job for the user."""
        return Cancelling(self.scheduler)


class Created(SchedulerState):
    """Initial state, before anything has begun.

    `status`: of this state and the following ones until the job is RUNNING.
    """

    def __init__(self, scheduler: "Scheduler", status: JobStatus) -> None:
        super().__init__(scheduler)
        self.status = status

    def start(self) -> SchedulerState:
        """Start the job."""
        return RestoringFirst(self.scheduler, self.status)

    def failed(self, failure: Failure) -> SchedulerState:
        """Fail the job, because a coordinator could not be started."""
        self.scheduler.decide_failover(failure)
        return Failing(self.scheduler)


class Restoring(SchedulerState):
    """Finds the state from which the scope starts, and commits all published output, before any deployment."""

    status = JobStatus.RESTARTING

    def enter(self) -> SchedulerState:
        """Request the restore."""
        self.scheduler.restore()
        return self

    def restored(self) -> SchedulerState:
        """Go on to the next state."""
        return WaitingForSlots(self.scheduler)

    def savepoint_completed(self) -> SchedulerState:
        self.scheduler.failures.forbid_restart()
        return Failing(self.scheduler)


class RestoringFirst(Restoring):
    """Restores when the job starts; slots arrive meanwhile, because the restored state does not change their number."""

    def __init__(self, scheduler: "Scheduler", status: JobStatus) -> None:
        super().__init__(scheduler)
        self.status = status

    def enter(self) -> SchedulerState:
        """Declare the slots and request the restore."""
        self.scheduler.declare_slots()
        return super().enter()

    def failed(self, failure: Failure) -> SchedulerState:
        """Fail the job for good: a restart would find neither its checkpoint nor its slots."""
        self.scheduler.decide_failover(failure.as_final())
        return Failing(self.scheduler)

    def restored(self) -> SchedulerState:
        """Go on to the next state; a new job is CREATED for this moment."""
        if self.status is JobStatus.RECONCILING:
            return Reconciling(self.scheduler)
        return RestoredFirst(self.scheduler)

    def slots_cannot_come(self, failure: Failure) -> SchedulerState:
        """Fail without waiting for the checkpoint, because there are no slots for it."""
        return self.failed(failure)


class RestoredFirst(SchedulerState):
    """Transient state after the first restore; clients never see it, because nothing is left to wait for."""

    status = JobStatus.CREATED

    def enter(self) -> SchedulerState:
        """Go on to the next state."""
        return WaitingForSlots(self.scheduler)


class WaitingForSlots(SchedulerState):
    """Waits until all declared slots have arrived, before anything is deployed."""

    status = JobStatus.RUNNING

    def enter(self) -> SchedulerState:
        """Declare the slots and start to wait."""
        self.scheduler.await_slots()
        return self.slots_changed()

    def slots_changed(self) -> SchedulerState:
        """Go on once every group has its slot."""
        return RegisteringPartitions(self.scheduler) if self.scheduler.reserve_slots() else self

    def slots_cannot_come(self, failure: Failure) -> SchedulerState:
        """Fail, because waiting is useless."""
        return self.failed(failure)


class Reconciling(WaitingForSlots):
    """Waits for slots under a new leader: from TaskManagers that register again, and from new ones."""

    status = JobStatus.RECONCILING


class RegisteringPartitions(SchedulerState):
    """Every execution has its slot; registers all result partitions before any deployment."""

    status = JobStatus.RUNNING

    def enter(self) -> SchedulerState:
        """Register the partitions."""
        self.scheduler.register_partitions()
        return self

    def partitions_registered(self) -> SchedulerState:
        """Go on to the next state."""
        return Executing(self.scheduler)


class Executing(SchedulerState):
    """Executions are being deployed or running."""

    status = JobStatus.RUNNING

    def enter(self) -> SchedulerState:
        """Deploy the scope."""
        self.scheduler.deploy()
        return self

    def execution_ended(self, execution: Execution) -> SchedulerState:
        """Finish the job after its last execution."""
        if self.scheduler.executions.all_finished:
            return Finishing(self.scheduler)
        return super().execution_ended(execution)


class Finishing(SchedulerState):
    """Every execution is FINISHED, and the coordinators commit."""

    status = JobStatus.RUNNING

    def enter(self) -> SchedulerState:
        """Let the coordinators commit."""
        self.scheduler.services.commit()
        return self

    def committed(self) -> SchedulerState:
        """End the job as FINISHED."""
        return Ended(self.scheduler, JobStatus.FINISHED)

    def failed(self, failure: Failure) -> SchedulerState:
        """Fail the job for good: the tasks that could repeat the commit have ended."""
        self.scheduler.decide_failover(failure.as_final())
        return Failing(self.scheduler)

    def cancel(self) -> SchedulerState:
        """Do nothing: it is too late to cancel output that is being committed; the commit decides how the job ends."""
        return self


class _CancellingExecutions(SchedulerState):
    """Base of states that wait until every execution has ended."""

    def enter(self) -> SchedulerState:
        """Cancel all executions."""
        self.scheduler.cancel_executions()
        return self._next()

    def execution_ended(self, execution: Execution) -> SchedulerState:
        """Go on if all executions have ended."""
        return self._next()

    def failed(self, failure: Failure) -> SchedulerState:
        """Refine the cause.

        Executions may still fail, but the first failure stays the cause unless it was a consequence.
        """
        self.scheduler.failures.refine(failure)
        return self._next()

    def _next(self) -> SchedulerState:
        return self._after() if self.scheduler.executions.all_ended else self

    def _after(self) -> SchedulerState:
        raise NotImplementedError


class Failing(_CancellingExecutions):
    """The failure is final, and tasks are being cancelled."""

    status = JobStatus.FAILING

    def _after(self) -> SchedulerState:
        return Ended(self.scheduler, JobStatus.FAILED)


class Cancelling(_CancellingExecutions):
    """The user has cancelled the job, and tasks are being cancelled."""

    status = JobStatus.CANCELLING

    def cancel(self) -> SchedulerState:
        """Do nothing: the job is already being cancelled."""
        return self

    def _after(self) -> SchedulerState:
        return Ended(self.scheduler, JobStatus.CANCELED)


class Restarting(SchedulerState):
    """The scope is being cancelled while the pause runs; both must end before the restart."""

    status = JobStatus.RESTARTING

    def __init__(self, scheduler: "Scheduler", delay_ms: float) -> None:
        super().__init__(scheduler)
        self._delay_ms = delay_ms
        self._is_backoff_over = False

    def enter(self) -> SchedulerState:
        """Start the pause, then cancel the scope."""
        self.scheduler.start_backoff_timer(self._delay_ms)
        self.scheduler.cancel_scope()
        return self._next()

    def execution_ended(self, execution: Execution) -> SchedulerState:
        """Go on if the scope has ended; treat an unrequested cancellation as a failure."""
        if execution.state is ExecutionState.CANCELED and not execution.was_cancelled:
            return self.failed(Failure.unexpected_cancellation(execution))
        return self._next()

    def failed(self, failure: Failure) -> SchedulerState:
        """Add a failure to the same restart, unless it forbids any."""
        self.scheduler.failures.refine(failure)
        if failure.is_final or not failure.error.recoverable:
            return Failing(self.scheduler)
        self.scheduler.widen_scope(failure)
        self.scheduler.cancel_scope()
        return self._next()

    def savepoint_completed(self) -> SchedulerState:
        """Fail the job: a restart from an older checkpoint than the savepoint would emit its output twice."""
        self.scheduler.failures.forbid_restart()
        return Failing(self.scheduler)

    def backoff_over(self) -> SchedulerState:
        """Go on if the scope has ended, because the pause is over."""
        self._is_backoff_over = True
        return self._next()

    def _next(self) -> SchedulerState:
        if not self._is_backoff_over or not self.scheduler.has_scope_ended:
            return self
        self.scheduler.prepare_restart()
        return Restoring(self.scheduler)


class Ended(SchedulerState):
    """Final state."""

    def __init__(self, scheduler: "Scheduler", status: JobStatus) -> None:
        super().__init__(scheduler)
        assert status.is_globally_terminal_state()
        self.status = status

    def failed(self, failure: Failure) -> SchedulerState:
        """Do nothing: the job has ended."""
        return self

    def cancel(self) -> SchedulerState:
        """Do nothing: the job has ended."""
        return self

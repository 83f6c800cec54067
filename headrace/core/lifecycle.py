"""Lifecycles as tables: the states of a job and of an execution, and the legal successors of each.

The drawings in the documentation are made from these tables; leaving a terminal state is never legal.
"""

import enum
from collections.abc import Mapping
from typing import Final


class ExecutionState(enum.Enum):
    """State of one attempt of a subtask, as the JobMaster sees it. Source: Flink ExecutionState."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        """Return whether no state can follow."""
        return not EXECUTION_TRANSITIONS[self]


class JobStatus(enum.Enum):
    """State of a job. Values are PyFlink's. Source: Flink JobStatus.

    INITIALIZING: the job was accepted, and is being stored, or its initial state is looked up. CREATED: this is done.
    RUNNING: slots are requested, and tasks are deployed. RECONCILING: a new leader continues a job of its predecessor;
    the last checkpoint is read, and the surviving TaskManagers offer their slots again.
    """

    INITIALIZING = -1
    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job will never run again: FINISHED, CANCELED or FAILED."""
        return self in (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)

    def is_terminal_state(self) -> bool:
        """Return whether this JobMaster has finished with the job: globally terminal, or SUSPENDED."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


_E = ExecutionState
EXECUTION_TRANSITIONS: Final[Mapping[ExecutionState, frozenset[ExecutionState]]] = {
    _E.CREATED: frozenset({_E.SCHEDULED, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    _E.SCHEDULED: frozenset({_E.DEPLOYING, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    # Reports may be coalesced, so DEPLOYING may go straight to a later state.
    _E.DEPLOYING: frozenset(
        {_E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED}
    ),
    _E.INITIALIZING: frozenset({_E.RUNNING, _E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    _E.RUNNING: frozenset({_E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    # A FINISHED or FAILED report of an execution that is being cancelled means CANCELED.
    _E.CANCELING: frozenset({_E.CANCELED}),
    _E.FINISHED: frozenset(),
    _E.CANCELED: frozenset(),
    _E.FAILED: frozenset(),
}

_J = JobStatus
JOB_TRANSITIONS: Final[Mapping[JobStatus, frozenset[JobStatus]]] = {
    _J.INITIALIZING: frozenset(
        {_J.CREATED, _J.FAILING, _J.CANCELLING, _J.FAILED, _J.CANCELED, _J.SUSPENDED}
    ),
    _J.CREATED: frozenset({_J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
    _J.RUNNING: frozenset({_J.RESTARTING, _J.FAILING, _J.CANCELLING, _J.FINISHED, _J.SUSPENDED}),
    _J.RESTARTING: frozenset({_J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
    _J.FAILING: frozenset({_J.FAILED, _J.CANCELLING, _J.SUSPENDED}),
    _J.CANCELLING: frozenset({_J.CANCELED, _J.SUSPENDED}),
    _J.FAILED: frozenset(),
    _J.CANCELED: frozenset(),
    _J.FINISHED: frozenset(),
    _J.SUSPENDED: frozenset(),
    # A job begins here, instead of INITIALIZING, under a leader that goes on with it.
    _J.RECONCILING: frozenset(
        {_J.RUNNING, _J.RESTARTING, _J.FAILING, _J.CANCELLING, _J.FAILED, _J.SUSPENDED}
    ),
}


def check_execution_transition(current: ExecutionState, following: ExecutionState) -> None:
    """Raise IllegalTransitionError unless the table allows `current` -> `following`."""
    if following not in EXECUTION_TRANSITIONS[current]:
        raise IllegalTransitionError(current.name, following.name)


def check_job_transition(current: JobStatus, following: JobStatus) -> None:
    """Raise IllegalTransitionError unless the table allows `current` -> `following`."""
    if following not in JOB_TRANSITIONS[current]:
        raise IllegalTransitionError(current.name, following.name)


class IllegalTransitionError(AssertionError):
    """Raised for a programming error: a state was followed by one that its table does not list."""

    def __init__(self, current: str, following: str) -> None:
        super().__init__(f"{current} cannot be followed by {following}")

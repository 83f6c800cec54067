"""The lifecycle tables say what may follow what."""

import pytest

from headrace.core.lifecycle import (
    EXECUTION_TRANSITIONS,
    JOB_TRANSITIONS,
    ExecutionState,
    IllegalTransitionError,
    JobStatus,
    check_execution_transition,
    check_job_transition,
)


def test_every_state_has_a_row() -> None:
    assert set(EXECUTION_TRANSITIONS) == set(ExecutionState)
    assert set(JOB_TRANSITIONS) == set(JobStatus)


def test_nothing_follows_a_terminal_state() -> None:
    for state in (ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED):
        assert state.is_terminal
    for status in JobStatus:
        if status.is_globally_terminal_state():
            assert not JOB_TRANSITIONS[status]


def test_a_failure_during_cancellation_means_cancelled() -> None:
    check_execution_transition(ExecutionState.CANCELING, ExecutionState.CANCELED)
    with pytest.raises(IllegalTransitionError, match="CANCELING cannot be followed by FAILED"):
        check_execution_transition(ExecutionState.CANCELING, ExecutionState.FAILED)


def test_a_users_cancel_wins_over_failing() -> None:
    check_job_transition(JobStatus.FAILING, JobStatus.CANCELLING)
    with pytest.raises(IllegalTransitionError):
        check_job_transition(JobStatus.FAILED, JobStatus.CANCELLING)

"""Asks a job of itself until it has come to where a test wants it."""

from collections.abc import Callable
from typing import Final

from headrace.api.client.job_client import JobClient
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.job_master import JobDetails

WAIT_S: Final = 60


def await_details(client: JobClient, is_there: Callable[[JobDetails], bool]) -> JobDetails:
    """Ask until it is so: every answer comes after some of the job's steps."""
    while True:
        details = client.get_job_details().result(WAIT_S)
        if is_there(details):
            return details
        assert not details.status.is_terminal_state(), details.failure


def every_task_runs(details: JobDetails) -> bool:
    """Whether the JobMaster knows it too: only then is a savepoint taken. Rows may be through before."""
    return all(
        subtask.state is ExecutionState.RUNNING
        for vertex in details.vertices
        for subtask in vertex.subtasks
    )


def await_begun(client: JobClient, is_there: Callable[[JobDetails], bool]) -> JobDetails:
    """Ask until it is so and no task is still to begin: rows are read before, and no savepoint is taken then."""
    return await_details(client, lambda details: is_there(details) and _has_begun(details))


def _has_begun(details: JobDetails) -> bool:
    return all(
        subtask.state in (ExecutionState.RUNNING, ExecutionState.FINISHED)
        for vertex in details.vertices
        for subtask in vertex.subtasks
    )

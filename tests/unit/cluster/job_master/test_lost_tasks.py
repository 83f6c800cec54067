"""The error of a lost TaskManager names the tasks that ran there, in its first line."""

import pytest

from headrace.cluster.job_master.executions import Executions
from headrace.gateways.messages import ErrorInfo
from tests.unit.cluster.cluster_samples import TM_2, job_graph, vertex
from tests.unit.cluster.job_master.scheduler_world import LOST, Fixture


def told(text: str, task_count: int) -> str:
    executions = Executions(job_graph((vertex(1, 6),), ()), now_ms=0)
    error = ErrorInfo("TaskManagerLostError", text, "EXTERNAL", recoverable=True)
    return executions.with_tasks(error, list(executions)[:task_count]).text


@pytest.mark.parametrize(
    ("text", "task_count", "expected"),
    [
        ("tm-1 was lost: crashed", 1, "tm-1 was lost: crashed; it ran 'vertex 1' (1/6)"),
        ("tm-1 was lost:", 0, "tm-1 was lost"),
        ("tm-1 was lost: ended:\nin Java", 1, "tm-1 was lost: ended; it ran 'vertex 1' (1/6)\nin Java"),
        (
            "tm-1 was lost",
            6,
            "tm-1 was lost; it ran 'vertex 1' (1/6), 'vertex 1' (2/6), 'vertex 1' (3/6), 'vertex 1' (4/6), 2 more",
        ),
    ],
)  # fmt: skip
def test_the_tasks_of_a_lost_task_manager_are_named(
    text: str, task_count: int, expected: str
) -> None:
    assert told(text, task_count) == expected


def test_the_job_is_told_what_ran_on_the_task_manager_that_it_lost() -> None:
    job = Fixture(restarts=1)
    job.run()
    job.scheduler.lose_task_manager(TM_2, LOST)
    errors = [one.error.text for one in job.scheduler.executions if one.error is not None]
    assert errors
    assert all("; it ran 'vertex 1' (" in text.splitlines()[0] for text in errors)

"""A job's details as a notebook shows them: a line or two, however many figures they hold."""

from headrace.core.ids import JobId, JobVertexId, ResourceId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.job_master import JobDetails, SubtaskDetails, VertexDetails
from headrace.gateways.messages import ErrorInfo

METRICS = {f"metric-{number}": float(number) for number in range(60)}


def subtask(index: int, state: ExecutionState) -> SubtaskDetails:
    return SubtaskDetails(index, 0, state, ResourceId("tm-1"), METRICS)


def vertex(name: str) -> VertexDetails:
    states = (ExecutionState.RUNNING, ExecutionState.RUNNING, ExecutionState.FINISHED)
    subtasks = tuple(subtask(index, state) for index, state in enumerate(states))
    return VertexDetails(JobVertexId(b"v" * 16), name, 3, subtasks)


def details(count: int, failure: ErrorInfo | None = None) -> JobDetails:
    vertices = tuple(vertex(f"vertex {number}") for number in range(count))
    return JobDetails(JobId(b"j" * 16), "flights", JobStatus.RUNNING, {}, vertices, failure)


def test_the_details_of_a_job_are_a_line_with_the_states_of_its_subtasks() -> None:
    assert repr(details(2)) == (
        f"JobDetails({JobId(b'j' * 16)}, 'flights', RUNNING, "
        "VertexDetails('vertex 0': 2 RUNNING, 1 FINISHED), VertexDetails('vertex 1': 2 RUNNING, 1 FINISHED))"
    )
    assert repr(subtask(1, ExecutionState.FAILED)) == (
        "SubtaskDetails(1, attempt 0 FAILED on tm-1, 60 metrics)"
    )


def test_large_jobs_long_names_and_long_failures_are_cut() -> None:
    failure = ErrorInfo("UserCodeError", "ValueError: " + "x" * 500 + "\nTraceback", "USER", False)
    text = repr(details(100, failure))
    assert "and 92 more, failure='ValueError: xxx" in text
    assert "Traceback" not in text
    assert len(text) < 1_000
    assert len(repr(vertex("map " * 500))) < 200

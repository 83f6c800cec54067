"""Details of a job, as they are shown at a prompt: a few lines, whatever there is to know."""

from headrace.core.ids import JobId, JobVertexId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.job_master import JobDetails, SubtaskDetails, VertexDetails
from headrace.gateways.messages import ErrorInfo

METRICS = {f"metric.{index}": 1.0 for index in range(300)}
RUNNING, FAILED = ExecutionState.RUNNING, ExecutionState.FAILED


def vertex(*states: ExecutionState) -> VertexDetails:
    subtasks = tuple(
        SubtaskDetails(index, 1, state, None, METRICS) for index, state in enumerate(states)
    )
    return VertexDetails(JobVertexId(bytes(16)), "Map", len(states), subtasks, METRICS)


def test_a_job_is_shown_by_status_and_states_without_metrics() -> None:
    failure = ErrorInfo(
        "ValueError", "ValueError: no (map.py, line 3)\nmore", "USER", False, "x" * 9_000
    )
    details = JobDetails(
        JobId(bytes(16)),
        "job",
        JobStatus.FAILED,
        {},
        (vertex(RUNNING, FAILED, RUNNING), vertex(RUNNING)),
        failure,
    )
    assert repr(details) == (
        f"JobDetails('job' ({details.job_id}), FAILED, "
        "vertices=(VertexDetails('Map', 2 RUNNING, 1 FAILED), VertexDetails('Map', 1 RUNNING)), "
        "failure='ValueError: no (map.py, line 3)')"
    )
    assert repr(details.vertices[0].subtasks[1]) == "SubtaskDetails(1, attempt 1, FAILED)"

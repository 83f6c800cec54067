"""What is told of the subtasks of a job in BATCH mode, from their reports."""

from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.messages import ErrorInfo
from headrace.gateways.subtask_report import SubtaskReport
from headrace.graph.job_graph import JobGraph
from headrace.metrics import names
from headrace.spark.batch.batch_progress import BatchProgress
from tests.unit.api.recording import recording


@pytest.fixture
def graph() -> JobGraph:
    """A source with one subtask, and a keyed vertex with two behind it."""
    with recording() as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(2)
        numbers = env.from_collection([1, 2, 3], Types.LONG())
        numbers.key_by(lambda n: n, Types.LONG()).reduce(lambda a, b: a + b).print()
        env.execute_async("sums")
    (submitted,) = executor.submitted
    assert [vertex.parallelism for vertex in submitted.vertices] == [1, 2]
    return submitted


def report(graph: JobGraph, vertex: int, subtask: int, **values: Any) -> SubtaskReport:
    given = {
        "attempt_number": 0,
        "state": ExecutionState.RUNNING,
        "host": "h",
        "started_ms": 20,
        "reported_ms": 30,
        **values,
    }
    return SubtaskReport(graph.vertices[vertex].vertex_id.hex(), subtask, **given)


def states(progress: BatchProgress) -> list[list[str]]:
    return [[one.state.name for one in vertex.subtasks] for vertex in progress.vertices()]


def test_subtasks_are_handed_to_spark_once_their_inputs_have_finished(graph: JobGraph) -> None:
    progress = BatchProgress(graph, now_ms=10)
    assert states(progress) == [["DEPLOYING"], ["SCHEDULED", "SCHEDULED"]]
    progress.report(report(graph, 0, 0))
    assert states(progress) == [["RUNNING"], ["SCHEDULED", "SCHEDULED"]]
    progress.report(report(graph, 0, 0, state=ExecutionState.FINISHED, reported_ms=40))
    assert states(progress) == [["FINISHED"], ["DEPLOYING", "DEPLOYING"]]
    progress.report(report(graph, 1, 1, started_ms=50))
    assert progress.counts["RUNNING"] == 1
    assert progress.summary == "1 of 3 subtasks have finished, 1 are running"
    times = progress.vertices()[1].subtasks[1].timestamps_ms
    assert times == {"CREATED": 10, "SCHEDULED": 10, "DEPLOYING": 40, "RUNNING": 50}


def test_counts_are_those_of_the_newest_report_and_are_summed_over_subtasks(
    graph: JobGraph,
) -> None:
    progress = BatchProgress(graph, now_ms=0)
    for subtask in (0, 1):
        progress.report(report(graph, 1, subtask, records_in=1, bytes_in=8))
    progress.report(
        report(
            graph,
            1,
            0,
            state=ExecutionState.FINISHED,
            records_in=5,
            records_out=4,
            bytes_in=40,
            metrics={"Map.seen": 2.0, "Map.size": 7.0},
            counters=("Map.seen",),
        )
    )
    vertex = progress.vertices()[1]
    assert vertex.metrics[names.NUM_RECORDS_IN.name] == 6
    assert vertex.metrics[names.NUM_BYTES_IN.name] == 48
    assert vertex.subtasks[0].counters == ("Map.seen",)
    assert progress.accumulators == {"Map.seen": 2}


def test_reports_of_older_attempts_and_after_the_end_change_nothing(graph: JobGraph) -> None:
    progress = BatchProgress(graph, now_ms=0)
    progress.report(report(graph, 0, 0, attempt_number=1, records_out=7))
    progress.report(report(graph, 0, 0, records_out=3))
    assert progress.vertices()[0].metrics[names.NUM_RECORDS_OUT.name] == 7
    progress.report(report(graph, 0, 0, attempt_number=1, state=ExecutionState.FINISHED))
    progress.report(report(graph, 0, 0, attempt_number=2))
    assert states(progress)[0] == ["FINISHED"]


@pytest.mark.parametrize("last_heard", [ExecutionState.FAILED, ExecutionState.RUNNING])
def test_an_attempt_that_failed_is_remembered_when_spark_runs_the_task_again(
    graph: JobGraph, last_heard: ExecutionState
) -> None:
    """Also where the report that it has failed was lost."""
    progress = BatchProgress(graph, now_ms=0)
    progress.report(report(graph, 0, 0, state=last_heard))
    progress.report(report(graph, 0, 0, attempt_number=1, started_ms=60, reported_ms=60))
    (subtask,) = progress.vertices()[0].subtasks
    assert (subtask.attempt_number, subtask.state) == (1, ExecutionState.RUNNING)
    assert [(one.attempt_number, one.state.name) for one in subtask.earlier_attempts] == [
        (0, "FAILED")
    ]


def test_a_job_that_fails_names_the_subtask_and_cancels_the_others(graph: JobGraph) -> None:
    progress = BatchProgress(graph, now_ms=0)
    error = ErrorInfo("ValueError", "no", "USER", recoverable=False)
    progress.fail(graph.vertices[1].vertex_id, 1, error, now_ms=70)
    progress.end(ExecutionState.CANCELED, now_ms=80)
    assert states(progress) == [["CANCELED"], ["CANCELED", "FAILED"]]
    assert progress.vertices()[1].subtasks[1].error == error
    assert progress.changed_ms == 80

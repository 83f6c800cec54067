"""Earlier attempts of subtasks: what is remembered of them, and of how many."""

from headrace.cluster.job_master.executions import (
    ATTEMPTS_HISTORY_SIZE,
    ATTEMPTS_MAX,
    Executions,
    StateCounts,
)
from headrace.cluster.job_master.failover.restart_strategies import NoRestart
from headrace.cluster.job_master.results.partition_tracker import PartitionTracker
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionVertexId
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.messages import ErrorInfo, ExecutionReport, TaskMetrics
from tests.unit.cluster.cluster_samples import TM_1, attempt, job_graph, vertex, vertex_id
from tests.unit.cluster.job_master.scheduler_world import USER_ERROR, Fixture

S = ExecutionState
SUBTASK = ExecutionVertexId(vertex_id(1), 0)
METRICS = {
    "numRecordsIn": 1.0,
    "numBytesOut": 2.0,
    "accumulateBusyTimeMs": 3.0,
    "busyTimeMsPerSecond": 900.0,
    "map.late": 4.0,
}


def restarted(times: int, **options: int) -> Executions:
    """Executions of one vertex whose first subtask has been restarted so many times."""
    executions = Executions(job_graph((vertex(1, 2),)), 0, **options)
    for number in range(times):
        executions.lose(executions.current(SUBTASK), USER_ERROR, 10 * number + 5)
        executions.reset({SUBTASK}, 10 * number + 10)
    return executions


def test_a_restarted_subtask_remembers_its_attempts_newest_last() -> None:
    executions = restarted(2)
    first, second = executions.earlier_attempts(SUBTASK)
    assert (first.attempt_number, second.attempt_number) == (0, 1)
    assert first.state is S.FAILED and first.error == USER_ERROR
    assert first.timestamps_ms == {"CREATED": 0, "FAILED": 5}
    assert second.timestamps_ms == {"CREATED": 10, "FAILED": 15}
    assert executions.current(SUBTASK).attempt_id.attempt_number == 2


def test_the_others_had_no_attempt_before() -> None:
    assert restarted(2).earlier_attempts(ExecutionVertexId(vertex_id(1), 1)) == ()


def test_the_oldest_are_forgotten_beyond_the_setting() -> None:
    numbers = [each.attempt_number for each in restarted(20).earlier_attempts(SUBTASK)]
    assert numbers == list(range(4, 20))
    kept = restarted(20, attempts_history_size=2).earlier_attempts(SUBTASK)
    assert [each.attempt_number for each in kept] == [18, 19]
    assert restarted(3, attempts_history_size=0).earlier_attempts(SUBTASK) == ()


def test_the_setting_of_a_job_counts() -> None:
    settings = Settings({ATTEMPTS_HISTORY_SIZE.key: "1"})
    graph = job_graph((vertex(1, 1),))
    partitions = PartitionTracker(releases_during_job=True)
    scheduler = Scheduler(graph, NoRestart(), ManualClock(), partitions, settings)
    for number in range(3):
        scheduler.executions.lose(scheduler.executions.current(SUBTASK), USER_ERROR, number)
        scheduler.executions.reset({SUBTASK}, number)
    (earlier,) = scheduler.executions.earlier_attempts(SUBTASK)
    assert earlier.attempt_number == 2


def test_a_large_job_remembers_fewer_of_each_subtask() -> None:
    executions = Executions(job_graph((vertex(1, ATTEMPTS_MAX // 3),)), 0)
    for number in range(10):
        executions.lose(executions.current(SUBTASK), USER_ERROR, number)
        executions.reset({SUBTASK}, number)
    assert len(executions.earlier_attempts(SUBTASK)) == 3


def test_place_and_a_few_metrics_of_an_attempt_are_remembered() -> None:
    job = Fixture(restarts=1)
    job.run()
    failed = attempt(0)
    metrics = TaskMetrics(failed, METRICS)
    job.scheduler.report(ExecutionReport(failed, S.FAILED, USER_ERROR, metrics))
    for each in job.attempts:
        job.report(each, S.CANCELED)
    job.services.later[0][1]()
    (earlier,) = job.scheduler.executions.earlier_attempts(SUBTASK)
    assert (earlier.resource_id, earlier.endpoint) == (TM_1, "localhost:1")
    assert earlier.metrics == {name: METRICS[name] for name in list(METRICS)[:3]}


def test_states_are_counted_as_they_change() -> None:
    executions = Executions(job_graph((vertex(1, 3),)), 1)
    assert executions.counts.by_name["CREATED"] == 3 and executions.counts.changed_ms == 1
    execution = executions.current(SUBTASK)
    execution.become(S.SCHEDULED, 2)
    assert (executions.counts.by_name["CREATED"], executions.counts.by_name["SCHEDULED"]) == (2, 1)
    executions.lose(execution, ErrorInfo("E", "lost", "INTERNAL", True), 3)
    assert executions.counts.by_name["FAILED"] == 1
    executions.reset({SUBTASK}, 4)
    assert executions.counts.by_name == {**StateCounts().by_name, "CREATED": 3}
    assert executions.counts.changed_ms == 4


def test_what_subtasks_are_about_all_together_is_told_with_its_begin() -> None:
    executions = Executions(job_graph((vertex(1, 2),)), 1)
    first, second = executions
    told: list[tuple[str, int]] = []
    steps = [
        (first, S.SCHEDULED), (first, S.DEPLOYING), (second, S.SCHEDULED), (second, S.DEPLOYING),
        (first, S.INITIALIZING), (second, S.RUNNING), (first, S.RUNNING), (second, S.FINISHED),
        (first, S.FAILED),
    ]  # fmt: skip
    for now_ms, (execution, state) in enumerate(steps, start=2):
        execution.become(state, now_ms)
        told.append((executions.counts.phase.name, executions.counts.phase_since_ms))
    assert list(dict.fromkeys(told)) == [
        ("NONE", 0),
        ("DEPLOYING", 3),
        ("INITIALIZING", 7),
        ("ALL_RUNNING_OR_FINISHED", 8),
        ("NONE", 10),
    ]
    executions.reset({first.attempt_id.execution_vertex_id}, 11)
    assert executions.counts.phase.name == "NONE"


def test_counts_are_those_of_the_subtasks_in_every_course_of_a_job() -> None:
    job = Fixture(restarts=1)
    for step in (job.run, lambda: job.report(job.attempts[0], S.FAILED, USER_ERROR)):
        step()
        told = job.scheduler.executions.counts.by_name
        assert told == {state.name: job.states.count(state) for state in S}

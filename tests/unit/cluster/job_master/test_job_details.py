"""Details of a job: made anew only of what has changed, because they are asked for every few seconds."""

import msgspec

from headrace.cluster.job_master.job_details import VertexDescriber, overview_of
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.messages import ExecutionReport, TaskMetrics
from tests.unit.cluster.job_master.counted_calls import calls_of
from tests.unit.cluster.job_master.scheduler_world import USER_ERROR, Fixture

S = ExecutionState


def told_metrics(job: Fixture, number: int, values: dict[str, float]) -> None:
    execution = list(job.scheduler.executions)[number]
    execution.metrics = values


def test_a_job_that_has_not_changed_is_described_by_the_same_objects() -> None:
    job = Fixture()
    job.run()
    describer = VertexDescriber(job.scheduler)
    first, second = describer.describe(), describer.describe()
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_only_the_vertex_with_new_metrics_is_described_anew() -> None:
    job = Fixture()
    job.run()
    describer = VertexDescriber(job.scheduler)
    first = describer.describe()
    told_metrics(job, 3, {"numRecordsIn": 5.0})
    second = describer.describe()
    assert second[0] is first[0]
    assert second[1].metrics == {"numRecordsIn": 5.0}
    assert second[1].subtasks[0] is first[1].subtasks[0]


def test_a_new_state_shows_with_its_time() -> None:
    job = Fixture()
    job.run()
    describer = VertexDescriber(job.scheduler)
    describer.describe()
    job.clock.advance_ms(70)
    job.report(job.attempts[1], S.FINISHED)
    subtask = describer.describe()[0].subtasks[1]
    assert subtask.state is S.FINISHED and subtask.timestamps_ms["FINISHED"] == 70


def test_a_restart_shows_new_attempts_and_those_before_them() -> None:
    job = Fixture(restarts=1)
    job.run()
    describer = VertexDescriber(job.scheduler)
    describer.describe()
    failed = job.attempts[0]
    report = ExecutionReport(failed, S.FAILED, USER_ERROR, TaskMetrics(failed, {}))
    job.scheduler.report(report)
    for attempt in job.attempts:
        job.report(attempt, S.CANCELED)
    job.services.later[0][1]()
    subtask = describer.describe()[0].subtasks[0]
    assert (subtask.attempt_number, subtask.state, subtask.error) == (1, S.DEPLOYING, None)
    (earlier,) = subtask.earlier_attempts
    assert (earlier.attempt_number, earlier.error) == (0, USER_ERROR)


def test_a_restored_max_parallelism_shows() -> None:
    job = Fixture()
    job.run()
    describer = VertexDescriber(job.scheduler)
    assert describer.describe()[0].max_parallelism == 128
    graph = Fixture().scheduler.graph
    vertices = tuple(msgspec.structs.replace(each, max_parallelism=256) for each in graph.vertices)
    job.scheduler.adopt(msgspec.structs.replace(graph, vertices=vertices))
    assert [each.max_parallelism for each in describer.describe()] == [256, 256]


def test_the_line_in_a_list_costs_the_same_however_many_subtasks_there_are() -> None:
    few, many = Fixture(parallelism=2), Fixture(parallelism=200)
    assert calls_of(lambda: overview_of(few.scheduler)) == calls_of(
        lambda: overview_of(many.scheduler)
    )


def test_a_look_at_a_job_that_has_not_changed_costs_one_call_for_each_subtask() -> None:
    job = Fixture(parallelism=200)
    job.scheduler.start()
    describer = VertexDescriber(job.scheduler)
    describer.describe()
    subtask_count = len(job.attempts)
    assert calls_of(describer.describe) < 1.2 * subtask_count


def test_new_metrics_of_all_subtasks_cost_a_few_calls_for_each() -> None:
    job = Fixture(parallelism=200)
    job.scheduler.start()
    describer = VertexDescriber(job.scheduler)
    describer.describe()
    subtask_count = len(job.attempts)
    for number in range(subtask_count):
        told_metrics(job, number, {f"metric {each}": 1.0 for each in range(60)})
    assert calls_of(describer.describe) < 10 * subtask_count, "and not one for each metric"

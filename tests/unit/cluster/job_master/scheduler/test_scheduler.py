"""Scheduler: a job's whole life with scripted services in place of the cluster."""

import pytest

from headrace.cluster.job_master.executions import ReportVerdict
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.job_details import VertexDescriber, describe_job, result_of
from headrace.core.ids import ExecutionAttemptId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.checkpoint_statistics import CheckpointOverview
from headrace.gateways.messages import ErrorInfo, ExecutionReport, SlotOffer, TaskMetrics
from headrace.metrics.combination import combine_metrics
from tests.unit.cluster.cluster_samples import (
    SLOT_PROFILE,
    TM_1,
    TM_2,
    allocation,
)
from tests.unit.cluster.job_master.scheduler_world import LOST, USER_ERROR, Fixture, S


@pytest.fixture
def job() -> Fixture:
    return Fixture()


def test_nothing_is_deployed_before_every_slot_is_there(job: Fixture) -> None:
    job.scheduler.start()
    job.scheduler.pool.offer(TM_1, [SlotOffer(allocation(1), 0, SLOT_PROFILE)], 0)
    job.scheduler.slots_changed()
    assert job.services.submitted == []
    assert job.states == [S.SCHEDULED] * 4
    assert job.scheduler.status is JobStatus.RUNNING


def test_with_its_slots_the_job_is_deployed_producers_first(job: Fixture) -> None:
    job.scheduler.start()
    job.give_slots()
    assert [descriptor.vertex.name for _, descriptor in job.services.submitted] == [
        "vertex 1",
        "vertex 1",
        "vertex 2",
        "vertex 2",
    ]


def test_subtasks_of_equal_index_share_a_slot(job: Fixture) -> None:
    job.scheduler.start()
    job.give_slots()
    assert [descriptor.allocation_id for _, descriptor in job.services.submitted] == [
        allocation(1),
        allocation(2),
        allocation(1),
        allocation(2),
    ]


def test_a_consumer_knows_where_each_of_its_producers_is(job: Fixture) -> None:
    job.scheduler.start()
    job.give_slots()
    (gate,) = job.services.submitted[3][1].input_gates
    assert [channel.shuffle.location.resource_id for channel in gate.channels] == [TM_1, TM_2]
    assert [channel.subpartition_index for channel in gate.channels] == [1, 1]
    produced = [
        d.result_partitions[0].descriptor.partition_id for _, d in job.services.submitted[:2]
    ]
    assert [channel.shuffle.partition_id for channel in gate.channels] == produced


def test_the_job_is_finished_after_the_last_task_and_the_commit(job: Fixture) -> None:
    job.run()
    job.report_all(S.FINISHED)
    assert job.scheduler.status is JobStatus.RUNNING and job.services.commit_count == 1
    job.scheduler.committed()
    assert job.services.statuses == [JobStatus.CREATED, JobStatus.RUNNING, JobStatus.FINISHED]


def test_a_failed_commit_fails_the_job_even_with_restarts_left() -> None:
    job = Fixture(restarts=3)
    job.run()
    job.report_all(S.FINISHED)
    job.scheduler.fail_job(Failure.of_error(OSError("disk full")))
    assert job.scheduler.status is JobStatus.FAILED
    assert result_of(job.scheduler).failure is not None


def test_the_first_failure_ends_the_job_and_stays_its_cause(job: Fixture) -> None:
    job.run()
    first, second, third, fourth = job.attempts
    job.report(first, S.FAILED, USER_ERROR)
    assert job.scheduler.status is JobStatus.FAILING
    assert job.services.cancelled == [second, third, fourth]
    other = ErrorInfo("UserCodeError", "KeyError: 1", "USER", True)
    job.report(second, S.FAILED, other)
    job.report(third, S.CANCELED)
    job.report(fourth, S.CANCELED)
    assert job.scheduler.status is JobStatus.FAILED
    assert result_of(job.scheduler).failure == USER_ERROR
    assert job.states == [S.FAILED, S.CANCELED, S.CANCELED, S.CANCELED]


def test_a_cause_that_is_heard_after_its_consequence_takes_its_place(job: Fixture) -> None:
    job.run()
    first, second, third, fourth = job.attempts
    job.report(third, S.FAILED, LOST)
    job.report(first, S.FAILED, USER_ERROR)
    for attempt in (second, fourth):
        job.report(attempt, S.CANCELED)
    assert result_of(job.scheduler).failure == USER_ERROR


def test_a_restart_gives_every_subtask_a_new_attempt_after_pause_and_cancellation() -> None:
    job = Fixture(restarts=1)
    job.run()
    first, *others = job.attempts
    job.report(first, S.FAILED, USER_ERROR)
    assert job.scheduler.status is JobStatus.RESTARTING
    for attempt in others:
        job.report(attempt, S.CANCELED)
    assert job.scheduler.status is JobStatus.RESTARTING, "the pause is not over"
    ((delay_ms, over),) = job.services.later
    assert delay_ms == 100
    over()
    assert [attempt.attempt_number for attempt in job.attempts] == [1] * 4
    assert len(job.services.submitted) == 8, "slots were kept"
    assert job.scheduler.status is JobStatus.RUNNING


def test_a_restart_waits_for_new_slots_when_some_were_lost() -> None:
    job = Fixture(restarts=1)
    job.run()
    job.scheduler.lose_task_manager(TM_2, LOST)
    for attempt in job.attempts:
        job.report(attempt, S.CANCELED)
    job.services.later[0][1]()
    assert job.scheduler.is_waiting_for_slots
    assert job.scheduler.pool.missing_count == 1
    job.scheduler.pool.offer(TM_1, [SlotOffer(allocation(3), 1, SLOT_PROFILE)], 0)
    job.scheduler.slots_changed()
    assert job.states == [S.DEPLOYING] * 4


def test_the_second_failure_is_final_when_one_restart_was_allowed() -> None:
    job = Fixture(restarts=1)
    job.run()
    job.scheduler.fail_job(Failure(USER_ERROR))
    job.report_all(S.CANCELED)
    job.services.later[0][1]()
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    job.report_all(S.CANCELED)
    assert job.scheduler.status is JobStatus.FAILED


def test_an_error_that_no_restart_mends_is_final() -> None:
    job = Fixture(restarts=5)
    job.run()
    job.scheduler.fail_job(Failure(ErrorInfo("ConfigurationError", "no", "USER", False)))
    assert job.scheduler.status is JobStatus.FAILING


def test_cancelling_waits_for_the_tasks(job: Fixture) -> None:
    job.run()
    job.scheduler.cancel()
    assert job.scheduler.status is JobStatus.CANCELLING
    assert job.services.cancelled == job.attempts
    job.report_all(S.CANCELED)
    assert job.scheduler.status is JobStatus.CANCELED
    assert result_of(job.scheduler).failure is None


def test_cancelling_before_deployment_ends_at_once(job: Fixture) -> None:
    job.scheduler.start()
    job.scheduler.cancel()
    assert job.services.statuses == [
        JobStatus.CREATED, JobStatus.RUNNING, JobStatus.CANCELLING, JobStatus.CANCELED,
    ]  # fmt: skip


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_job_that_is_cancelled_while_it_commits_ends_as_the_commit_does(
    job: Fixture, is_committed: bool
) -> None:
    job.run()
    job.report_all(S.FINISHED)
    job.scheduler.cancel()
    assert job.scheduler.status is JobStatus.RUNNING
    if is_committed:
        job.scheduler.committed()
    else:
        job.scheduler.fail_job(Failure.of_error(OSError("disk full")))
    assert job.scheduler.status is (JobStatus.FINISHED if is_committed else JobStatus.FAILED)
    assert JobStatus.CANCELLING not in job.services.statuses


def test_a_users_cancellation_wins_over_a_restart() -> None:
    job = Fixture(restarts=1)
    job.run()
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    job.scheduler.cancel()
    job.report_all(S.CANCELED)
    job.services.later[0][1]()
    assert job.scheduler.status is JobStatus.CANCELED


def test_a_failed_report_of_a_task_that_is_being_cancelled_means_cancelled(job: Fixture) -> None:
    job.run()
    job.scheduler.cancel()
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    assert job.states[0] is S.CANCELED


def test_reports_of_ended_or_older_attempts_are_refused(job: Fixture) -> None:
    job.run()
    attempt = job.attempts[0]
    job.report(attempt, S.FINISHED)
    assert job.report(attempt, S.FINISHED) is ReportVerdict.UNKNOWN_ATTEMPT
    stale = ExecutionAttemptId(attempt.job_id, attempt.execution_vertex_id, 7)
    assert job.report(stale, S.RUNNING) is ReportVerdict.UNKNOWN_ATTEMPT


def test_reports_may_be_coalesced_and_come_late(job: Fixture) -> None:
    job.scheduler.start()
    job.give_slots()
    attempt = job.attempts[0]
    assert job.report(attempt, S.RUNNING) is ReportVerdict.APPLIED
    assert job.report(attempt, S.INITIALIZING) is ReportVerdict.IGNORED
    assert job.states[0] is S.RUNNING


def test_a_task_manager_that_refuses_a_task_fails_it(job: Fixture) -> None:
    job.scheduler.start()
    job.give_slots()
    job.scheduler.submit_answered(job.attempts[1], LOST)
    assert job.states[1] is S.FAILED and job.scheduler.status is JobStatus.FAILING


def test_details_carry_states_and_combined_metrics(job: Fixture) -> None:
    job.run()
    for attempt, count in zip(job.attempts, (3.0, 4.0, 0.0, 0.0), strict=True):
        metrics = TaskMetrics(
            attempt, {"numRecordsOut": count, "map.late": count, "map.depth": 2.0}, ("map.late",)
        )
        job.scheduler.report(ExecutionReport(attempt, S.FINISHED, metrics=metrics))
    vertices = VertexDescriber(job.scheduler).describe()
    details = describe_job(job.scheduler, vertices, CheckpointOverview(), ())
    assert details.vertices[0].metrics["numRecordsOut"] == 7
    assert [subtask.state for subtask in details.vertices[0].subtasks] == [S.FINISHED] * 2
    assert result_of(job.scheduler).accumulators == {"map.late": 7}


def test_watermarks_combine_to_their_minimum_and_shares_of_time_to_their_mean() -> None:
    combined = combine_metrics(
        [
            {"currentInputWatermark": 5, "busyTimeMsPerSecond": 200, "numRecordsIn": 1},
            {"currentInputWatermark": 3, "busyTimeMsPerSecond": 400, "numRecordsIn": 2},
        ]
    )
    assert combined == {
        "currentInputWatermark": 3,
        "busyTimeMsPerSecond": 300,
        "numRecordsIn": 3,
    }

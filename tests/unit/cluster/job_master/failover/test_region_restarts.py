"""Scheduler: what restarts and what runs on, what a restart begins from, and what is remembered of failures."""

import pytest

from headrace.checkpoint.handles import SubtaskRestore
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.job_details import result_of
from headrace.core.ids import ExecutionAttemptId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.messages import ErrorInfo, SlotOffer
from headrace.graph.job_graph import PartitionerKind
from tests.unit.cluster.cluster_samples import SLOT_PROFILE, TM_1, TM_2, allocation
from tests.unit.cluster.job_master.scheduler_world import LOST, USER_ERROR, Fixture

S = ExecutionState


def test_a_slice_of_its_own_restarts_alone_and_the_others_run_on() -> None:
    job = Fixture(restarts=1, kind=PartitionerKind.FORWARD)
    job.run()
    source_1, source_2, sink_1, sink_2 = job.attempts
    job.report(sink_1, S.FAILED, USER_ERROR)
    assert job.services.cancelled == [source_1]
    assert job.scheduler.status is JobStatus.RESTARTING
    job.report(source_1, S.CANCELED)
    job.services.later[0][1]()
    assert job.scheduler.status is JobStatus.RUNNING
    assert [each.attempt_number for each in job.attempts] == [1, 0, 1, 0]
    assert job.states == [S.DEPLOYING, S.RUNNING, S.DEPLOYING, S.RUNNING]
    again = [descriptor for _, descriptor in job.services.submitted[4:]]
    assert [each.attempt_id for each in again] == [job.attempts[0], job.attempts[2]]
    assert {each.allocation_id for each in again} == {allocation(1)}, "it kept its slot"
    assert again[1].input_gates[0].channels[0].shuffle.partition_id.producer == job.attempts[0]
    job.report(source_2, S.FINISHED)
    job.report(sink_2, S.FINISHED)
    for attempt in (job.attempts[0], job.attempts[2]):
        job.report(attempt, S.RUNNING)
        job.report(attempt, S.FINISHED)
    assert job.services.commit_count == 1


def test_with_the_full_strategy_everything_restarts() -> None:
    job = Fixture(restarts=1, kind=PartitionerKind.FORWARD, strategy="full")
    job.run()
    job.report(job.attempts[2], S.FAILED, USER_ERROR)
    assert len(job.services.cancelled) == 3


def test_a_failure_beside_a_restart_joins_it_and_is_not_counted() -> None:
    job = Fixture(restarts=1, kind=PartitionerKind.FORWARD)
    job.run()
    source_1, source_2, sink_1, sink_2 = job.attempts
    job.report(sink_1, S.FAILED, USER_ERROR)
    job.report(sink_2, S.FAILED, USER_ERROR)
    assert job.services.cancelled == [source_1, source_2]
    job.report(source_1, S.CANCELED)
    job.services.later[0][1]()
    assert job.scheduler.status is JobStatus.RESTARTING, "the second slice is not cancelled yet"
    job.report(source_2, S.CANCELED)
    assert [each.attempt_number for each in job.attempts] == [1] * 4
    assert job.scheduler.history.restart_count == 1


def test_a_failure_while_a_restart_waits_for_its_slots_widens_it() -> None:
    job = Fixture(restarts=2, kind=PartitionerKind.FORWARD)
    job.run()
    job.scheduler.lose_task_manager(TM_1, LOST)
    job.services.later[0][1]()
    assert job.scheduler.is_waiting_for_slots
    job.report(job.attempts[1], S.FAILED, USER_ERROR)
    job.report(job.attempts[3], S.CANCELED)
    job.services.later[1][1]()
    job.scheduler.pool.offer(TM_2, [SlotOffer(allocation(3), 1, SLOT_PROFILE)], 0)
    job.scheduler.slots_changed()
    assert job.states == [S.DEPLOYING] * 4
    assert job.services.restored_scopes[-1] == job.scheduler.executions.subtasks


def test_a_task_that_its_task_manager_cancels_while_others_restart_is_restarted_too() -> None:
    job = Fixture(restarts=1, kind=PartitionerKind.FORWARD)
    job.run()
    source_1, source_2, sink_1, sink_2 = job.attempts
    job.report(sink_1, S.FAILED, USER_ERROR)
    job.report(source_2, S.CANCELED)
    assert job.services.cancelled == [source_1, sink_2]


def test_a_failure_that_no_restart_mends_ends_the_job_in_the_middle_of_one() -> None:
    job = Fixture(restarts=5, kind=PartitionerKind.FORWARD)
    job.run()
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    job.report(job.attempts[1], S.FAILED, ErrorInfo("ConfigurationError", "no", "USER", False))
    assert job.scheduler.status is JobStatus.FAILING


def test_a_failure_of_the_job_as_a_whole_takes_all_slices() -> None:
    job = Fixture(restarts=1, kind=PartitionerKind.FORWARD)
    job.run()
    job.scheduler.fail_job(Failure(USER_ERROR))
    assert job.services.cancelled == job.attempts


def test_every_task_is_deployed_with_what_it_starts_from() -> None:
    job = Fixture()
    subtask = job.attempts[2].execution_vertex_id
    job.services.restores = {subtask: SubtaskRestore(7, {})}
    job.run()
    assert [descriptor.restore for _, descriptor in job.services.submitted] == [
        None,
        None,
        SubtaskRestore(7, {}),
        None,
    ]


def test_nothing_is_deployed_before_it_is_known_what_it_starts_from() -> None:
    job = Fixture(restarts=1)
    job.services.answers_restores = False
    job.scheduler.start()
    job.give_slots()
    assert job.scheduler.status is JobStatus.INITIALIZING and job.services.submitted == []
    stale = job.services.version
    job.scheduler.cancel()
    job.scheduler.restored({}, stale)
    assert job.scheduler.status is JobStatus.CANCELED


def test_a_job_that_cannot_be_restored_at_its_begin_fails_for_good() -> None:
    job = Fixture(restarts=5)
    job.services.answers_restores = False
    job.scheduler.start()
    job.scheduler.fail_job(Failure.of_error(OSError("no such snapshot")))
    assert job.services.statuses == [JobStatus.FAILING, JobStatus.FAILED]


def test_a_restore_that_fails_after_a_failure_is_one_more_failure() -> None:
    job = Fixture(restarts=2)
    job.run()
    job.services.answers_restores = False
    job.scheduler.fail_job(Failure(USER_ERROR))
    job.report_all(S.CANCELED)
    job.services.later[0][1]()
    stale = job.services.version
    job.scheduler.fail_job(Failure.of_error(OSError("storage is down")))
    assert job.scheduler.status is JobStatus.RESTARTING
    job.scheduler.restored({}, stale)
    assert job.states == [S.CANCELED] * 4
    job.services.later[1][1]()
    job.scheduler.restored({}, job.services.version)
    assert job.states == [S.DEPLOYING] * 4


def test_data_has_ended_when_every_task_has_said_so_or_is_finished() -> None:
    job = Fixture()
    job.run()
    first, *others = job.attempts
    job.report(first, S.FINISHED)
    for attempt in others:
        assert not job.scheduler.executions.has_all_data_ended
        assert job.scheduler.data_ended(attempt)
    assert job.scheduler.executions.has_all_data_ended
    stale = ExecutionAttemptId(first.job_id, first.execution_vertex_id, 7)
    assert not job.scheduler.data_ended(stale)


def test_failures_are_remembered_with_task_and_place_and_those_that_came_with_them() -> None:
    job = Fixture(restarts=1)
    job.run()
    first, second, *_ = job.attempts
    job.clock.advance_ms(5)
    job.report(first, S.FAILED, LOST)
    job.clock.advance_ms(5)
    job.report(second, S.FAILED, USER_ERROR)
    (entry,) = job.scheduler.history.entries
    assert entry.root.failure.error == USER_ERROR and entry.root.timestamp_ms == 10
    assert entry.root.task is not None
    task = entry.root.task
    assert (task.name, task.resource_id) == ("vertex 1 (2/2) - execution #0", TM_2)
    assert [(each.failure.error, each.timestamp_ms) for each in entry.concurrent] == [(LOST, 5)]


def test_after_the_savepoint_with_which_the_job_stops_no_failure_is_followed_by_a_restart() -> None:
    job = Fixture(restarts=5)
    job.run()
    job.scheduler.stopped_with("file:/savepoint-1")
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    job.report_all(S.CANCELED)
    assert job.scheduler.status is JobStatus.FAILED
    failure = result_of(job.scheduler).failure
    assert failure is not None and "savepoint file:/savepoint-1 is complete" in failure.text


@pytest.mark.parametrize("is_backoff_over", [False, True])
@pytest.mark.parametrize("error", [USER_ERROR, LOST])
def test_a_restart_ends_where_the_savepoint_with_which_the_job_stops_is_complete_after_all(
    is_backoff_over: bool, error: ErrorInfo
) -> None:
    job = Fixture(restarts=5)
    job.run()
    job.services.answers_restores = False
    job.report(job.attempts[0], S.FAILED, error)
    if is_backoff_over:
        job.report_all(S.CANCELED)
        job.services.later[0][1]()
    assert job.scheduler.status is JobStatus.RESTARTING
    assert job.scheduler.awaits_restore(job.services.version) is is_backoff_over
    stale = job.services.version
    job.scheduler.stopped_with("file:/savepoint-1")
    job.scheduler.restored({}, stale)
    job.report(job.attempts[1], S.FAILED, USER_ERROR)
    job.report_all(S.CANCELED)
    job.services.later[0][1]()
    assert job.scheduler.status is JobStatus.FAILED
    assert len(job.services.submitted) == 4, "nothing was deployed again"
    failure = result_of(job.scheduler).failure
    assert failure is not None and "savepoint file:/savepoint-1 is complete" in failure.text

"""CheckpointProtocol: the life of checkpoints, from what is wanted to what was published."""

from collections.abc import Sequence

import pytest

from headrace.checkpoint.errors import CheckpointFailureReason as R
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import (
    ArmPeriodicTimer,
    BacklogChanged,
    BrakesChanged,
    CheckpointStepFailed,
    CheckpointTimedOut,
    DiscardFiles,
    FailJob,
    FailRequest,
    NotifyAborted,
    NotifyComplete,
    PeriodicTimerFired,
    PrepareCheckpoint,
    Publish,
    RegisterSharedState,
    SchedulingStopped,
    SendTriggers,
    SnapshotCoordinators,
    TaskGone,
)
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from tests.unit.cluster.cluster_samples import attempt
from tests.unit.cluster.job_master.checkpointing.protocol.coordinator_world import (
    PLAN,
    SINK,
    SOURCE,
    CoordinatorWorld,
    only,
    published,
)


def names(actions: Sequence[object]) -> list[str]:
    return [type(action).__name__ for action in actions]


def test_a_checkpoint_goes_through_its_steps_in_order() -> None:
    world = CoordinatorWorld()
    assert names(world.request()) == [
        "PrepareCheckpoint",
        "SnapshotCoordinators",
        "SendTriggers",
    ]
    assert names(world.acknowledge(1)) == [
        "RegisterSharedState",
        "RegisterSharedState",
        "Publish",
        "NotifyComplete",
    ]
    assert world.coordinator.pending == () and world.coordinator.latest_completed_id == 1


def test_nobody_is_told_of_completion_before_the_metadata_is_durable() -> None:
    world = CoordinatorWorld(held=(Publish,))
    world.request()
    world.acknowledge(1)
    assert world.of(NotifyComplete) == []
    (publish,) = world.of(Publish)
    assert names(world.handle(published(publish.checkpoint))) == ["NotifyComplete"]


def test_no_barrier_is_sent_before_the_operator_coordinators_are_snapshotted() -> None:
    world = CoordinatorWorld(held=(SnapshotCoordinators,))
    world.request()
    assert world.of(SendTriggers) == []
    world.handle(CheckpointStepFailed(world.next_number, R.TRIGGER_CHECKPOINT_FAILURE, "no"))
    assert world.of(SendTriggers) == [] and len(world.of(NotifyAborted)) == 1


def test_a_repeated_acknowledgement_counts_once() -> None:
    world = CoordinatorWorld()
    world.request()
    world.acknowledge(1, SOURCE, SOURCE, SOURCE)
    assert world.of(Publish) == [] and world.of(DiscardFiles) == []
    world.acknowledge(1, SINK)
    assert len(world.of(NotifyComplete)) == 1


def test_an_acknowledgement_of_somebody_else_is_thrown_away() -> None:
    world = CoordinatorWorld()
    world.request()
    done = world.acknowledge(1, attempt(0, vertex=2, number=7))
    assert names(done) == ["RegisterSharedState", "DiscardFiles"]


def test_a_late_acknowledgement_keeps_its_shared_files_and_loses_the_others() -> None:
    world = CoordinatorWorld()
    world.request()
    world.decline(1)
    done = world.acknowledge(1, SOURCE)
    assert only(done, RegisterSharedState) and only(done, DiscardFiles)


@pytest.mark.parametrize("kind", SnapshotKind)
def test_a_repeated_acknowledgement_of_what_was_published_deletes_nothing(
    kind: SnapshotKind,
) -> None:
    world = CoordinatorWorld()
    world.request(kind)
    world.acknowledge(1)
    assert only(world.acknowledge(1, SOURCE), DiscardFiles) == []
    world.request()
    world.acknowledge(2)
    assert only(world.acknowledge(1, SOURCE), DiscardFiles) == []


@pytest.mark.parametrize("kind", SnapshotKind)
def test_a_repeated_acknowledgement_of_what_may_have_been_published_deletes_nothing(
    kind: SnapshotKind,
) -> None:
    world = CoordinatorWorld(held=(Publish,))
    world.request(kind)
    world.acknowledge(1)
    failed = R.FINALIZE_CHECKPOINT_FAILURE
    done = world.handle(
        CheckpointStepFailed(world.next_number, failed, "no answer", keeps_files=True)
    )
    assert only(done, NotifyAborted)[0].keeps_files
    assert only(world.acknowledge(1, SOURCE), DiscardFiles) == []


def test_the_shared_files_of_a_savepoint_are_its_own() -> None:
    world = CoordinatorWorld()
    world.request(SnapshotKind.SAVEPOINT)
    assert only(world.acknowledge(1), RegisterSharedState) == []


def test_a_checkpoint_that_is_not_complete_in_time_is_given_up() -> None:
    world = CoordinatorWorld(
        CheckpointCoordinatorConfiguration(None, timeout_ms=100, tolerable_failure_count=9)
    )
    world.request()
    world.acknowledge(1, SOURCE)
    (aborted,) = only(world.pass_time(100), NotifyAborted)
    assert (aborted.reason, aborted.checkpoint.waiting) == (R.CHECKPOINT_EXPIRED, (SINK,))
    assert aborted.text == (
        "it was not completed in time: 1 subtask(s) had not answered; raise execution.checkpointing.timeout, or set "
        "execution.checkpointing.unaligned.enabled so that barriers overtake records"
    )


def test_what_is_being_published_cannot_be_taken_back() -> None:
    world = CoordinatorWorld(held=(Publish,))
    world.request()
    world.acknowledge(1)
    world.handle(CheckpointTimedOut(1))
    world.decline(1)
    world.handle(TaskGone(SINK))
    world.handle(SchedulingStopped())
    assert world.of(NotifyAborted) == [] and world.coordinator.is_publishing
    world.handle(published(world.of(Publish)[0].checkpoint))
    assert len(world.of(NotifyComplete)) == 1


def test_a_failed_publication_ends_the_checkpoint() -> None:
    world = CoordinatorWorld(
        CheckpointCoordinatorConfiguration(None, tolerable_failure_count=1), held=(Publish,)
    )
    world.request()
    world.acknowledge(1)
    failed = R.FINALIZE_CHECKPOINT_FAILURE
    done = world.handle(CheckpointStepFailed(world.next_number, failed, "disk full"))
    (aborted,) = only(done, NotifyAborted)
    assert aborted.reason is failed and not aborted.keeps_files
    assert only(done, FailJob) == []


def test_a_failed_task_ends_only_the_checkpoints_that_wait_for_it() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(None, max_concurrent=2))
    world.request()
    world.request()
    world.acknowledge(1, SINK)
    (aborted,) = only(world.handle(TaskGone(SINK)), NotifyAborted)
    assert (aborted.checkpoint.checkpoint_id, aborted.reason) == (2, R.TASK_FAILURE)
    assert [each.checkpoint_id for each in world.coordinator.pending] == [1]


def test_a_task_that_fails_between_plan_and_id_ends_the_trigger() -> None:
    world = CoordinatorWorld(held=(PrepareCheckpoint,))
    world.request()
    world.handle(TaskGone(SINK))
    done = world.handle(world.prepared(world.of(PrepareCheckpoint)[0].request))
    (failed,) = only(done, FailRequest)
    assert failed.reason is R.TASK_FAILURE and world.coordinator.pending == ()
    assert [each.checkpoint_id for each in only(done, DiscardFiles)] == [1]


def test_while_a_checkpoint_is_prepared_the_coordinator_is_not_idle() -> None:
    world = CoordinatorWorld(held=(PrepareCheckpoint,))
    assert world.coordinator.is_idle
    world.request()
    assert not world.coordinator.is_idle


def test_a_task_that_takes_no_part_may_end_while_a_checkpoint_is_prepared() -> None:
    world = CoordinatorWorld(held=(PrepareCheckpoint,))
    world.request()
    world.handle(TaskGone(attempt(0, vertex=3)))
    assert only(world.handle(world.prepared(world.of(PrepareCheckpoint)[0].request)), SendTriggers)


def test_a_later_completion_subsumes_what_is_older() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(None, max_concurrent=3))
    for _ in range(3):
        world.request()
    done = world.acknowledge(2)
    aborted = only(done, NotifyAborted)
    assert [(each.checkpoint.checkpoint_id, each.reason) for each in aborted] == [
        (1, R.CHECKPOINT_SUBSUMED)
    ]
    assert [each.checkpoint_id for each in world.coordinator.pending] == [3]
    assert names(done).index("NotifyAborted") < names(done).index("NotifyComplete")


def test_a_savepoint_is_never_subsumed() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(None, max_concurrent=2))
    world.request(SnapshotKind.SAVEPOINT)
    world.request()
    world.acknowledge(2)
    assert world.of(NotifyAborted) == []
    world.acknowledge(1)
    assert [each.checkpoint.kind for each in world.of(NotifyComplete)] == [
        SnapshotKind.CHECKPOINT,
        SnapshotKind.SAVEPOINT,
    ]


def test_a_savepoint_while_the_job_goes_on_commits_nothing() -> None:
    world = CoordinatorWorld()
    world.request(SnapshotKind.SAVEPOINT)
    world.acknowledge(1)
    (complete,) = world.of(NotifyComplete)
    assert not complete.checkpoint.commits and world.coordinator.latest_completed_id == 0


def test_a_savepoint_with_which_the_job_stops_commits() -> None:
    world = CoordinatorWorld()
    world.request(SnapshotKind.SAVEPOINT_SUSPEND)
    world.acknowledge(1)
    (complete,) = world.of(NotifyComplete)
    assert complete.checkpoint.commits


def test_only_one_checkpoint_is_published_at_a_time_and_the_older_one_first() -> None:
    world = CoordinatorWorld(
        CheckpointCoordinatorConfiguration(None, max_concurrent=3), held=(Publish,)
    )
    for _ in range(3):
        world.request()
    world.acknowledge(1)
    world.acknowledge(3)
    world.acknowledge(2)
    assert [each.checkpoint.checkpoint_id for each in world.of(Publish)] == [1]
    world.handle(published(world.of(Publish)[0].checkpoint))
    assert [each.checkpoint.checkpoint_id for each in world.of(Publish)] == [1, 2]


def test_one_trigger_is_under_way_at_a_time() -> None:
    world = CoordinatorWorld(
        CheckpointCoordinatorConfiguration(None, max_concurrent=5), held=(PrepareCheckpoint,)
    )
    world.request()
    world.request()
    (prepare,) = world.of(PrepareCheckpoint)
    world.handle(world.prepared(prepare.request))
    assert len(world.of(PrepareCheckpoint)) == 2


def test_no_more_are_under_way_than_allowed_but_a_savepoint_passes() -> None:
    world = CoordinatorWorld()
    world.request()
    world.request()
    assert len(world.of(SendTriggers)) == 1
    world.request(SnapshotKind.SAVEPOINT)
    assert world.of(SendTriggers)[-1].checkpoint.kind is SnapshotKind.SAVEPOINT
    world.acknowledge(2)
    assert len(world.of(SendTriggers)) == 2, "the second checkpoint waits for the first"
    world.acknowledge(1)
    assert not world.coordinator.is_idle and len(world.of(SendTriggers)) == 3
    world.acknowledge(3)
    assert world.coordinator.is_idle


def test_a_savepoint_waits_where_checkpoints_are_unaligned() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(None, forces_savepoints=False))
    world.request()
    world.request(SnapshotKind.SAVEPOINT)
    assert len(world.of(SendTriggers)) == 1
    world.acknowledge(1)
    assert world.of(SendTriggers)[-1].checkpoint.kind is SnapshotKind.SAVEPOINT


def test_slow_deletion_holds_new_checkpoints_up() -> None:
    world = CoordinatorWorld()
    world.handle(BrakesChanged(cleaning_count=2))
    assert world.request() == []
    assert names(world.handle(BrakesChanged(cleaning_count=1)))[0] == "PrepareCheckpoint"


def test_a_sink_that_does_not_commit_holds_new_checkpoints_up() -> None:
    world = CoordinatorWorld()
    world.handle(BrakesChanged(0, is_commit_backlog_full=True))
    assert world.request() == []
    assert names(world.handle(BrakesChanged(0)))[0] == "PrepareCheckpoint"


def test_a_trigger_that_failed_lets_the_next_one_go() -> None:
    world = CoordinatorWorld(
        CheckpointCoordinatorConfiguration(None, tolerable_failure_count=9),
        held=(PrepareCheckpoint,),
    )
    world.request()
    number = world.next_number
    world.request()
    done = world.handle(CheckpointStepFailed(number, R.IO_EXCEPTION, "no room"))
    assert only(done, FailRequest)[0].text == "no room"
    assert len(world.of(PrepareCheckpoint)) == 2


def test_a_location_that_comes_too_late_is_removed_again() -> None:
    world = CoordinatorWorld(held=(PrepareCheckpoint,))
    world.request()
    world.handle(SchedulingStopped())
    done = world.handle(world.prepared(world.of(PrepareCheckpoint)[0].request))
    assert done == [DiscardFiles(1, CheckpointOptions())]


def test_an_id_that_comes_for_a_trigger_given_up_is_passed_over() -> None:
    world = CoordinatorWorld(held=(PrepareCheckpoint,))
    world.request()
    world.handle(SchedulingStopped())
    world.request()
    given_up, present = (each.request for each in world.of(PrepareCheckpoint))
    assert not world.coordinator.is_preparing(given_up.number)
    assert names(world.handle(world.prepared(given_up))) == ["DiscardFiles"]
    assert world.coordinator.is_preparing(present.number)
    assert names(world.handle(world.prepared(present)))[0] == "SnapshotCoordinators"


def test_when_the_job_stops_everything_under_way_and_wanted_comes_to_nothing() -> None:
    world = CoordinatorWorld()
    world.request()
    world.request()
    done = world.handle(SchedulingStopped())
    assert [each.reason for each in only(done, FailRequest)] == [
        R.CHECKPOINT_COORDINATOR_SUSPEND
    ] * 2
    assert only(done, FailJob) == []


def test_after_the_end_nothing_is_taken() -> None:
    world = CoordinatorWorld()
    world.handle(SchedulingStopped(R.CHECKPOINT_COORDINATOR_SHUTDOWN))
    (failed,) = only(world.request(), FailRequest)
    assert failed.reason is R.CHECKPOINT_COORDINATOR_SHUTDOWN


@pytest.mark.parametrize("seed", range(20))
def test_the_first_periodic_one_comes_between_pause_and_interval(seed: int) -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(1_000, min_pause_ms=300), seed=seed)
    world.start()
    (armed,) = world.of(ArmPeriodicTimer)
    assert 300 <= armed.delay_ms <= 1_000


def test_later_ones_come_at_a_fixed_rate() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(1_000))
    world.start()
    first_ms = world.of(ArmPeriodicTimer)[0].delay_ms
    world.now_ms = first_ms + 400
    assert world.timer is not None
    world.handle(PeriodicTimerFired(world.timer[0]))
    assert world.of(ArmPeriodicTimer)[1].delay_ms == pytest.approx(600)


def test_without_an_interval_nothing_is_periodic() -> None:
    world = CoordinatorWorld()
    world.start()
    assert world.done == []


def test_a_timer_of_an_earlier_run_has_no_effect() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(1_000))
    world.start()
    assert world.timer is not None
    stale = PeriodicTimerFired(world.timer[0])
    world.handle(SchedulingStopped())
    world.start()
    assert world.handle(stale) == []


def test_the_least_pause_is_kept_and_the_timer_armed_for_what_is_left_of_it() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(100, min_pause_ms=100))
    world.start()
    world.pass_time(100)
    assert [each.checkpoint.checkpoint_id for each in world.of(SendTriggers)] == [1]
    world.now_ms = 150
    world.acknowledge(1)
    assert world.timer is not None
    fires_ms = world.timer[1]
    world.now_ms = max(fires_ms, 200.0)
    done = world.handle(PeriodicTimerFired(world.timer[0]))
    assert only(done, FailRequest)[0].reason is R.MINIMUM_TIME_BETWEEN_CHECKPOINTS
    assert only(done, ArmPeriodicTimer)[-1].delay_ms == pytest.approx(250 - world.now_ms)


def test_a_backlog_has_an_interval_of_its_own() -> None:
    world = CoordinatorWorld(
        CheckpointCoordinatorConfiguration(100, interval_during_backlog_ms=1_000)
    )
    world.start()
    armed = world.timer
    # What is due already stays due; from then on the longer interval counts.
    assert world.handle(BacklogChanged(True)) == []
    assert armed is not None
    world.now_ms = armed[1]
    assert only(world.handle(PeriodicTimerFired(armed[0])), ArmPeriodicTimer)[0].delay_ms == 1_000
    world.now_ms += 300
    (sooner,) = only(world.handle(BacklogChanged(False)), ArmPeriodicTimer)
    assert sooner.delay_ms == 100
    assert world.handle(PeriodicTimerFired(sooner.generation - 1)) == []


def test_an_interval_of_zero_takes_none_during_a_backlog() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(100, interval_during_backlog_ms=0))
    world.start()
    assert world.timer is not None
    stale = PeriodicTimerFired(world.timer[0])
    assert world.handle(BacklogChanged(True)) == []
    world.now_ms = 500
    assert world.handle(stale) == []
    assert only(world.request(), SendTriggers), "who asks for one gets it"
    world.acknowledge(1)
    (again,) = only(world.handle(BacklogChanged(False)), ArmPeriodicTimer)
    assert again.delay_ms == 100


def test_a_backlog_at_the_start_arms_nothing_until_it_is_over() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(100, interval_during_backlog_ms=0))
    world.handle(BacklogChanged(True))
    world.start()
    assert world.of(ArmPeriodicTimer) == []
    assert only(world.handle(BacklogChanged(False)), ArmPeriodicTimer)


def test_a_thousand_wait_and_no_more() -> None:
    world = CoordinatorWorld()
    world.request()
    for _ in range(1_000):
        world.request()
    (failed,) = only(world.request(), FailRequest)
    assert failed.reason is R.TOO_MANY_CHECKPOINT_REQUESTS
    assert failed.request.number == world.next_number


def test_who_finishes_without_answering_ends_the_checkpoint_without_blame() -> None:
    world = CoordinatorWorld()
    world.request()
    done = world.handle(TaskGone(SINK, is_failure=False))
    assert only(done, NotifyAborted)[0].reason is R.CHECKPOINT_DECLINED_TASK_CLOSING
    assert only(done, FailJob) == []


def test_an_aborted_checkpoint_tells_its_tasks_which_one_was_complete() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(None, tolerable_failure_count=9))
    world.request()
    world.acknowledge(1)
    world.request()
    (aborted,) = only(world.decline(2), NotifyAborted)
    assert (aborted.latest_completed_id, aborted.checkpoint.plan) == (1, PLAN)


def test_sixteen_that_were_given_up_are_remembered() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(None, tolerable_failure_count=99))
    for checkpoint_id in range(1, 18):
        world.request()
        world.decline(checkpoint_id)
    world.request()
    world.acknowledge(18)
    # Behind a complete one only of those that are remembered is it known that nobody needs what comes.
    assert only(world.acknowledge(1, SOURCE), DiscardFiles) == []
    for checkpoint_id in range(2, 18):
        assert only(world.acknowledge(checkpoint_id, SOURCE), DiscardFiles)

"""CheckpointCoordinator: calls of storage, tasks and operator coordinators, and what their errors lead to."""

from collections.abc import Callable

import pytest

from headrace.checkpoint.errors import CheckpointFailureReason as R
from headrace.checkpoint.errors import (
    CheckpointFencedError,
    CheckpointStorageError,
    PublicationUnknownError,
)
from headrace.checkpoint.handles import (
    CheckpointMetrics,
    CheckpointProgress,
    OperatorSubtaskState,
    StateChunk,
    StateFile,
    StateTable,
    SubtaskPhase,
    TaskStateSnapshot,
)
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import (
    CheckpointRefusedError,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointsLeft
from headrace.core.barriers import AlignmentMode, SnapshotKind
from headrace.core.ids import ExecutionAttemptId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.errors import CheckpointFailedError
from tests.unit.cluster.cluster_samples import attempt
from tests.unit.cluster.job_master.checkpointing.job_checkpointing_world import (
    OPERATOR,
    SINK,
    SOURCE,
    World,
)


def test_a_checkpoint_is_published_with_the_state_of_all_and_then_told(world: World) -> None:
    asked = world.begin()
    assert world.tasks.told == [("trigger", SOURCE, 1, AlignmentMode.ALIGNED)]
    world.acknowledge(1, "own-1")
    (metadata,) = world.store.published
    assert (metadata.lineage, metadata.epoch, metadata.checkpoint_id) == ("lineage", 3, 1)
    source = next(each for each in metadata.operators if each.operator_id == OPERATOR)
    assert source.coordinator_state == b"enumerator" and source.subtasks[0].chunks
    assert world.tasks.told[1:] == [("complete", SOURCE, 1), ("complete", SINK, 1)]
    assert world.coordinators.heard[-1] == ("completed", 1)
    assert asked.result().checkpoint_id == 1
    counts = world.checkpointing.overview.counts
    assert (counts.triggered, counts.completed, counts.failed) == (1, 1, 0)


def test_a_storage_that_gives_no_id_fails_the_request_and_is_counted(world: World) -> None:
    world.store.errors["take_id"] = CheckpointStorageError("write", "s3:/x", "down")
    assert "cannot write s3:/x" in str(world.begin().result())
    assert len(world.failures) == 1 and world.failures[0].recoverable


def test_a_full_disk_would_repeat_after_a_restart_and_a_silent_subtask_might_not(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(None, timeout_ms=50))
    world.begin()
    world.loop.run_for(50)
    world.store.errors["take_id"] = CheckpointStorageError("write", "s3:/x", "full")
    world.begin()
    expired, refused = world.failures
    assert "it was not completed in time" in str(expired) and not expired.repeats
    assert "cannot write s3:/x" in str(refused) and refused.repeats


def test_a_place_that_cannot_be_made_ends_the_checkpoint(world: World) -> None:
    world.store.errors["locate"] = CheckpointStorageError("write", "s3:/x", "down")
    assert isinstance(world.begin().result(), CheckpointFailedError)
    assert world.tasks.told == [], "they know nothing of it"
    failed = world.checkpointing.overview.latest_failed
    assert failed is not None and (failed.checkpoint_id, failed.reason) == (1, "IO_EXCEPTION")


def test_a_place_that_is_not_made_in_time_ends_the_checkpoint_and_is_removed_when_it_comes(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(60_000, timeout_ms=500))
    world.checkpointing.status_changed(JobStatus.RUNNING)
    world.loop.run_for(1)
    world.storage_answers.clear()
    asked = world.begin()
    world.loop.run_for(500)
    assert "it was not completed in time: the checkpoint storage" in str(asked.result())
    failed = world.checkpointing.overview.latest_failed
    assert failed is not None and failed.reason == "CHECKPOINT_EXPIRED"
    world.storage_answers.set()
    world.loop.run_for(1)
    assert world.store.discarded == [(1, "/chk-1", [])] and world.tasks.told == []


def test_where_somebody_else_leads_the_job_it_ends_and_nothing_is_restarted(world: World) -> None:
    world.store.errors["publish"] = CheckpointFencedError("lineage", 3, 4)
    world.begin()
    world.acknowledge(1)
    assert any(not failure.recoverable for failure in world.failures)
    assert world.coordinators.heard[-1] == ("aborted", 1)


def test_files_stay_where_it_is_not_known_whether_the_checkpoint_is_complete(world: World) -> None:
    world.store.errors["publish"] = PublicationUnknownError("s3:/x", "timeout")
    world.begin()
    world.acknowledge(1, "own-1")
    assert world.store.discarded == []


def test_files_go_where_it_is_known_that_it_will_never_be(world: World) -> None:
    world.store.errors["publish"] = CheckpointStorageError("publish", "s3:/x", "denied")
    world.begin()
    world.acknowledge(1, "own-1", "shared-1")
    assert world.store.discarded == [(1, "/chk-1", ["own-1", "own-1"])]


def test_an_acknowledgement_that_comes_too_late_leaves_only_shared_files(world: World) -> None:
    world.begin()
    world.checkpointing.decline(SINK, 1, R.CHECKPOINT_DECLINED, "busy")
    world.loop.run_for(1)
    world.store.discarded.clear()
    snapshot = TaskStateSnapshot(
        {
            OPERATOR: OperatorSubtaskState(
                (
                    StateChunk(StateTable.KEYED, "a", 1, StateFile("own", b"", 1, b"")),
                    StateChunk(StateTable.KEYED, "b", 1, StateFile("shared", b"", 1, b"", True)),
                )
            )
        }
    )
    world.checkpointing.acknowledge(SOURCE, 1, snapshot, CheckpointMetrics())
    world.loop.run_for(1)
    assert world.store.shared == [(1, "shared")]
    assert world.store.discarded == [(1, "", ["own"])]


def test_files_that_cannot_be_deleted_stay_behind_and_hold_nothing_up(world: World) -> None:
    world.store.errors["discard"] = CheckpointStorageError("delete", "s3:/x", "denied")
    world.begin()
    world.checkpointing.decline(SINK, 1, R.CHECKPOINT_DECLINED_TASK_NOT_READY, "")
    world.loop.run_for(1)
    world.begin()
    assert world.tasks.told[-1][:3] == ("trigger", SOURCE, 2)


def test_slow_deletion_of_what_newer_ones_replaced_holds_checkpoints_up_and_is_told(
    world: World,
) -> None:
    world.checkpointing.subsumed_left(2)
    world.begin()
    assert world.tasks.told == []
    assert (
        world.checkpointing.overview.paused_because == "2 old checkpoints are still being deleted"
    )
    world.checkpointing.subsumed_left(1)
    world.loop.run_for(1)
    assert [each[0] for each in world.tasks.told] == ["trigger"]


@pytest.mark.parametrize("kind", SnapshotKind)
def test_coordinators_hear_how_every_published_snapshot_ended(
    world: World, kind: SnapshotKind
) -> None:
    world.begin(kind)
    world.acknowledge(1)
    is_over = "completed" if kind.is_synchronous or not kind.is_savepoint else "aborted"
    assert [each for each in world.coordinators.heard if each[0] in ("completed", "aborted")] == [
        (is_over, 1)
    ]


def test_an_older_attempt_opens_no_gate(world: World) -> None:
    world.begin()
    older = attempt(0, vertex=1, number=-1)
    world.checkpointing.acknowledge(older, 1, TaskStateSnapshot(), CheckpointMetrics())
    assert world.coordinators.heard == [("taken", 1)]
    world.checkpointing.acknowledge(SOURCE, 1, TaskStateSnapshot(), CheckpointMetrics())
    assert world.coordinators.heard[-1] == ("acknowledged", SOURCE, 1)


def test_coordinators_are_asked_when_all_they_said_has_arrived(world: World) -> None:
    world.coordinators.is_quiet = False
    world.begin()
    assert world.coordinators.heard == [] and world.tasks.told == []
    world.coordinators.is_quiet = True
    world.coordinators.arrived()
    assert world.coordinators.heard == [("taken", 1)]
    assert [each[0] for each in world.tasks.told] == ["trigger"]


def test_a_coordinator_that_cannot_be_snapshotted_ends_the_checkpoint_alone(world: World) -> None:
    world.coordinators.error = ValueError("no")
    assert "an operator coordinator failed: ValueError: no" in str(world.begin().result())
    assert world.failures == []


def test_a_job_whose_tasks_do_not_all_run_takes_none_and_survives(world: World) -> None:
    world.tasks.refusal = CheckpointRefusedError(R.NOT_ALL_REQUIRED_TASKS_RUNNING, "not yet")
    assert str(world.begin().result()) == "not yet"
    assert world.failures == []


def test_a_complete_checkpoint_says_how_long_its_slowest_subtasks_took(world: World) -> None:
    world.begin()
    parts = {
        SOURCE: CheckpointMetrics(1, 0, 7, 300, 1_000, 0),
        SINK: CheckpointMetrics(40, 30, 2, 100, 500, 200, is_unaligned=True),
    }
    for attempt_id, metrics in parts.items():
        world.checkpointing.acknowledge(attempt_id, 1, TaskStateSnapshot(), metrics)
    world.loop.run_for(1)
    completed = world.checkpointing.overview.latest_completed
    assert completed is not None
    assert completed.slowest == CheckpointMetrics(40, 30, 7, 300, 1_500, 200, is_unaligned=True)


def test_what_expires_says_where_it_is_stuck(world: World) -> None:
    asked = world.begin()
    world.checkpointing.acknowledge(SOURCE, 1, TaskStateSnapshot(), CheckpointMetrics())
    world.loop.run_for(600)
    text = str(asked.result())
    assert "1 of 2 subtask(s) had not answered" in text
    assert "first along the stream 'vertex 2' (1/1): its TaskManager does not respond" in text
    failed = world.checkpointing.overview.latest_failed
    assert failed is not None and failed.reason == "CHECKPOINT_EXPIRED"


def test_what_expires_says_whose_barriers_are_missing(world: World) -> None:
    world.tasks.answer = CheckpointProgress(
        SubtaskPhase.ALIGNING, 590_000, (SOURCE,), 1, 3, 12_345, "BACK_PRESSURED"
    )
    asked = world.begin()
    world.checkpointing.acknowledge(SOURCE, 1, TaskStateSnapshot(), CheckpointMetrics())
    world.loop.run_for(600)
    assert (
        "'vertex 2' (1/1): it waits for barriers on 1 of 3 channel(s), those of 'vertex 1' (1/1), for 590.0 s; "
        "12,345 bytes are queued in its inputs; it is back-pressured by those behind it"
    ) in str(asked.result())
    assert ("asked", SINK, 1) in world.tasks.told
    assert ("asked", SOURCE, 1) not in world.tasks.told


def test_what_gets_through_while_it_is_asked_what_holds_it_up_is_complete(world: World) -> None:
    world.tasks.answers_late = True
    asked = world.begin()
    world.checkpointing.acknowledge(SOURCE, 1, TaskStateSnapshot(), CheckpointMetrics())
    world.loop.run_for(600)
    world.checkpointing.acknowledge(SINK, 1, TaskStateSnapshot(), CheckpointMetrics())
    world.loop.run_for(10)
    assert asked.result().checkpoint_id == 1
    assert world.checkpointing.overview.counts.failed == 0


def test_a_savepoint_stores_nothing_in_flight(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(
        CheckpointCoordinatorConfiguration(
            None, alignment=AlignmentMode.UNALIGNED, forces_savepoints=False
        )
    )
    world.begin()
    assert world.tasks.told[-1][3] is AlignmentMode.UNALIGNED
    world.acknowledge(1)
    world.begin(SnapshotKind.SAVEPOINT, "target")
    assert world.tasks.told[-1][3] is AlignmentMode.ALIGNED


def test_the_savepoint_with_which_a_job_stops_is_known_before_its_output_is_committed(
    world: World,
) -> None:
    asked = world.begin(SnapshotKind.SAVEPOINT_SUSPEND, "target")
    world.acknowledge(1)
    assert world.final_savepoints == ["target/chk-1"]
    assert asked.result().uri == "target/chk-1"


def test_when_nobody_has_data_left_the_last_checkpoint_is_taken_at_once(world: World) -> None:
    world.tasks.ending = [SOURCE]
    world.checkpointing.final.data_ended(is_stopping=False)
    world.loop.run_for(1)
    assert world.tasks.told == []
    world.tasks.ending, world.tasks.has_all_data_ended = [SOURCE, SINK], True
    world.checkpointing.final.data_ended(is_stopping=False)
    world.loop.run_for(1)
    assert [each[:2] for each in world.tasks.told] == [("trigger", SOURCE)]


def test_tasks_at_their_end_are_told_again_of_what_they_wait_for(world: World) -> None:
    world.tasks.ending, world.tasks.has_all_data_ended = [SINK], True
    world.checkpointing.final.data_ended(is_stopping=False)
    world.loop.run_for(1)
    world.acknowledge(1)
    world.tasks.told.clear()
    world.loop.run_for(250)
    assert world.tasks.told == [("complete", SINK, 1)] * 2, "and no further one is taken"
    world.tasks.ending = []
    world.loop.run_for(200)
    world.tasks.told.clear()
    world.loop.run_for(1_000)
    assert world.tasks.told == []


def test_a_last_checkpoint_that_came_to_nothing_is_taken_again(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(None, tolerable_failure_count=5))
    world.tasks.ending, world.tasks.has_all_data_ended = [SINK], True
    world.checkpointing.final.data_ended(is_stopping=False)
    world.loop.run_for(1)
    world.checkpointing.decline(SINK, 1, R.CHECKPOINT_DECLINED, "busy")
    world.loop.run_for(100)
    assert [each[2] for each in world.tasks.told if each[0] == "trigger"] == [1, 2]


@pytest.mark.parametrize("has_begun", [False, True], ids=["chosen", "begun"])
def test_a_last_checkpoint_whose_tasks_leave_meanwhile_is_taken_again_at_once(
    world: World, has_begun: bool
) -> None:
    if not has_begun:
        world.storage_answers.clear()
    world.tasks.ending, world.tasks.has_all_data_ended = [SOURCE, SINK], True
    world.checkpointing.final.data_ended(is_stopping=False)
    world.loop.run_for(1)
    world.tasks.ending = [SINK]
    world.checkpointing.task_gone(SOURCE, is_failure=False)
    world.storage_answers.set()
    world.loop.run_for(1)
    triggered = [each[2] for each in world.tasks.told if each[0] == "trigger"]
    assert triggered == ([1, 2] if has_begun else [2])


@pytest.mark.parametrize(
    ("is_failure", "ending"), [(True, [SINK]), (False, [])], ids=["failed", "all have left"]
)
def test_no_last_checkpoint_is_taken_at_once_where_none_is_waited_for(
    world: World, is_failure: bool, ending: list[ExecutionAttemptId]
) -> None:
    world.tasks.ending, world.tasks.has_all_data_ended = [SOURCE, SINK], True
    world.checkpointing.final.data_ended(is_stopping=False)
    world.loop.run_for(1)
    world.tasks.ending = ending
    world.checkpointing.task_gone(SOURCE, is_failure=is_failure)
    world.loop.run_for(1)
    assert [each[2] for each in world.tasks.told if each[0] == "trigger"] == [1]


def test_a_restart_waits_for_the_publication_that_is_under_way(world: World) -> None:
    world.begin()
    world.checkpointing.status_changed(JobStatus.RUNNING)
    for attempt_id in (SOURCE, SINK):
        world.checkpointing.acknowledge(attempt_id, 1, TaskStateSnapshot(), CheckpointMetrics())
    # It is being published; only now does the job fail.
    world.checkpointing.status_changed(JobStatus.RESTARTING)
    latest = world.loop.run_until(world.checkpointing.lineage.latest())
    assert latest is not None and latest.checkpoint_id == 1
    assert world.checkpointing.overview.restored_id == 1


def test_a_restart_knows_of_a_savepoint_to_stop_with_before_it_knows_what_to_start_from(
    world: World,
) -> None:
    world.begin(SnapshotKind.SAVEPOINT_SUSPEND, "target")
    world.storage_answers.clear()
    world.acknowledge(1)
    world.checkpointing.status_changed(JobStatus.RESTARTING)
    order: list[str] = []

    async def restart() -> None:
        await world.checkpointing.lineage.latest()
        order.extend([*world.final_savepoints, "restart"])

    world.endpoint.spawn(restart(), "restart")
    world.loop.run_for(1)
    assert order == []
    world.storage_answers.set()
    world.loop.run_for(1)
    assert order == ["target/chk-1", "restart"]


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.SUSPENDED])
def test_the_storage_hears_how_the_job_ended(world: World, status: JobStatus) -> None:
    world.loop.run_until(world.checkpointing.lineage.close(status))
    assert world.store.closed == [(status, False)]


@pytest.mark.parametrize(
    ("status", "kept_as"),
    [
        (JobStatus.CANCELED, JobStatus.SUSPENDED),
        (JobStatus.FAILED, JobStatus.FAILED),
        (JobStatus.FINISHED, JobStatus.FINISHED),
    ],
)
def test_a_job_that_its_cluster_gives_up_is_not_taken_for_a_cancelled_one(
    world: World, status: JobStatus, kept_as: JobStatus
) -> None:
    world.loop.run_until(world.checkpointing.lineage.close(status, is_given_up=True))
    assert world.store.closed == [(kept_as, False)]


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (CheckpointsLeft("file:///c/chk-7"), "continue from it with -s file:///c/chk-7"),
        (CheckpointsLeft(has_deleted=True), "cancelled, and its checkpoints are deleted"),
        (CheckpointsLeft(), ""),
    ],
)
def test_people_are_told_what_is_left_of_a_cancelled_job(
    world: World, left: CheckpointsLeft, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.store.left = left
    world.loop.run_until(world.checkpointing.lineage.close(JobStatus.CANCELED))
    told = [record.message for record in caplog.records]
    assert len(told) == bool(said) and said in "".join(told)


def test_nobody_is_sent_to_a_checkpoint_from_which_a_job_could_not_start(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.checkpointing.lineage.refused()
    world.store.left = CheckpointsLeft("file:///c/chk-5")
    world.loop.run_until(world.checkpointing.lineage.close(JobStatus.FAILED))
    assert caplog.records == []


def test_a_backlog_of_a_source_changes_when_periodic_ones_are_taken(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(100, interval_during_backlog_ms=0))
    world.coordinators.backlog_changed(True)
    world.checkpointing.status_changed(JobStatus.RUNNING)
    world.loop.run_for(1_000)
    assert world.checkpointing.overview.counts.triggered == 0
    world.coordinators.backlog_changed(False)
    world.loop.run_for(150)
    assert world.checkpointing.overview.counts.triggered == 1

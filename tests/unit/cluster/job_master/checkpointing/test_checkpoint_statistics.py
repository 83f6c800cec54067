"""Statistics of a job's checkpoints: counts, the newest ones, and what each subtask told of its part."""

import math

import pytest

from headrace.checkpoint.errors import CheckpointFailureReason, CheckpointStorageError
from headrace.checkpoint.handles import (
    CheckpointMetrics,
    OperatorSubtaskState,
    StateChunk,
    StateFile,
    StateTable,
    TaskStateSnapshot,
)
from headrace.cluster.job_master.checkpointing.checkpoint_history import (
    CheckpointHistory,
    TrackedCheckpoint,
)
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import CheckpointPlan
from headrace.core.barriers import SnapshotKind
from headrace.gateways.checkpoint_statistics import (
    CheckpointCounts,
    CheckpointRecord,
    CheckpointStatus,
    SubtaskCheckpoint,
)
from tests.unit.cluster.cluster_samples import attempt, vertex_id
from tests.unit.cluster.job_master.checkpointing.job_checkpointing_world import (
    OPERATOR,
    SINK,
    SOURCE,
    World,
)

FULL = TaskStateSnapshot(
    {
        OPERATOR: OperatorSubtaskState(
            (StateChunk(StateTable.KEYED, "s", 1, StateFile("", b"x" * 700, 700, b"")),)
        )
    }
)
MEASURED = CheckpointMetrics(
    start_delay_ms=4,
    alignment_ms=3,
    sync_ms=2,
    async_ms=9,
    written_bytes=500,
    in_flight_bytes=60,
    is_unaligned=True,
    processed_bytes=40,
)


def newest(world: World) -> CheckpointRecord:
    return world.checkpointing.statistics.history[0]


def complete(world: World) -> None:
    """Take one checkpoint."""
    world.begin()
    world.acknowledge(world.store.last_id)


def test_a_job_that_took_none_has_no_statistics(world: World) -> None:
    statistics = world.checkpointing.statistics
    assert statistics.counts == CheckpointCounts() and statistics.history == ()
    assert statistics.latest_completed is statistics.restored is None
    assert math.isnan(statistics.summary.state_size.p50)
    assert not statistics.is_enabled


def test_one_under_way_shows_who_has_acknowledged(world: World) -> None:
    world.begin()
    before = newest(world)
    assert (before.status, before.checkpoint_id) == (CheckpointStatus.IN_PROGRESS, 1)
    assert (before.latest_ack_timestamp_ms, before.end_to_end_duration_ms) == (-1, -1)
    assert (before.subtask_count, before.acknowledged_subtask_count) == (2, 0)
    world.loop.run_for(20)
    world.checkpointing.acknowledge(SOURCE, 1, FULL, MEASURED)
    record = newest(world)
    assert record.acknowledged_subtask_count == 1
    assert (record.checkpointed_size_bytes, record.state_size_bytes) == (500, 700)
    assert (record.processed_bytes, record.persisted_bytes) == (40, 60) and record.is_unaligned
    assert record.latest_ack_timestamp_ms == record.trigger_timestamp_ms + 21
    details = world.checkpointing.details_of(1)
    assert details is not None and details.checkpoint == record
    assert [each.task.acknowledged_subtask_count for each in details.tasks] == [1, 0]
    assert [each.task.end_to_end_duration_ms for each in details.tasks] == [21, -1]
    assert world.checkpointing.statistics.counts.in_progress == 1


def test_details_tell_what_each_subtask_measured(world: World) -> None:
    world.begin()
    world.checkpointing.acknowledge(SOURCE, 1, FULL, MEASURED)
    details = world.checkpointing.details_of(1)
    assert details is not None
    source, sink = details.tasks
    assert sink.subtasks == () and sink.task.subtask_count == 1
    now_ms = world.loop.clock.now_ms()
    assert source.subtasks == (
        SubtaskCheckpoint(
            subtask_index=0,
            ack_timestamp_ms=now_ms,
            end_to_end_duration_ms=now_ms - details.checkpoint.trigger_timestamp_ms,
            checkpointed_size_bytes=500,
            state_size_bytes=700,
            sync_duration_ms=2,
            async_duration_ms=9,
            alignment_duration_ms=3,
            processed_bytes=40,
            persisted_bytes=60,
            start_delay_ms=4,
            is_unaligned=True,
        ),
    )


def test_an_acknowledgement_that_comes_twice_counts_once(world: World) -> None:
    world.begin()
    for _ in range(2):
        world.checkpointing.acknowledge(SOURCE, 1, FULL, MEASURED)
    assert newest(world).checkpointed_size_bytes == 500


def test_an_acknowledgement_of_an_attempt_that_takes_no_part_counts_not(world: World) -> None:
    world.begin()
    older = attempt(0, vertex=1, number=3)
    world.checkpointing.acknowledge(older, 1, FULL, MEASURED)
    assert newest(world).acknowledged_subtask_count == 0


def test_a_completed_one_tells_where_it_lies_and_for_how_long_it_took(world: World) -> None:
    world.begin()
    world.loop.run_for(100)
    world.acknowledge(1, "own")
    record = newest(world)
    assert (record.status, record.external_path) == (CheckpointStatus.COMPLETED, "/chk-1")
    assert record.end_to_end_duration_ms == 101
    assert record.state_size_bytes == 1 + len(b"enumerator")
    assert record.failure_timestamp_ms == -1 and record.savepoint_format == ""
    statistics = world.checkpointing.statistics
    assert statistics.latest_completed == record and statistics.latest_savepoint is None
    assert (statistics.counts.triggered, statistics.counts.completed) == (1, 1)
    assert statistics.counts.in_progress == 0


def test_a_failed_one_tells_when_and_why(world: World) -> None:
    world.begin()
    world.loop.run_for(600)
    record = newest(world)
    assert record.status is CheckpointStatus.FAILED
    assert "had not answered" in record.failure_message
    assert record.failure_timestamp_ms >= record.trigger_timestamp_ms + 500
    details = world.checkpointing.details_of(1)
    assert details is not None
    assert [each.task.status for each in details.tasks] == [CheckpointStatus.FAILED] * 2
    assert world.checkpointing.statistics.latest_failed == record


def test_one_that_a_subtask_has_declined_shows_which_one(world: World) -> None:
    world.begin()
    world.checkpointing.acknowledge(SOURCE, 1, FULL, MEASURED)
    world.loop.run_for(20)
    world.checkpointing.decline(SINK, 1, CheckpointFailureReason.CHECKPOINT_DECLINED, "no")
    # Too late, and of an attempt that takes no part.
    world.checkpointing.decline(SOURCE, 1, CheckpointFailureReason.CHECKPOINT_DECLINED, "no")
    record = newest(world)
    assert (record.status, record.acknowledged_subtask_count) == (CheckpointStatus.FAILED, 1)
    details = world.checkpointing.details_of(1)
    assert details is not None
    source, sink = details.tasks
    assert [each.is_aborted for each in source.subtasks] == [False]
    now_ms = world.loop.clock.now_ms()
    elapsed_ms = now_ms - record.trigger_timestamp_ms
    assert sink.subtasks == (SubtaskCheckpoint(0, now_ms, elapsed_ms, is_aborted=True),)
    assert sink.task.acknowledged_subtask_count == 0
    assert (sink.task.latest_ack_timestamp_ms, sink.task.end_to_end_duration_ms) == (-1, -1)


def test_one_that_has_no_place_failed_without_subtasks(world: World) -> None:
    world.store.errors["locate"] = CheckpointStorageError("write", "s3:/x", "down")
    world.begin()
    record = newest(world)
    assert (record.status, record.subtask_count) == (CheckpointStatus.FAILED, 0)
    details = world.checkpointing.details_of(1)
    assert details is not None and details.tasks == ()
    assert "s3:/x" in record.failure_message
    assert world.checkpointing.statistics.counts == CheckpointCounts(triggered=1, failed=1)


@pytest.mark.parametrize(
    ("kind", "format_name"),
    [(SnapshotKind.SAVEPOINT, "CANONICAL"), (SnapshotKind.NATIVE_SAVEPOINT, "NATIVE")],
)
def test_a_savepoint_is_none_of_the_checkpoints(
    world: World, kind: SnapshotKind, format_name: str
) -> None:
    world.begin(kind, "target")
    world.acknowledge(1)
    statistics = world.checkpointing.statistics
    assert statistics.latest_completed is None and statistics.latest_savepoint is not None
    assert statistics.latest_savepoint.savepoint_format == format_name
    assert not statistics.latest_savepoint.is_discarded, "it is its user's"


def test_a_password_in_the_place_of_a_snapshot_is_not_told(world: World) -> None:
    world.begin(SnapshotKind.SAVEPOINT, "s3://key:hunter2@bucket")
    world.acknowledge(1)
    assert newest(world).external_path == "s3://key:******@bucket/chk-1"


def test_one_that_a_newer_one_has_replaced_is_discarded(world: World) -> None:
    complete(world)
    assert not newest(world).is_discarded
    complete(world)
    history = world.checkpointing.statistics.history
    assert [(one.checkpoint_id, one.is_discarded) for one in history] == [(2, False), (1, True)]


def test_the_summary_is_of_completed_ones_alone(world: World) -> None:
    for size_bytes in (100, 300):
        world.begin()
        for attempt_id in (SOURCE, SINK):
            metrics = CheckpointMetrics(written_bytes=size_bytes)
            world.checkpointing.acknowledge(attempt_id, world.store.last_id, FULL, metrics)
        world.loop.run_for(1)
    world.begin()
    world.loop.run_for(600)
    summary = world.checkpointing.statistics.summary.checkpointed_size
    assert (summary.minimum, summary.maximum, summary.average) == (200, 600, 400)
    assert summary.p50 == 400.0


def test_a_restored_one_tells_when(world: World) -> None:
    complete(world)
    world.loop.run_for(50)
    world.loop.run_until(world.checkpointing.lineage.latest())
    restored = world.checkpointing.statistics.restored
    assert restored is not None
    assert (restored.checkpoint_id, restored.kind) == (1, SnapshotKind.CHECKPOINT)
    assert restored.restore_timestamp_ms == world.loop.clock.now_ms()
    assert world.checkpointing.statistics.counts.restored == 1


def test_the_history_is_newest_first_and_bounded(world: World) -> None:
    for _ in range(12):
        complete(world)
    ids = [each.checkpoint_id for each in world.checkpointing.statistics.history]
    assert ids == list(range(12, 2, -1))
    assert world.checkpointing.details_of(2) is None
    assert world.checkpointing.details_of(3) is not None


def test_the_newest_of_its_kind_is_remembered_however_old_it_is(world: World) -> None:
    world.begin(SnapshotKind.SAVEPOINT, "target")
    world.acknowledge(1)
    for _ in range(11):
        complete(world)
    savepoint = world.checkpointing.statistics.latest_savepoint
    assert savepoint is not None and savepoint.checkpoint_id == 1
    assert world.checkpointing.details_of(1) is not None
    remembered = [one.checkpoint.checkpoint_id for one in world.checkpointing.all_details]
    assert sorted(remembered) == [1, *range(3, 13)]


def tracked(checkpoint_id: int, plan: CheckpointPlan | None = None) -> TrackedCheckpoint:
    return TrackedCheckpoint(checkpoint_id, SnapshotKind.CHECKPOINT, 1_000, 0, plan=plan)


def test_a_history_of_no_size_remembers_only_the_newest_of_each_kind() -> None:
    history = CheckpointHistory(0)
    completed = tracked(1)
    history.add(completed)
    assert list(history) == [] and history.find(1) is None
    history.latest_completed = completed
    assert history.find(1) is completed and list(history.all) == [completed]


def test_subtasks_that_had_finished_count_as_acknowledged() -> None:
    finished = attempt(1).execution_vertex_id
    checkpoint = tracked(1, CheckpointPlan((), (attempt(0),), (finished,)))
    record = checkpoint.record
    assert (record.subtask_count, record.acknowledged_subtask_count) == (2, 1)
    (task,) = checkpoint.details.tasks
    assert task.task.vertex_id == vertex_id(1)
    assert [each.subtask_index for each in task.subtasks] == [1]
    assert task.task.checkpointed_size_bytes == 0


def test_subtasks_are_told_by_their_index_whoever_was_first() -> None:
    attempts = tuple(attempt(index) for index in range(3))
    checkpoint = tracked(1, CheckpointPlan(attempts, attempts))
    for index in (2, 0, 1):
        subtask = attempts[index].execution_vertex_id
        checkpoint.acknowledged(subtask, FULL, MEASURED, 1_000 + index)
    (task,) = checkpoint.details.tasks
    assert [each.subtask_index for each in task.subtasks] == [0, 1, 2]
    assert task.task.latest_ack_timestamp_ms == 1_002 and task.task.end_to_end_duration_ms == 2
    assert task.task.state_size_bytes == 2_100

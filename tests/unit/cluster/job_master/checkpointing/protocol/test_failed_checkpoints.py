"""CheckpointProtocol: which checkpoints that came to nothing fail the job."""

import pytest

from headrace.checkpoint.errors import CheckpointFailureReason as R
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import (
    CheckpointStepFailed,
    FailJob,
    FailRequest,
    NotifyAborted,
    PrepareCheckpoint,
)
from headrace.core.barriers import SnapshotKind
from tests.unit.cluster.job_master.checkpointing.protocol.coordinator_world import (
    CoordinatorWorld,
    only,
)


@pytest.mark.parametrize("tolerable", [0, 2])
def test_more_failures_in_a_row_than_tolerated_fail_the_job(tolerable: int) -> None:
    world = CoordinatorWorld(
        CheckpointCoordinatorConfiguration(None, tolerable_failure_count=tolerable)
    )
    for checkpoint_id in range(1, tolerable + 1):
        world.request()
        assert only(world.decline(checkpoint_id), FailJob) == []
    world.request()
    (failed,) = only(world.decline(tolerable + 1), FailJob)
    assert failed.text.endswith(
        " (more checkpoints failed in a row than execution.checkpointing.tolerable-failed-checkpoints allows)"
    )
    assert not failed.text.startswith(" ")


def test_a_success_begins_the_count_anew() -> None:
    world = CoordinatorWorld(CheckpointCoordinatorConfiguration(None, tolerable_failure_count=1))
    for checkpoint_id in range(1, 7):
        world.request()
        if checkpoint_id % 2:
            world.decline(checkpoint_id)
        else:
            world.acknowledge(checkpoint_id)
    assert world.of(FailJob) == []


def test_a_task_that_was_not_ready_does_not_count() -> None:
    world = CoordinatorWorld()
    world.request()
    done = world.decline(1, R.CHECKPOINT_DECLINED_TASK_NOT_READY)
    assert only(done, NotifyAborted) and not only(done, FailJob)


def test_a_savepoint_that_fails_in_the_storage_concerns_only_who_asked() -> None:
    world = CoordinatorWorld(held=(PrepareCheckpoint,))
    world.request(SnapshotKind.SAVEPOINT)
    done = world.handle(CheckpointStepFailed(world.next_number, R.IO_EXCEPTION, "no such bucket"))
    assert only(done, FailRequest)[0].text == "no such bucket" and not only(done, FailJob)


def test_a_savepoint_for_which_tasks_have_stopped_fails_the_job_with_it() -> None:
    world = CoordinatorWorld(
        CheckpointCoordinatorConfiguration(None, timeout_ms=50, tolerable_failure_count=99)
    )
    world.request(SnapshotKind.SAVEPOINT_SUSPEND)
    (failed,) = only(world.pass_time(50), FailJob)
    assert failed.text.startswith("it was not completed in time: 2 subtask(s) had not answered")
    assert "the savepoint that was to stop the job failed" in failed.text
    assert failed.reason is R.CHECKPOINT_EXPIRED

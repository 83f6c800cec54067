"""Notices of checkpoints to the user: those that failed, and why none is taken."""

from collections.abc import Callable

import pytest

from headrace.checkpoint.errors import CheckpointFailureReason as R
from headrace.checkpoint.errors import CheckpointStorageError
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import (
    CheckpointRefusedError,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.core.barriers import SnapshotKind
from headrace.core.lifecycle import JobStatus
from tests.unit.cluster.job_master.checkpointing.job_checkpointing_world import World


def told(world: World) -> list[str]:
    return [notice.text for notice in world.notices.shown]


def test_a_checkpoint_that_failed_is_told_with_its_remedy_where_the_job_goes_on(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(10, tolerable_failure_count=5))
    error = CheckpointStorageError(
        "write", "file:/c", "No space left on device", "free space there"
    )
    world.store.errors["publish"] = error
    world.checkpointing.status_changed(JobStatus.RUNNING)
    world.loop.run_for(15)
    world.acknowledge(1)
    assert told(world) == [f"a checkpoint of job 'a job' failed, but the job goes on: {error}"]
    assert not world.failures


def test_where_the_job_fails_for_it_that_failure_says_so_alone(world: World) -> None:
    world.store.errors["locate"] = CheckpointStorageError("write", "file:/c", "it is full")
    world.begin()
    assert told(world) == []
    assert [str(one).startswith("checkpoint storage: cannot write") for one in world.failures] == [
        True
    ]


def test_that_no_checkpoint_can_be_taken_any_more_is_told_once(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(10, tolerable_failure_count=5))
    why = "some tasks have finished"
    world.tasks.refusal = CheckpointRefusedError(
        R.NOT_ALL_REQUIRED_TASKS_RUNNING, why, is_lasting=True
    )
    world.checkpointing.status_changed(JobStatus.RUNNING)
    world.loop.run_for(1_000)
    assert told(world) == [f"job 'a job' takes no more checkpoints: {why}"]


def test_only_checkpoints_that_the_job_restarts_from_say_how_far_it_is(world: World) -> None:
    world.begin(SnapshotKind.SAVEPOINT, "somewhere")
    world.acknowledge(1)
    assert world.positions == []
    world.begin()
    world.acknowledge(2)
    assert len(world.positions) == 1 and world.checkpointing.newest_id == 2


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_storage_that_never_answers_is_told_once_after_a_minute(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World], is_begun: bool
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(1_000))
    if is_begun:
        world.checkpointing.status_changed(JobStatus.RUNNING)
        world.loop.run_for(1_500)
    world.storage_answers.clear()
    if is_begun:
        world.acknowledge(1)
    else:
        world.checkpointing.status_changed(JobStatus.RUNNING)
    world.loop.run_for(59_000)
    assert told(world) == []
    world.loop.run_for(200_000)
    (notice,) = told(world)
    assert notice.startswith("job 'a job' has taken no checkpoint for 6")
    assert notice.endswith(" s: the checkpoint storage does not respond")


def test_a_checkpoint_that_is_slow_and_will_expire_is_not_called_held_up(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(1_000, timeout_ms=600_000))
    world.checkpointing.status_changed(JobStatus.RUNNING)
    world.loop.run_for(300_000)
    assert world.checkpointing.overview.counts.in_progress == 1 and told(world) == []

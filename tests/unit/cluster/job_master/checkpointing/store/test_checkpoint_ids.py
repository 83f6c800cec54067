"""CheckpointIdCounter: the next id is there before it is needed, and ids are given out in the order of their taking."""

from collections.abc import Callable

import pytest

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import (
    CheckpointIdCounter,
    CheckpointIo,
)
from headrace.core.lifecycle import JobStatus
from tests.unit.cluster.job_master.checkpointing.job_checkpointing_world import World


@pytest.fixture
def ids(world: World) -> CheckpointIdCounter:
    calls = CheckpointIo(world.store, world.run_blocking, world.endpoint.spawn, lambda: None)
    return CheckpointIdCounter(calls, world.endpoint.spawn)


def test_an_id_that_was_taken_ahead_needs_no_storage(
    world: World, ids: CheckpointIdCounter
) -> None:
    ids.take_ahead()
    world.loop.run_for(1)
    assert world.store.last_id == 1
    world.storage_answers.clear()
    assert world.loop.run_until(ids.take()) == 1


def test_one_id_is_taken_ahead_and_no_more(world: World, ids: CheckpointIdCounter) -> None:
    for _ in range(3):
        ids.take_ahead()
    world.loop.run_for(1)
    ids.take_ahead()
    world.loop.run_for(1)
    assert world.store.last_id == 1


def test_whoever_comes_while_one_is_taken_ahead_has_that(
    world: World, ids: CheckpointIdCounter
) -> None:
    world.storage_answers.clear()
    ids.take_ahead()
    world.loop.run_for(1)
    taken = world.endpoint.spawn(ids.take(), "take")
    world.loop.run_for(1)
    assert not taken.done()
    world.storage_answers.set()
    world.loop.run_for(1)
    assert (taken.result(), world.loop.run_until(ids.take())) == (1, 2)


def test_a_storage_that_fails_ahead_of_time_is_asked_again(
    world: World, ids: CheckpointIdCounter
) -> None:
    world.store.errors["take_id"] = CheckpointStorageError("write", "s3:/x", "down")
    ids.take_ahead()
    world.loop.run_for(1)
    assert world.store.errors == {}
    assert world.loop.run_until(ids.take()) == 1


def test_an_id_that_nobody_needed_is_given_up_in_the_end(
    world: World, ids: CheckpointIdCounter
) -> None:
    world.storage_answers.clear()
    ids.take_ahead()
    world.loop.run_for(1)
    closed = world.endpoint.spawn(ids.close(), "close")
    world.loop.run_for(1)
    world.storage_answers.set()
    world.loop.run_for(1)
    assert closed.done() and world.store.given_up == [1]
    ids.take_ahead()
    world.loop.run_for(1)
    assert world.store.last_id == 1


def test_a_job_with_periodic_checkpoints_takes_the_next_id_ahead(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(60_000))
    world.checkpointing.status_changed(JobStatus.RUNNING)
    world.loop.run_for(1)
    assert world.store.last_id == 1
    asked = world.begin()
    world.acknowledge(1)
    assert asked.result().checkpoint_id == 1
    world.loop.run_for(1)
    assert world.store.last_id == 2
    world.loop.run_until(world.checkpointing.lineage.close(JobStatus.FINISHED))
    assert world.store.given_up == [2]


def test_a_job_whose_data_has_ended_takes_no_more_ids_ahead(
    new_world: Callable[[CheckpointCoordinatorConfiguration], World],
) -> None:
    world = new_world(CheckpointCoordinatorConfiguration(60_000))
    world.checkpointing.status_changed(JobStatus.RUNNING)
    world.begin()
    world.tasks.has_all_data_ended = True
    world.acknowledge(1)
    world.loop.run_for(1)
    assert len(world.store.published) == 1 and world.store.last_id == 1


def test_a_job_without_periodic_checkpoints_takes_no_id_ahead(world: World) -> None:
    world.checkpointing.status_changed(JobStatus.RUNNING)
    world.loop.run_for(1)
    assert world.store.last_id == 0

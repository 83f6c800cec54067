"""Worlds of checkpoints, each closed at the end of its test."""

from collections.abc import Callable, Iterator

import pytest

from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from tests.unit.cluster.job_master.checkpointing.job_checkpointing_world import World


@pytest.fixture
def new_world() -> Iterator[Callable[[CheckpointCoordinatorConfiguration], World]]:
    made: list[World] = []

    def create(configuration: CheckpointCoordinatorConfiguration) -> World:
        made.append(World(configuration))
        return made[-1]

    yield create
    for world in made:
        world.close()


@pytest.fixture
def world(new_world: Callable[[CheckpointCoordinatorConfiguration], World]) -> World:
    """One whose checkpoints nobody but the test triggers."""
    return new_world(CheckpointCoordinatorConfiguration(None, timeout_ms=500))

"""The ResourceManager relays questions for the metrics of TaskManagers' processes."""

from collections.abc import Iterator

import pytest

from headrace.core.ids import ResourceId
from headrace.gateways.errors import UnknownTaskManagerError
from tests.unit.cluster.resource_manager.resource_manager_world import WORKER, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_task_manager_is_asked_for_the_metrics_of_its_process(world: World) -> None:
    world.task_manager.script.answers["request_process_metrics"] = {"Status.JVM.CPU.Load": 0.5}
    world.declare(1)
    world.register_with_slots()
    answer = world.ask(world.gateway.request_task_manager_metrics(WORKER))
    assert answer == {"Status.JVM.CPU.Load": 0.5}


def test_one_that_is_not_registered_is_an_error(world: World) -> None:
    with pytest.raises(UnknownTaskManagerError, match="there is no TaskManager nobody"):
        world.ask(world.gateway.request_task_manager_metrics(ResourceId("nobody")))

"""DataSetLookup: the ResourceManager is asked until it answers or time is up; an answer names its question."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cluster.job_master.connections.cached_results import DataSetLookup
from headrace.cluster.job_master.connections.options import PARTITION_REGISTER_TIMEOUT
from headrace.cluster.job_master.results.cached_inputs import DataSetPlaces
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import ClusterDataSetId, IntermediateDataSetId, ResourceId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import ShuffleDescriptor, TaskManagerLocation
from headrace.gateways.errors import BlobStorageError
from headrace.gateways.messages import ErrorInfo
from headrace.gateways.resource_manager import ResourceManagerGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.loopback import LoopbackNetwork
from testkit.scripted_gateways import end_processes, start_scripted
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import OTHER_JOB
from tests.unit.network.exchange import partition_id

DATA_SETS = [ClusterDataSetId(OTHER_JOB, IntermediateDataSetId(bytes([n] * 16))) for n in (1, 2)]
LOCATION = TaskManagerLocation(ResourceId("worker"), "host", 1, None, "machine")
PLACES = [(ShuffleDescriptor(partition_id(number), LOCATION),) for number in (1, 2)]


class World:
    """A lookup on virtual time; its ResourceManager knows where PLACES are, unless the test says otherwise."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.loop = VirtualLoop(clock)
        self.network = LoopbackNetwork(clock, SeededRandom(1), loop=self.loop)
        self.resource_manager = start_scripted(
            self.network.create_service("resource-manager"),
            "rm",
            ResourceManagerGateway,
            request_cluster_partitions=lambda key: PLACES[DATA_SETS.index(key)],
        )
        service = self.network.create_service("master")
        endpoint = RpcEndpoint(service, "job")
        endpoint.start()
        address = self.resource_manager.address
        self.gateway = self.loop.run_until(service.connect(address, ResourceManagerGateway))
        self.link = SimpleNamespace(gateway=self.gateway)
        connection: Any = SimpleNamespace(link=self.link)
        self.found: list[tuple[DataSetPlaces, int]] = []
        self.failed: list[tuple[ErrorInfo, int]] = []
        settings = Settings({PARTITION_REGISTER_TIMEOUT.key: "5 s"})
        self.lookup = DataSetLookup(endpoint, connection, settings)

    def find(self, data_sets: list[ClusterDataSetId], version: int) -> None:
        self.lookup.find(
            data_sets,
            version,
            lambda *answer: self.found.append(answer),
            lambda *answer: self.failed.append(answer),
        )

    def answer(self, answer: Any) -> None:
        self.resource_manager.script.answers["request_cluster_partitions"] = answer

    @property
    def asked_count(self) -> int:
        return len(self.resource_manager.script.called("request_cluster_partitions"))

    def close(self) -> None:
        end_processes(self.network, self.loop)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_the_places_of_all_data_sets_come_at_once(world: World) -> None:
    world.find(DATA_SETS, 7)
    world.loop.run_for(10)
    assert world.found == [(dict(zip(DATA_SETS, PLACES, strict=True)), 7)]
    assert world.failed == []


def test_a_resource_manager_that_refuses_is_asked_again(world: World) -> None:
    world.answer(BlobStorageError("not now"))
    world.find(DATA_SETS[:1], 1)
    world.loop.run_for(500)
    assert world.asked_count > 1 and world.found == []
    world.answer(PLACES[0])
    world.loop.run_for(500)
    assert world.found == [({DATA_SETS[0]: PLACES[0]}, 1)]


def test_one_that_is_not_connected_yet_is_asked_once_it_is(world: World) -> None:
    world.link.gateway = None
    world.find(DATA_SETS[:1], 1)
    world.loop.run_for(1_000)
    assert world.asked_count == 0
    world.link.gateway = world.gateway
    world.loop.run_for(500)
    assert [version for _, version in world.found] == [1]


def test_without_an_answer_it_is_heard_what_was_not_found_when_the_time_is_over(
    world: World,
) -> None:
    world.answer(lambda key: asyncio.Event().wait())
    world.find(DATA_SETS, 3)
    world.loop.run_for(4_900)
    assert world.failed == []
    world.loop.run_for(200)
    ((error, version),) = world.failed
    assert version == 3 and world.found == []
    assert error.class_name == "DataSetLookupError" and error.recoverable
    assert (
        "did not return within 5 s" in error.text and PARTITION_REGISTER_TIMEOUT.key in error.text
    )
    assert all(str(each) in error.text for each in DATA_SETS)


def test_each_of_two_lookups_ends_under_its_own_version(world: World) -> None:
    world.answer(lambda key: asyncio.Event().wait())
    world.find(DATA_SETS[:1], 1)
    world.loop.run_for(2_500)
    world.link.gateway = None
    world.find(DATA_SETS[1:], 2)
    world.loop.run_for(2_600)
    assert [version for _, version in world.failed] == [1]
    world.answer(PLACES[1])
    world.link.gateway = world.gateway
    world.loop.run_for(500)
    assert world.found == [({DATA_SETS[1]: PLACES[1]}, 2)]


def test_a_data_set_is_released_where_a_resource_manager_is_there_to_hear_it(world: World) -> None:
    world.link.gateway = None
    world.lookup.release_data_set(DATA_SETS[0])
    world.loop.run_for(10)
    world.link.gateway = world.gateway
    world.resource_manager.script.answers["release_cluster_partitions"] = BlobStorageError("no")
    world.lookup.release_data_set(DATA_SETS[1])
    world.loop.run_for(10)
    released = world.resource_manager.script.called("release_cluster_partitions")
    assert released == [(DATA_SETS[1],)]

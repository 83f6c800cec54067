"""The endpoint of a shuffle service on virtual time: registration, release, and leases."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId, ResourceId, ResultPartitionId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.shuffle_service import ShuffleServiceGateway
from headrace.rpc.loopback import LoopbackNetwork
from headrace.shuffle_service.endpoint import ShuffleServiceEndpoint
from headrace.shuffle_service.service import ShuffleService
from testkit.scripted_gateways import end_processes
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.network.exchange import partition_id

JOB = partition_id().producer.job_id
FOUND = JobId(b"f" * 16)


class ScriptedService:
    """Notes what it is told."""

    location = TaskManagerLocation(ResourceId("shuffle-service-1"), "host", 7, None, "id")
    partition_count, committed_count, stored_bytes, connection_count = 4, 3, 100, 2
    job_ids = frozenset({FOUND})

    def __init__(self) -> None:
        self.registered: list[tuple[ResultPartitionId, int]] = []
        self.released: list[ResultPartitionId] = []
        self.released_jobs: list[JobId] = []

    def register_partition(self, partition_id: ResultPartitionId, count: int) -> None:
        self.registered.append((partition_id, count))

    def release_partitions(self, partition_ids: Iterable[ResultPartitionId]) -> None:
        self.released += partition_ids

    def release_job(self, job_id: JobId) -> None:
        self.released_jobs.append(job_id)


class World:
    """The endpoint, and a JobManager that calls it."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.loop = VirtualLoop(clock)
        settings = Settings({"shuffle-service.lease": "60 s"})
        self.network = LoopbackNetwork(clock, SeededRandom(1), loop=self.loop, settings=settings)
        self.service = ScriptedService()
        endpoint = ShuffleServiceEndpoint(
            self.network.create_service("service"), cast(ShuffleService, self.service)
        )
        endpoint.start()
        master = self.network.create_service("master")
        self.gateway = master.gateway(endpoint.address, ShuffleServiceGateway)
        self.loop.run_for(1)

    def ask(self, coroutine: Any) -> Any:
        return self.loop.run_until(coroutine)

    def close(self) -> None:
        end_processes(self.network, self.loop)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_registered_partition_is_expected_at_the_place_that_is_answered(world: World) -> None:
    location = world.ask(world.gateway.register_partition(partition_id(), 3))
    assert location == ScriptedService.location
    assert world.service.registered == [(partition_id(), 3)]


def test_partitions_and_jobs_are_released(world: World) -> None:
    world.ask(world.gateway.release_partitions((partition_id(0), partition_id(1))))
    world.ask(world.gateway.release_job(JOB))
    assert world.service.released == [partition_id(0), partition_id(1)]
    assert world.service.released_jobs == [JOB]


def test_a_job_of_which_nothing_is_heard_is_deleted_after_its_lease(world: World) -> None:
    world.ask(world.gateway.register_partition(partition_id(), 3))
    for _ in range(4):
        world.loop.run_for(40_000)
        world.ask(world.gateway.heartbeat((JOB,)))
    assert JOB not in world.service.released_jobs
    world.loop.run_for(67_000)
    assert world.service.released_jobs.count(JOB) == 1


def test_what_was_found_after_a_restart_has_a_lease_to_be_asked_for(world: World) -> None:
    world.loop.run_for(50_000)
    assert world.service.released_jobs == []
    world.loop.run_for(20_000)
    assert world.service.released_jobs == [FOUND]


def test_a_heartbeat_tells_how_the_service_does(world: World) -> None:
    status = world.ask(world.gateway.heartbeat(()))
    assert (status.partition_count, status.committed_count, status.stored_bytes) == (4, 3, 100)

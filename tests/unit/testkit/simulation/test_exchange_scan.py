"""The scan of a simulated cluster's data planes sees what is left of a job, and a result that goes too early."""

from collections.abc import Callable, Iterator

import pytest

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import ResultPartitionType, TaskManagerLocation
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.trace.simulated_transport import SimulatedNetwork
from testkit.simulation.exchange_scan import ExchangeScan, ScannedExchange
from testkit.simulation.posting_io import PostingIo
from tests.unit.network.exchange import (
    SECRET,
    attempt,
    gate,
    numbers,
    partition_id,
    values_of,
    writer,
)
from tests.unit.network.simulated import VirtualLoop


class World:
    """Two TaskManagers; the first has a stored result of five rows, written to its end."""

    def __init__(self, goes_on: bool = False) -> None:
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop.schedule)
        self.scan = ExchangeScan(
            lambda job_id, name: (
                goes_on and (job_id, name) == (partition_id().producer.job_id, "here")
            )
        )
        self.here, self.location = self.start("here")
        self.there, _ = self.start("there")
        sink = writer(self.here, result_type=ResultPartitionType.BLOCKING)
        sink.emit(numbers(0, 5))
        sink.finish()
        sink.close()
        self.loop.run_for(100)

    def start(self, name: str) -> tuple[ScannedExchange, TaskManagerLocation]:
        transport = self.network.create_transport()
        exchange = self.scan.create_exchange(
            resource_id=ResourceId(name),
            settings=Settings({"headrace.network.keepalive.interval": "0 s"}),
            secret=SECRET,
            bind_host="",
            advertised_host="",
            clock=ManualClock(),
            random=SeededRandom(name),
            socket_directory=None,
            transport=transport,
            wait=NeverWait(),
            io=PostingIo(transport.post),
        )
        return exchange, exchange.start()

    def close(self) -> None:
        self.here.close()
        self.there.close()


Begin = Callable[[bool], World]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Make worlds, which end with the test."""
    begun: list[World] = []

    def begin_world(goes_on: bool) -> World:
        begun.append(World(goes_on))
        return begun[-1]

    yield begin_world
    for world in begun:
        world.close()


@pytest.fixture
def world(begin: Begin) -> World:
    return begin(False)


def test_a_result_that_is_released_before_it_was_read_is_told_with_who_reads_it(
    world: World,
) -> None:
    assert world.scan.has_finished_results
    source = gate(world.there, [world.location])
    world.here.partitions.release([partition_id()])
    (told,) = world.scan.early_releases
    assert told.startswith("here releases ") and f"which {attempt('consumer')} may" in told
    source.close()


def test_a_result_that_was_read_goes_in_time_and_nothing_is_left(world: World) -> None:
    source = gate(world.there, [world.location])
    source.request_partitions()
    world.loop.run_until(lambda: "there holds 1 channels that read" in world.there.leaks())
    assert "there holds 1 open gates" in world.there.leaks()
    world.loop.run_until(lambda: "here holds 1 channels that are read" in world.here.leaks())
    assert {"here holds 1 partitions", "here holds 1 files of results"} <= {*world.here.leaks()}
    found: list[int] = []
    while (element := source.poll()) is not None or not source.is_finished:
        found += [] if element is None else values_of([element])
        del element
        world.loop.run_for(100)
    source.close()
    world.here.partitions.release([partition_id()])
    world.loop.run_for(100)
    assert found == list(range(5))
    assert world.scan.early_releases == [] and world.scan.release_count == 1
    assert world.here.leaks() == world.there.leaks() == []


def test_who_was_killed_reads_nothing_any_more(world: World) -> None:
    gate(world.there, [world.location])
    world.scan.killed(world.there)
    world.here.partitions.release([partition_id()])
    assert world.scan.early_releases == []


def test_results_that_go_with_their_job_are_nobodys_loss(world: World) -> None:
    gate(world.there, [world.location])
    world.here.partitions.release_job(partition_id().producer.job_id)
    assert world.here.partitions.partition_count == 0
    assert world.scan.early_releases == [] and world.scan.release_count == 0


def test_results_that_go_as_with_their_job_while_it_goes_on_are_told(begin: Begin) -> None:
    world = begin(True)
    source = gate(world.there, [world.location])
    world.here.partitions.release_job(partition_id().producer.job_id)
    (told,) = world.scan.early_releases
    assert told.startswith("here releases ") and f"which {attempt('consumer')} may" in told
    source.close()

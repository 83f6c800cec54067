"""Environments over real sockets, and the proof that nothing is left when they are closed."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.core.security.tls import TlsIdentity, generate_identity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.shuffle_service.remote_shuffle_environment import RemoteShuffleEnvironment
from headrace.shuffle_service.service import ShuffleService
from tests.integration.network.shuffle_world import new_service, new_task_manager
from tests.integration.network.threaded_simulation import ThreadedSimulation
from tests.unit.network.exchange import environment

Starter = Callable[..., CreditBasedShuffleEnvironment]


@pytest.fixture(scope="session")
def identity() -> TlsIdentity:
    """What the processes of one cluster share."""
    return generate_identity(time.time_ns() // 1_000_000)


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts environments and closes them; every segment, partition and thread has to be back afterwards."""
    threads_before = set(threading.enumerate())
    environments: list[CreditBasedShuffleEnvironment] = []

    def start_environment(
        name: str, socket_directory: Path | None = None, **options: Any
    ) -> CreditBasedShuffleEnvironment:
        started = environment(name, socket_directory, **options)
        environments.append(started)
        return started

    yield start_environment
    for started in environments:
        started.close()
    # Batches in the frames of caught errors are garbage, but in cycles.
    gc.collect()
    for started in environments:
        pool = started.buffer_pool
        assert pool.count_idle_pages() == pool.total_pages, f"{started.name} keeps segments"
        assert started.partitions.partition_count == 0, f"{started.name} keeps partitions"
    assert set(threading.enumerate()) <= threads_before


@dataclass(frozen=True)
class Edge:
    """Where the producer and the consumer of an edge live."""

    producer: CreditBasedShuffleEnvironment
    consumer: CreditBasedShuffleEnvironment
    location: TaskManagerLocation


@pytest.fixture
def simulation() -> Iterator[ThreadedSimulation]:
    """A simulated network; asked for before `start`, it ends after the environments."""
    simulation = ThreadedSimulation()
    yield simulation
    simulation.stop()


@pytest.fixture(params=["local", "simulated", "unix", "tcp", "tcp without checksums", "tls"])
def edge(
    request: pytest.FixtureRequest,
    simulation: ThreadedSimulation,
    start: Starter,
    tmp_path: Path,
    identity: TlsIdentity,
) -> Callable[..., Edge]:
    """Makes the two ends of an edge, connected by one of the transports."""

    def make(**options: Any) -> Edge:
        options.setdefault("headrace_network_checksum", "without" not in request.param)
        if request.param == "simulated":
            ends = [
                start(name, transport=simulation.create_transport(), **options) for name in "ab"
            ]
            location = ends[0].start()
            ends[1].start()
            return Edge(ends[0], ends[1], location)
        if request.param == "tls":
            options["tls"] = identity
        producer = start("a", tmp_path if request.param == "unix" else None, **options)
        location = producer.start()
        if request.param == "local":
            return Edge(producer, producer, location)
        assert (location.unix_socket_path is not None) == (request.param == "unix")
        consumer = start("b", **options)
        consumer.start()
        return Edge(producer, consumer, location)

    return make


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """Closes what is put into it; every thread has to be gone afterwards, and every segment back."""
    threads_before = set(threading.enumerate())
    things: list[Any] = []
    yield things
    for thing in reversed(things):
        thing.close()
        thing.close()
    gc.collect()
    for thing in things:
        if isinstance(thing, RemoteShuffleEnvironment):
            assert thing.pushing_count == 0 and thing.partitions.partition_count == 0
    assert set(threading.enumerate()) <= threads_before


@pytest.fixture
def service(opened: list[Any], tmp_path: Path) -> ShuffleService:
    service = new_service(tmp_path / "results")
    service.start()
    opened.append(service)
    return service


@pytest.fixture
def task_manager(opened: list[Any]) -> Callable[..., RemoteShuffleEnvironment]:
    def start(name: str, **options: Any) -> RemoteShuffleEnvironment:
        made = new_task_manager(name, **options)
        opened.append(made)
        return made

    return start

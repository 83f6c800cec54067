"""One suite for every shuffle service: whatever keeps a result, its life is the same, and nothing is left of it."""

import contextlib
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.cluster.shuffle_master import JobShuffleContext, ShuffleMasterContext
from headrace.cluster.task_executor.shuffle_service_loader import load_shuffle_service_factory
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HeadraceError
from headrace.core.ids import JobId, ResourceId, ResultPartitionId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    PartitionDescriptor,
    ProducerDescriptor,
    ResultPartitionDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.core.threads import EventLoopThread
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import create_selector
from headrace.network.gates.gate import BatchElement, EventElement, GateElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.shuffle_environment import ShuffleEnvironment, ShuffleEnvironmentContext
from headrace.network.writers.record_writer import create_record_writer
from headrace.shuffle_service.errors import ShuffleServiceLostError
from headrace.shuffle_service.process import ShuffleServiceProcess
from testkit.waiting import wait_until
from tests.unit.network.exchange import (
    DATA_SET,
    NUMBERS,
    SECRET,
    attempt,
    drain,
    next_element,
    numbers,
    partition_id,
    values_of,
)

JOB: Final = partition_id().producer.job_id
BLOCKING: Final = ResultPartitionType.BLOCKING
SERVICES: Final = ("credit-based", "remote")


class ShuffleWorld:
    """A JobManager's and two TaskManagers' halves of a shuffle service."""

    def __init__(self, name: str, directory: Path) -> None:
        self.directory = directory
        settings = {
            "shuffle-service-factory.class": name,
            "shuffle-service.directory": str(directory / "results"),
            "shuffle-service.heartbeat.interval": "100 ms",
            "shuffle-service.heartbeat.timeout": "500 ms",
            "io.tmp.dirs": str(directory),
            "taskmanager.memory.network.min": "8mb",
            "taskmanager.memory.network.max": "8mb",
        }
        self.service: ShuffleServiceProcess | None = None
        if name == "remote":
            self.service = ShuffleServiceProcess(Settings(settings), secret=SECRET)
            self.service.__enter__()
            settings["shuffle-service.address"] = self.service.address
        self.settings = Settings(settings)
        self.factory = load_shuffle_service_factory(self.settings)
        self.control = EventLoopThread("the JobManager")
        self.fatal_errors: list[BaseException] = []
        self.lost: list[HeadraceError] = []
        clock, random = SystemClock(), SeededRandom(name)
        self.master = self.factory.create_shuffle_master(
            ShuffleMasterContext(
                self.settings, SECRET, clock, random, None, self.fatal_errors.append
            )
        )
        self.control.run(self.master.start())
        self.run(lambda: self.master.register_job(JobShuffleContext(JOB, self.lost.append)))
        self.producer, self.producer_place = self._task_manager("tm-1")
        self.consumer, _ = self._task_manager("tm-2")

    def _task_manager(self, name: str) -> tuple[ShuffleEnvironment, TaskManagerLocation]:
        environment = self.factory.create_shuffle_environment(
            ShuffleEnvironmentContext(
                ResourceId(name), self.settings, SECRET, "127.0.0.1", "127.0.0.1",
                SystemClock(), SeededRandom(name), None, None, None,
            )
        )  # fmt: skip
        return environment, environment.start()

    def run(self, call: Any) -> None:
        """Call the master, on its loop."""

        async def body() -> None:
            call()

        self.control.run(body())

    def register(
        self, key: ResultPartitionId, kind: ResultPartitionType = BLOCKING
    ) -> ShuffleDescriptor:
        partition = PartitionDescriptor(DATA_SET, key.partition_number, 1, kind, 2)
        producer = ProducerDescriptor(key.producer, self.producer_place)
        return self.control.run(
            self.master.register_partition_with_producer(JOB, partition, producer), 10
        )

    def writer(self, shuffle: ShuffleDescriptor) -> Any:
        partition = self.producer.create_result_partition(
            ResultPartitionDescriptor(shuffle.partition_id, BLOCKING, 2, shuffle)
        )
        spec = PartitionerSpec(PartitionerKind.REBALANCE)
        selector = create_selector(spec, 2, 128, SeededRandom(1))
        return create_record_writer(partition, selector, -1, SystemClock())

    def produce(self, shuffle: ShuffleDescriptor, rows: int = 1000) -> None:
        writer = self.writer(shuffle)
        for start in range(0, rows, 10):
            writer.emit(numbers(start, 10))
        writer.finish()
        writer.close()

    def gate(
        self, shuffle: ShuffleDescriptor, index: int, attempt_number: int = 0
    ) -> SingleInputGate:
        channels = (InputChannelDescriptor(shuffle, index),)
        gate = self.consumer.create_input_gate(
            InputGateDescriptor(DATA_SET, 0, channels), attempt("consumer", index, attempt_number)
        )
        gate.read_as(NUMBERS)
        gate.request_partitions()
        return gate

    def read(self, shuffle: ShuffleDescriptor, index: int) -> list[int]:
        gate = self.gate(shuffle, index)
        try:
            return values_of(drain(gate))
        finally:
            gate.close()

    def read_bytes(
        self, shuffle: ShuffleDescriptor, index: int, attempt_number: int = 0
    ) -> list[bytes | EventElement]:
        gate = self.gate(shuffle, index, attempt_number)
        try:
            return [bytes_of(element) for element in drain(gate)]
        finally:
            gate.close()

    def release(self, shuffle: ShuffleDescriptor) -> None:
        """What the JobMaster does with what nobody needs."""
        if shuffle.is_external:
            self.run(lambda: self.master.release_partitions_externally([shuffle]))
        else:
            self.producer.release_partitions([shuffle.partition_id])

    def files(self) -> list[Path]:
        names = {"identity", "lock"}
        found = [Path(at) / name for at, _, names in os.walk(self.directory) for name in names]
        return [path for path in found if path.name not in names]

    def close(self) -> None:
        for _ in range(2):
            self.consumer.close()
            self.producer.close()
            self.control.run(self.master.close())
        self.control.stop()
        if self.service is not None:
            self.service.close()
            self.service.close()


def bytes_of(element: GateElement) -> bytes | EventElement:
    """Every byte of a batch, or the event with its channel."""
    if isinstance(element, BatchElement):
        return element.batch.to_arrow().serialize().to_pybytes()
    return element


def open_descriptors() -> set[str]:
    """Files and sockets; the event loops keep a pipe for the whole process."""
    found: set[str] = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {target for target in found if not target.startswith("pipe:")}


@pytest.fixture(params=SERVICES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ShuffleWorld]:
    """Closing leaves no thread, no socket and no open file, whatever was begun."""
    gc.collect()
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    world = ShuffleWorld(request.param, tmp_path)
    yield world
    world.close()
    gc.collect()
    assert set(threading.enumerate()) <= threads
    try:
        wait_until(lambda: open_descriptors() <= descriptors)
    except AssertionError:
        pytest.fail(f"left open: {sorted(open_descriptors() - descriptors)}")
    assert world.fatal_errors == []


def test_each_consumer_reads_its_share_and_may_read_it_again(world: ShuffleWorld) -> None:
    shuffle = world.register(partition_id())
    world.produce(shuffle)
    first = [world.read(shuffle, index) for index in range(2)]
    assert sorted(first[0] + first[1]) == list(range(1000))
    assert [world.read(shuffle, index) for index in range(2)] == first


def test_a_consumer_that_starts_again_in_the_middle_is_given_the_same_bytes_from_the_beginning(
    world: ShuffleWorld,
) -> None:
    shuffle = world.register(partition_id())
    world.produce(shuffle, 200_000)
    expected = world.read_bytes(shuffle, 1)
    assert len(expected) > 2
    failing = world.gate(shuffle, 1)
    first = next_element(failing)
    assert isinstance(first, BatchElement)
    assert bytes_of(first) == expected[0]
    failing.close()
    assert world.read_bytes(shuffle, 1, attempt_number=1) == expected


def test_a_partition_is_stored_by_a_task_manager_or_external_never_both(
    world: ShuffleWorld,
) -> None:
    shuffle = world.register(partition_id())
    assert (shuffle.stored_by is None) is shuffle.is_external is (world.service is not None)


def test_pipelined_partitions_always_lie_with_their_producer(world: ShuffleWorld) -> None:
    shuffle = world.register(partition_id(), ResultPartitionType.PIPELINED_BOUNDED)
    assert shuffle.stored_by == ResourceId("tm-1")


def test_results_that_outlive_their_job_always_lie_with_their_producer(world: ShuffleWorld) -> None:
    shuffle = world.register(partition_id(), ResultPartitionType.BLOCKING_PERSISTENT)
    assert shuffle == ShuffleDescriptor(partition_id(), world.producer_place)


def test_a_registration_that_is_repeated_changes_nothing(world: ShuffleWorld) -> None:
    shuffle = world.register(partition_id())
    world.produce(shuffle)
    assert world.register(partition_id()) == shuffle
    assert len(world.read(shuffle, 0)) == 500


def test_a_released_partition_leaves_no_file_and_a_second_release_changes_nothing(
    world: ShuffleWorld,
) -> None:
    shuffle, other = world.register(partition_id(0)), world.register(partition_id(1))
    world.produce(shuffle)
    world.produce(other)
    count = len(world.files())
    world.release(shuffle)
    wait_until(lambda: len(world.files()) == count // 2)
    world.release(shuffle)
    assert len(world.read(other, 0)) == 500


def test_the_end_of_a_job_leaves_no_file(world: ShuffleWorld) -> None:
    world.produce(world.register(partition_id()))
    assert world.files()
    world.run(lambda: world.master.unregister_job(JOB))
    world.run(lambda: world.master.unregister_job(JOB))
    world.run(lambda: world.master.unregister_job(JobId(b"?" * 16)))
    world.producer.close()
    wait_until(lambda: world.files() == [])


def test_closing_a_task_manager_under_a_producer_leaves_nothing_of_its_result(
    world: ShuffleWorld,
) -> None:
    writer = world.writer(world.register(partition_id()))
    writer.emit(numbers(0, 1000))
    writer.flush_all()
    world.producer.close()
    writer.close()
    wait_until(lambda: world.files() == [])
    assert world.producer.partitions.partition_count == 0


def test_what_failed_is_not_read(world: ShuffleWorld) -> None:
    shuffle = world.register(partition_id())
    writer = world.writer(shuffle)
    writer.emit(numbers(0, 1000))
    writer.flush_all()
    writer.fail(RuntimeError("dead"))
    writer.close()
    with pytest.raises(HeadraceError):
        world.read(shuffle, 0)


@pytest.mark.parametrize("address", ["", "nowhere", "host:port"])
def test_a_remote_service_without_an_address_is_refused_at_once(address: str) -> None:
    settings = Settings(
        {"shuffle-service-factory.class": "remote", "shuffle-service.address": address}
    )
    context = ShuffleMasterContext(
        settings, SECRET, SystemClock(), SeededRandom(1), None, lambda error: None
    )
    with pytest.raises(ConfigurationError, match=r"shuffle-service\.address"):
        load_shuffle_service_factory(settings).create_shuffle_master(context)


def test_jobs_with_results_there_learn_of_a_lost_service_once_and_at_once(tmp_path: Path) -> None:
    world = ShuffleWorld("remote", tmp_path)
    try:
        world.register(partition_id(0))
        world.register(partition_id(1))
        assert world.service is not None
        world.service.close()
        wait_until(lambda: bool(world.lost))
        with pytest.raises(ShuffleServiceLostError):
            world.register(partition_id(2))
        assert [type(error) for error in world.lost] == [ShuffleServiceLostError]
    finally:
        world.close()

"""Blocking and hybrid results over real sockets, threads and files."""

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.core.shuffle_descriptors import ResultPartitionType, TaskManagerLocation
from headrace.network.stored.spill_files import OsFileLayer
from testkit.waiting import wait_until
from tests.unit.network.exchange import (
    drain,
    environment,
    gate,
    next_element,
    numbers,
    partition_id,
    values_of,
    writer,
)
from tests.unit.network.partition_traces import STORED

ROWS, BATCH = 300_000, 10_000


class NotingFiles(OsFileLayer):
    """Notes which threads touch files."""

    def __init__(self) -> None:
        self.readers: set[str] = set()
        self.writers: set[str] = set()
        self.closers: set[str] = set()

    def read(self, descriptor: int, targets: Sequence[memoryview], offset: int) -> int:
        self.readers.add(threading.current_thread().name)
        return super().read(descriptor, targets, offset)

    def write(self, descriptor: int, pieces: Sequence[Any], offset: int) -> int:
        self.writers.add(threading.current_thread().name)
        return super().write(descriptor, pieces, offset)

    def close(self, descriptor: int) -> None:
        self.closers.add(threading.current_thread().name)
        super().close(descriptor)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def files() -> NotingFiles:
    return NotingFiles()


@pytest.fixture
def sides(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, files: NotingFiles
) -> Iterator[list[Any]]:
    """The producer's process, and two others: one is reached by a Unix socket, one by TCP."""
    threads_before = set(threading.enumerate())
    sockets = tmp_path_factory.mktemp("s")
    made = [
        environment("a", sockets, files=files, io_tmp_dirs=directory),
        environment("b", sockets),
        environment("c"),
    ]
    locations = [side.start() for side in made]
    yield [(side, location) for side, location in zip(made, locations, strict=True)]
    for side in made:
        side.close()
    assert set(threading.enumerate()) <= threads_before
    assert list(directory.iterdir()) == []


def without_socket(location: TaskManagerLocation) -> TaskManagerLocation:
    return msgspec.structs.replace(location, unix_socket_path=None)


@pytest.mark.integration
@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("channel_count", [2, 12])
def test_all_consumers_read_everything_at_once_and_no_disk_is_touched_by_the_network_thread(
    sides: list[Any],
    directory: Path,
    files: NotingFiles,
    kind: ResultPartitionType,
    channel_count: int,
) -> None:
    (producer, location), (near, _), (far, _) = sides
    descriptors_before = len(os.listdir("/proc/self/fd"))
    sink = writer(producer, channel_count, result_type=kind)
    places = [(producer, location), (near, location), (far, without_socket(location))]
    received: dict[int, list[int]] = {}

    def consume(index: int) -> None:
        side, seen_location = places[index % 3]
        source = gate(side, [seen_location], index)
        source.request_partitions()
        received[index] = values_of(drain(source, 60))
        source.close()

    consumers = [
        threading.Thread(target=consume, args=(index,), name=f"consumer {index}")
        for index in range(channel_count)
    ]
    for consumer in consumers:
        consumer.start()
    for start in range(0, ROWS, BATCH):
        sink.emit(numbers(start, BATCH))
    sink.finish()
    sink.close()
    for consumer in consumers:
        consumer.join(60)
    assert sorted(value for values in received.values() for value in values) == list(range(ROWS))
    assert all(values == sorted(values) for values in received.values())
    producer.release_partitions([partition_id()])
    wait_until(lambda: not producer.storage.directories.files())
    # Two connections, each with both of its ends here, and the lock of the folder of results.
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors_before + 4 + 1)
    assert producer.storage.read_memory.used_bytes == 0
    # What is sorted is written on the I/O pool while the task sorts on.
    others = files.readers | files.closers | (files.writers - {"MainThread"})
    assert all(name.startswith("result files") for name in others)


@pytest.mark.integration
def test_many_readers_of_one_result_see_the_same(sides: list[Any], directory: Path) -> None:
    (producer, location), (near, _), (far, _) = sides
    sink = writer(producer, 2, result_type=ResultPartitionType.BLOCKING)
    for start in range(0, ROWS, BATCH):
        sink.emit(numbers(start, BATCH))
    sink.finish()
    sink.close()
    sources = [gate(side, [location], 1) for side in (producer, near, far) * 3]
    for source in sources:
        source.request_partitions()
    begun = [next_element(source, 60) for source in sources]
    producer.release_partitions([partition_id()])
    first, *others = [
        values_of([element, *drain(source, 60)])
        for element, source in zip(begun[:4], sources, strict=False)
        if element is not None
    ]
    assert len(first) == ROWS // 2
    assert all(other == first for other in others)
    for source in sources:
        source.close()
    wait_until(lambda: not producer.storage.directories.files())

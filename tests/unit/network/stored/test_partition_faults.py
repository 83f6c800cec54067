"""Stored partitions on bad disks: who fails, with which words, and that nothing is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import NetworkError, ProducerFailedError, StorageError
from headrace.network.partitions.result_subpartition import LOCAL_SEGMENT_BYTES
from headrace.network.stored.stored_view import SHORT_READ_BYTES
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import gate, numbers, partition_id, writer
from tests.unit.network.faulty_files import FaultyFileLayer
from tests.unit.network.partition_traces import KINDS, STORED, Consumer, Producer
from tests.unit.network.simulated import SimulatedCluster

BLOCKING = tuple(kind for kind in KINDS if kind.traits.is_blocking)
CODEC = "taskmanager_network_compression_codec"


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.assert_nothing_leaks()


def write_much(sink: RecordWriter) -> None:
    for start in range(0, 20_000_000, 20_000):
        sink.emit(numbers(start, 20_000))
    Producer(sink).end()


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("channel_count", [2, 12])
def test_a_full_disk_fails_the_task_and_tells_its_consumers(
    cluster: SimulatedCluster, kind: ResultPartitionType, channel_count: int, tmp_path: Path
) -> None:
    layer = FaultyFileLayer()
    layer.space_bytes = 1 << 20
    options = {CODEC: "NONE", "taskmanager_memory_network_max": "64mb"}
    producer, location = cluster.start("a", files=layer, io_tmp_dirs=str(tmp_path), **options)
    other, _ = cluster.start("b")
    sink = writer(producer, channel_count, result_type=kind)
    local, remote = Consumer(gate(producer, [location])), Consumer(gate(other, [location], 1))
    with pytest.raises(StorageError, match=r"No space left on device.*io\.tmp\.dirs") as raised:
        write_much(sink)
    sink.fail(raised.value)
    sink.close()
    for consumer in (local, remote):
        with pytest.raises(ProducerFailedError, match="No space left on device"):
            consumer.read_all(cluster)
        consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("channel_count", [2, 12])
@pytest.mark.parametrize("is_local", [True, False])
def test_a_bad_sector_fails_those_who_read_it(
    cluster: SimulatedCluster,
    kind: ResultPartitionType,
    channel_count: int,
    is_local: bool,
    tmp_path: Path,
) -> None:
    layer = FaultyFileLayer()
    producer, location = cluster.start(
        "a", files=layer, io_tmp_dirs=str(tmp_path), **{CODEC: "NONE"}
    )
    other, _ = cluster.start("b")
    side = producer if is_local else other
    sink = writer(producer, channel_count, result_type=kind)
    for start in range(0, 1_200_000, 10_000):
        sink.emit(numbers(start, 10_000))
    Producer(sink).end()
    whole = Consumer(gate(side, [location], 0))
    whole.read_all(cluster)
    layer.bad_from = 2 << 20
    hit = Consumer(gate(side, [location], 0))
    with pytest.raises(NetworkError, match="cannot be read: Input/output error"):
        hit.read_all(cluster)
    assert len(whole.values) == 1_200_000 // channel_count
    # What was read before the bad sector was handed over, in order.
    assert hit.values == whole.values[: len(hit.values)]
    assert bool(hit.values) or not is_local
    layer.bad_from = None
    again = Consumer(gate(side, [location], 0))
    assert again.read_all(cluster) == whole.seen
    for consumer in (whole, hit, again):
        consumer.close()
    producer.release_partitions([partition_id()])


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("channel_count", [2, 12])
def test_a_spoilt_file_is_noticed_before_its_rows_are_handed_over(
    cluster: SimulatedCluster, kind: ResultPartitionType, channel_count: int, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path), **{CODEC: "NONE"})
    sink = writer(producer, channel_count, result_type=kind)
    sink.emit(numbers(0, 10_000))
    Producer(sink).end()
    (data,) = [file for file in producer.storage.directories.files() if file.suffix == ".data"]
    content = bytearray(data.read_bytes())
    content[5000] ^= 1
    data.write_bytes(content)
    failed = 0
    for index in range(channel_count):
        consumer = Consumer(gate(producer, [location], index))
        try:
            consumer.read_all(cluster)
        except StorageError as error:
            assert "checksum" in str(error)
            assert consumer.values == []
            failed += 1
        consumer.close()
    assert failed == 1
    producer.release_partitions([partition_id()])


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_released_result_is_read_to_its_end_by_those_who_had_begun(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    producer, location = cluster.start(
        "a",
        io_tmp_dirs=str(tmp_path),
        **{CODEC: "NONE", "taskmanager_memory_framework_off-heap_batch-shuffle_size": "1mb"},
    )
    other, _ = cluster.start("b")
    sink = writer(producer, 2, result_type=kind)
    for start in range(0, 2_000_000, 10_000):
        sink.emit(numbers(start, 10_000))
    Producer(sink).end()
    readers = [Consumer(gate(side, [location], 0)) for side in (producer, other)]
    for reader in readers:
        cluster.loop.run_until(lambda reader=reader: reader.source.is_available)
    assert producer.storage.read_memory.used_bytes <= 4 << 20
    producer.release_partitions([partition_id()])
    for reader in readers:
        reader.read_all(cluster)
        assert len(reader.values) == 1_000_000
        reader.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_consumers_of_a_broadcast_read_what_was_stored_once(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path), **{CODEC: "NONE"})
    sink = writer(producer, 12, PartitionerKind.BROADCAST, result_type=kind)
    for start in range(0, 100_000, 10_000):
        sink.emit(numbers(start, 10_000))
    Producer(sink).end()
    (data,) = [file for file in producer.storage.directories.files() if file.suffix == ".data"]
    assert 800_000 < data.stat().st_size < 900_000
    for index in range(12):
        consumer = Consumer(gate(producer, [location], index))
        consumer.read_all(cluster)
        assert consumer.values == list(range(100_000))
        consumer.close()
    producer.release_partitions([partition_id()])


@pytest.mark.slow
@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("channel_count", [4, 40])
def test_what_is_read_ahead_for_slow_consumers_stays_near_its_budget(
    cluster: SimulatedCluster, kind: ResultPartitionType, channel_count: int, tmp_path: Path
) -> None:
    producer, location = cluster.start(
        "a",
        io_tmp_dirs=str(tmp_path),
        **{CODEC: "NONE", "taskmanager_memory_framework_off-heap_batch-shuffle_size": "1mb"},
    )
    sink = writer(producer, channel_count, result_type=kind)
    for start in range(0, 5_000_000, 50_000):
        sink.emit(numbers(start, 50_000))
    Producer(sink).end()
    consumers = [Consumer(gate(producer, [location], index)) for index in range(channel_count)]
    cluster.loop.run_for(1000)
    # The budget, what the last read may exceed it by, and a short read for each consumer.
    most = (2 << 20) + channel_count * SHORT_READ_BYTES
    assert producer.storage.read_memory.used_bytes <= most
    for consumer in consumers:
        consumer.read_all(cluster)
        consumer.close()
    assert sorted(value for each in consumers for value in each.values) == list(range(5_000_000))
    producer.release_partitions([partition_id()])


def test_a_mistake_while_reading_is_told_to_the_consumer_and_does_not_leave_it_waiting(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, result_type=ResultPartitionType.BLOCKING)
    sink.emit(numbers(0, 10))
    Producer(sink).end()

    def no_memory(*_: object) -> None:
        raise MemoryError("no page is left")

    monkeypatch.setattr(FaultyFileLayer.__mro__[1], "read", no_memory)
    consumer = Consumer(gate(producer, [location]))
    with pytest.raises(StorageError, match="MemoryError: no page is left"):
        consumer.read_all(cluster)
    consumer.close()
    producer.release_partitions([partition_id()])


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_consumer_that_fails_when_it_is_told_of_rows_does_not_stop_the_others(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, 3, result_type=kind)
    for start in range(0, 300, 100):
        sink.emit(numbers(start, 100))
    told: list[int] = []

    def fail() -> None:
        told.append(0)
        raise RuntimeError("the consumer is being closed")

    view = sink.partition.create_view(0, fail, LOCAL_SEGMENT_BYTES)
    Producer(sink).end()
    cluster.loop.run_for(1000)
    assert told
    consumers = [Consumer(gate(producer, [location], index)) for index in (1, 2)]
    for consumer in consumers:
        consumer.read_all(cluster)
        consumer.close()
    assert len({value for each in consumers for value in each.values}) == 200
    view.release()
    producer.release_partitions([partition_id()])


def test_a_view_that_cannot_be_read_for_is_left_out_and_the_others_are_read(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, 2, result_type=ResultPartitionType.BLOCKING)
    sink.emit(numbers(0, 100))
    Producer(sink).end()

    def mistake(_: object) -> None:
        raise AssertionError("a mistake of ours")

    view = sink.partition.create_view(0, lambda: None, LOCAL_SEGMENT_BYTES)
    monkeypatch.setattr(view, "fill", mistake)
    cluster.loop.run_for(1000)
    consumer = Consumer(gate(producer, [location], 1))
    consumer.read_all(cluster)
    assert len(consumer.values) == 50
    consumer.close()
    view.release()
    producer.release_partitions([partition_id()])

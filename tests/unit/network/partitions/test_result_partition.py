"""Every kind of ResultPartition: one producer's trace gives every consumer the same elements, wherever it is."""

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.elements import CancelTaskException, EndOfData, EndOfPartition, Watermark
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import PartitionNotFoundError, ProducerFailedError
from headrace.network.gates.gate import BatchElement, EventElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.result_subpartition import LOCAL_SEGMENT_BYTES, DataElement
from tests.unit.network.exchange import gate, numbers, partition_id, writer
from tests.unit.network.partition_traces import (
    KINDS,
    STORED,
    Consumer,
    Flush,
    Mark,
    Producer,
    Rows,
    Seen,
    Step,
    steps,
)
from tests.unit.network.simulated import SimulatedCluster

BLOCKING = tuple(kind for kind in KINDS if kind.traits.is_blocking)
RECONSUMABLE = tuple(kind for kind in KINDS if kind.traits.is_reconsumable)


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.assert_nothing_leaks()


def run_trace(
    kind: ResultPartitionType,
    trace: list[Step],
    directory: Path,
    channel_count: int,
    partitioner: PartitionerKind = PartitionerKind.REBALANCE,
    **options: str,
) -> list[Seen]:
    """What each consumer saw: those of even numbers in the producer's process, the others in another one."""
    cluster = SimulatedCluster()
    producer_side, location = cluster.start("a", io_tmp_dirs=str(directory), **options)
    other_side, _ = cluster.start("b")
    sink = writer(producer_side, channel_count, partitioner, result_type=kind)
    producer = Producer(sink)
    consumers = [
        Consumer(gate([producer_side, other_side][index % 2], [location], index))
        for index in range(channel_count)
    ]
    for step in trace:
        producer.perform(step)
        cluster.loop.run_for(20)
        for consumer in consumers:
            consumer.poll_all()
    producer.end()
    for consumer in consumers:
        consumer.read_all(cluster)
        consumer.close()
    producer_side.release_partitions([partition_id()])
    cluster.assert_nothing_leaks()
    return [consumer.seen for consumer in consumers]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("codec", ["NONE", "LZ4"])
@pytest.mark.parametrize("channel_count", [1, 3, 12])
@settings(deadline=None, max_examples=8)
@given(
    trace=steps, partitioner=st.sampled_from([PartitionerKind.REBALANCE, PartitionerKind.BROADCAST])
)
def test_every_kind_gives_its_consumers_what_a_pipelined_one_gives(
    kind: ResultPartitionType,
    codec: str,
    channel_count: int,
    trace: list[Step],
    partitioner: PartitionerKind,
) -> None:
    with TemporaryDirectory() as name:
        options = {"taskmanager_network_compression_codec": codec}
        expected = run_trace(KINDS[0], trace, Path(name), channel_count, partitioner)
        assert run_trace(kind, trace, Path(name), channel_count, partitioner, **options) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_order_is_the_order_of_emission(kind: ResultPartitionType, tmp_path: Path) -> None:
    trace: list[Step] = [Rows(10), Mark(), Mark(), Rows(20_000), Flush(), Mark(), Rows(5)]
    (only,) = run_trace(kind, trace, tmp_path, 1)
    assert only == [
        *range(10),
        Watermark(1),
        *range(10, 20_010),
        Watermark(2),
        *range(20_010, 20_015),
        EndOfData(),
        EndOfPartition(),
    ]


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("is_local", [True, False])
def test_consumers_of_a_blocking_result_wait_for_its_end_however_long_that_takes(
    cluster: SimulatedCluster, kind: ResultPartitionType, is_local: bool, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    other, _ = cluster.start("b")
    sink = writer(producer, result_type=kind)
    consumer = Consumer(gate(producer if is_local else other, [location]))
    sink.emit(numbers(0, 50_000))
    cluster.loop.run_for(3_600_000)
    consumer.poll_all()
    assert consumer.seen == []
    Producer(sink).end()
    consumer.read_all(cluster)
    assert consumer.values == list(range(50_000))
    consumer.close()
    producer.release_partitions([partition_id()])


@pytest.mark.parametrize("kind", RECONSUMABLE)
def test_any_number_of_readers_sees_the_same_and_the_files_go_with_the_last_one(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    other, _ = cluster.start("b")
    sink = writer(producer, 2, result_type=kind)
    for start in range(0, 100_000, 1000):
        sink.emit(numbers(start, 1000))
    Producer(sink).end()
    sides = [producer, other, producer, other, producer]
    readers = [Consumer(gate(side, [location], 1)) for side in sides]
    cluster.loop.run_for(100)
    producer.release_partitions([partition_id()])
    late = Consumer(gate(producer, [location], 1))
    first, *others = [reader.read_all(cluster) for reader in readers[:-1]]
    assert len(first) == 50_002
    assert all(other == first for other in others)
    cluster.loop.run_for(100)
    assert producer.storage.directories.files(), "one reader is left"
    for reader in readers:
        reader.close()
    cluster.loop.run_for(100)
    assert producer.storage.directories.files() == []
    with pytest.raises(PartitionNotFoundError):
        late.read_all(cluster)
    late.close()


def begin(reader: SingleInputGate) -> SingleInputGate:
    reader.request_partitions()
    return reader


def next_bytes(reader: SingleInputGate, cluster: SimulatedCluster) -> bytes | EventElement:
    """Every byte of the next batch, or the next event."""
    while (element := reader.poll()) is None:
        cluster.loop.run_until(lambda: reader.is_available)
    if isinstance(element, BatchElement):
        return element.batch.to_arrow().serialize().to_pybytes()
    return element


def all_bytes(reader: SingleInputGate, cluster: SimulatedCluster) -> list[bytes | EventElement]:
    found: list[bytes | EventElement] = []
    while not reader.is_finished:
        found.append(next_bytes(reader, cluster))
    reader.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", RECONSUMABLE)
@pytest.mark.parametrize("channel_count", [2, 12])
@pytest.mark.parametrize("is_local", [True, False])
def test_a_consumer_that_starts_again_in_the_middle_is_given_the_same_bytes_from_the_beginning(
    cluster: SimulatedCluster,
    kind: ResultPartitionType,
    channel_count: int,
    is_local: bool,
    tmp_path: Path,
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    other, _ = cluster.start("b")
    sink = writer(producer, channel_count, result_type=kind)
    for start in range(0, 2_000_000, 10_000):
        sink.emit(numbers(start, 10_000))
    Producer(sink).end()
    side = producer if is_local else other
    expected = all_bytes(begin(gate(side, [location], 1)), cluster)
    assert len(expected) > 4
    failing = begin(gate(side, [location], 1))
    assert [next_bytes(failing, cluster) for _ in range(2)] == expected[:2]
    failing.close()
    assert all_bytes(begin(gate(side, [location], 1)), cluster) == expected
    producer.release_partitions([partition_id()])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_local", [True, False])
def test_consumers_learn_why_a_producer_failed_and_nothing_is_left(
    cluster: SimulatedCluster, kind: ResultPartitionType, is_local: bool, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    other, _ = cluster.start("b")
    side = producer if is_local else other
    sink = writer(producer, 2, result_type=kind)
    early = Consumer(gate(side, [location], 0))
    sink.emit(numbers(0, 2000))
    cluster.loop.run_for(50)
    sink.fail(ValueError("bad row\nwith a long story"))
    sink.close()
    late = Consumer(gate(side, [location], 1))
    for consumer in (early, late):
        with pytest.raises(ProducerFailedError, match=r"ValueError: bad row$"):
            consumer.read_all(cluster)
        consumer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_is_withdrawn_before_its_end_fails_its_consumers(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, result_type=kind)
    consumer = Consumer(gate(producer, [location]))
    sink.emit(numbers(0, 20_000))
    producer.release_partitions([partition_id()])
    with pytest.raises(ProducerFailedError, match="was released"):
        consumer.read_all(cluster)
    consumer.close()
    with pytest.raises(CancelTaskException):
        for _ in range(100):
            sink.emit(numbers(0, 20_000))
    sink.close()


@pytest.mark.parametrize("kind", STORED)
def test_a_consumer_that_leaves_in_the_middle_disturbs_nobody(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    other, _ = cluster.start("b")
    sink = writer(producer, 2, result_type=kind)
    leaving, staying = (Consumer(gate(other, [location], index)) for index in range(2))
    for start in range(0, 400_000, 10_000):
        sink.emit(numbers(start, 10_000))
        cluster.loop.run_for(5)
    Producer(sink).end()
    cluster.loop.run_until(lambda: leaving.source.is_available)
    leaving.source.poll()
    leaving.close()
    staying.read_all(cluster)
    assert len(staying.values) == 200_000
    staying.close()
    producer.release_partitions([partition_id()])


def test_the_factory_serves_every_kind_that_can_be_asked_for(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    producer, _ = cluster.start("a", io_tmp_dirs=str(tmp_path))
    made: list[Callable[[], None]] = []
    for number, kind in enumerate(KINDS):
        sink = writer(producer, 3, number=number, result_type=kind)
        made.append(sink.close)
        assert sink.partition.subpartition_count == 3
    for close in made:
        close()


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("order", list(permutations(["task", "consumer 0", "consumer 1"])))
def test_a_pipelined_result_is_released_exactly_when_its_task_and_all_consumers_are_done(
    cluster: SimulatedCluster, order: tuple[str, ...], is_read: bool
) -> None:
    producer, location = cluster.start("a")
    sink = writer(producer, 2)
    consumers = [Consumer(gate(producer, [location], index)) for index in range(2)]
    sink.emit(numbers(0, 1000))
    sink.emit_event(EndOfData())
    sink.finish()
    for left, who in zip((2, 1, 0), order, strict=True):
        assert producer.partitions.partition_count == 1, f"{left + 1} are not done"
        if who == "task":
            sink.close()
        else:
            consumer = consumers[int(who[-1])]
            if is_read:
                consumer.read_all(cluster)
            consumer.close()
        cluster.loop.run_for(100)
    assert producer.partitions.partition_count == 0


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("channel_count", [2, 12])
def test_the_backlog_of_a_stored_result_is_what_comes_without_further_reading(
    cluster: SimulatedCluster, kind: ResultPartitionType, channel_count: int, tmp_path: Path
) -> None:
    producer, _ = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, channel_count, result_type=kind)
    for start in range(0, 600_000, 1000):
        sink.emit(numbers(start, 1000))
    Producer(sink).end()
    view = producer.partitions.create_view(partition_id(), 1, lambda: None, LOCAL_SEGMENT_BYTES)
    cluster.loop.run_for(100)
    expected = view.backlog
    assert expected > 0
    came = 0
    while isinstance(element := view.poll(1 << 62), DataElement):
        came += element.cost
        assert view.backlog == max(0, expected - came)
    assert came == expected
    view.release()
    producer.release_partitions([partition_id()])
    cluster.loop.run_for(100)


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_failed_or_was_withdrawn_gives_its_memory_back_by_itself(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    producer, _ = cluster.start("a", io_tmp_dirs=str(tmp_path))
    network = producer.buffer_pool
    failed = writer(producer, 2, result_type=kind)
    withdrawn = writer(producer, 2, number=1, result_type=kind)
    for sink in (failed, withdrawn):
        sink.emit(numbers(0, 2000))
        sink.flush_all()
    assert network.unreserved_pages < network.total_pages
    failed.fail(ValueError("a bad row"))
    producer.release_partitions([partition_id(1)])
    cluster.loop.run_all()
    assert network.unreserved_pages == network.count_idle_pages() == network.total_pages
    assert producer.storage.directories.files() == []
    for sink in (failed, withdrawn):
        sink.close()

"""The whole exchange on one thread and virtual time."""

from collections.abc import Iterator

import pytest

from headrace.core.elements import (
    CancelTaskException,
    EndOfData,
    EndOfPartition,
    PlacedMarker,
    Watermark,
)
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import (
    ConnectionLostError,
    HandshakeError,
    PartitionConnectionError,
    PartitionNotFoundError,
    ProducerFailedError,
)
from headrace.network.gates.gate import BatchElement
from tests.unit.network.exchange import events_of, gate, numbers, values_of, writer
from tests.unit.network.gate_readers import read_all
from tests.unit.network.simulated import SimulatedCluster


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.assert_nothing_leaks()


def test_rows_markers_and_events_cross_in_order(cluster: SimulatedCluster) -> None:
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink, source = writer(producer), gate(consumer, [location])
    source.request_partitions()
    sink.emit(numbers(0, 10))
    sink.emit_marker(Watermark(5))
    sink.emit(numbers(10, 10))
    sink.emit_event(EndOfData())
    sink.finish()
    sink.close()
    elements = read_all(cluster, source)
    source.close()
    assert values_of(elements) == list(range(20))
    assert isinstance(elements[0], BatchElement)
    assert elements[0].markers == (PlacedMarker(10, Watermark(5)),)
    assert events_of(elements) == [EndOfData(), EndOfPartition()]


def test_a_consumer_that_comes_first_waits_for_its_producer(cluster: SimulatedCluster) -> None:
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    remote, local = gate(consumer, [location]), gate(producer, [location], 1)
    remote.request_partitions()
    local.request_partitions()
    cluster.loop.run_for(3000)
    assert remote.poll() is None
    assert local.poll() is None
    sink = writer(producer, channel_count=2, kind=PartitionerKind.BROADCAST)
    sink.emit(numbers(0, 3))
    sink.finish()
    sink.close()
    assert values_of(read_all(cluster, remote)) == [0, 1, 2]
    assert values_of(read_all(cluster, local)) == [0, 1, 2]
    remote.close()
    local.close()


@pytest.mark.parametrize("is_local", [True, False])
def test_a_partition_that_never_comes_is_an_error_within_the_bound(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    source = gate(producer if is_local else consumer, [location])
    source.request_partitions()
    cluster.loop.run_until(lambda: source.is_available)
    assert 19_000 <= cluster.loop.clock.now_ms() <= 31_000
    with pytest.raises(PartitionNotFoundError, match="not registered on task manager a"):
        source.poll()
    source.close()


@pytest.mark.parametrize("is_local", [True, False])
def test_a_failed_producer_is_reported_to_early_and_late_consumers(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    producer, location = cluster.start("a")
    other, _ = cluster.start("b")
    consumer = producer if is_local else other
    sink = writer(producer, channel_count=2)
    early, late = gate(consumer, [location], 0), gate(consumer, [location], 1)
    early.request_partitions()
    sink.emit(numbers(0, 2))
    sink.flush_all()
    cluster.loop.run_for(50)
    sink.fail(ValueError("bad row\nwith a long story"))
    sink.close()
    late.request_partitions()
    for source in (early, late):
        with pytest.raises(ProducerFailedError, match=r"ValueError: bad row$"):
            read_all(cluster, source)
        source.close()


def test_a_vanished_peer_is_reported_as_a_lost_connection(cluster: SimulatedCluster) -> None:
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink, source = writer(producer), gate(consumer, [location])
    source.request_partitions()
    sink.emit(numbers(0, 2))
    sink.flush_all()
    cluster.loop.run_until(lambda: source.is_available)
    cluster.network.kill("a")
    with pytest.raises(ConnectionLostError, match="task manager a was lost"):
        read_all(cluster, source)
    source.close()
    sink.close()
    producer.release_partitions([sink.partition.partition_id])


def test_a_consumer_that_dies_does_not_stop_the_producer(cluster: SimulatedCluster) -> None:
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink, source = writer(producer), gate(consumer, [location])
    source.request_partitions()
    cluster.loop.run_for(50)
    cluster.network.kill("b")
    cluster.loop.run_for(50)
    for start in range(0, 1000, 10):
        sink.emit(numbers(start, 10))
        sink.flush_all()
    assert sink.is_available
    sink.finish()
    sink.close()
    with pytest.raises(ConnectionLostError):
        source.poll()
    source.close()


@pytest.mark.parametrize("is_local", [True, False])
def test_a_withdrawn_partition_is_reported_to_whoever_reads_it(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    producer, location = cluster.start("a")
    other, _ = cluster.start("b")
    sink, source = writer(producer), gate(producer if is_local else other, [location])
    source.request_partitions()
    sink.emit(numbers(0, 2))
    sink.flush_all()
    cluster.loop.run_for(50)
    producer.release_partitions([sink.partition.partition_id])
    with pytest.raises(ProducerFailedError, match="the partition was released"):
        read_all(cluster, source)
    source.close()
    with pytest.raises(CancelTaskException):
        sink.emit(numbers(0, 20_000))
    sink.close()


def test_an_unreachable_task_manager_is_a_partition_error(cluster: SimulatedCluster) -> None:
    _, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    cluster.network.kill("a")
    source = gate(consumer, [location])
    source.request_partitions()
    with pytest.raises(PartitionConnectionError, match="cannot connect to task manager a"):
        read_all(cluster, source)
    source.close()


def test_a_peer_with_another_secret_is_refused(cluster: SimulatedCluster) -> None:
    _, location = cluster.start("a", secret=b"x" * 32)
    consumer, _ = cluster.start("b")
    source = gate(consumer, [location])
    source.request_partitions()
    with pytest.raises(PartitionConnectionError, match="does not know the secret"):
        read_all(cluster, source)
    source.close()
    assert HandshakeError("a", "x").reason == "x"


def test_two_task_managers_that_feed_each_other_share_one_connection(
    cluster: SimulatedCluster,
) -> None:
    first, first_location = cluster.start("a")
    second, second_location = cluster.start("b")
    sinks = [writer(first, number=0), writer(second, number=0)]
    sources = [gate(second, [first_location]), gate(first, [second_location])]
    sources[0].request_partitions()
    cluster.loop.run_for(50)
    sources[1].request_partitions()
    for sink in sinks:
        sink.emit(numbers(0, 5))
        sink.finish()
        sink.close()
    for source in sources:
        assert values_of(read_all(cluster, source)) == [0, 1, 2, 3, 4]
        source.close()
    assert [len(transport._connections) for transport in cluster.network.transports.values()] == [
        1,
        1,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_every_row_arrives_once_and_in_order_whatever_the_delays(seed: int) -> None:
    random = SeededRandom(seed)
    cluster = SimulatedCluster(lambda source, target: random.choice([0.0, 0.1, 3.0, 40.0]))
    nodes = [cluster.start(f"tm-{index}") for index in range(3)]
    sinks = [
        writer(nodes[index][0], 3, PartitionerKind.REBALANCE, number=index) for index in range(3)
    ]
    locations = [location for _, location in nodes]
    sources = [gate(nodes[index][0], locations, index) for index in range(3)]
    received: list[dict[int, list[int]]] = [{}, {}, {}]
    for source in sources:
        source.request_partitions()
    open_sinks, next_row = set(range(3)), [0, 0, 0]
    while not all(source.is_finished for source in sources):
        choice = random.randrange(10)
        if choice < 3 and open_sinks:
            index = random.choice(sorted(open_sinks))
            if next_row[index] >= 600:
                sinks[index].finish()
                sinks[index].close()
                open_sinks.remove(index)
            elif sinks[index].is_available:
                count = random.randrange(1, 30)
                sinks[index].emit(numbers(index * 10_000 + next_row[index], count))
                next_row[index] += count
                if random.random() < 0.3:
                    sinks[index].flush_all()
        elif choice < 6:
            position = random.randrange(3)
            element = sources[position].poll()
            if isinstance(element, BatchElement):
                rows = received[position].setdefault(element.channel_index, [])
                rows += values_of([element])
        else:
            cluster.loop.step()
    rows = [row for by_channel in received for values in by_channel.values() for row in values]
    expected = [index * 10_000 + row for index in range(3) for row in range(next_row[index])]
    assert sorted(rows) == expected
    assert all(
        values == sorted(values) for by_channel in received for values in by_channel.values()
    )
    for source in sources:
        source.close()
    cluster.assert_nothing_leaks()

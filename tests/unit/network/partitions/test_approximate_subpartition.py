"""PIPELINED_APPROXIMATE: a consumer may be replaced while its producer goes on."""

from collections.abc import Iterator

import pytest

from headrace.core.elements import EndOfData, EndOfPartition
from headrace.core.shuffle_descriptors import ResultPartitionType
from tests.unit.network.exchange import gate, numbers, partition_id, writer
from tests.unit.network.partition_traces import Consumer, Producer
from tests.unit.network.simulated import SimulatedCluster

KIND = ResultPartitionType.PIPELINED_APPROXIMATE


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.assert_nothing_leaks()


@pytest.mark.parametrize("first_is_local", [True, False])
@pytest.mark.parametrize("second_is_local", [True, False])
def test_a_new_consumer_goes_on_with_the_next_whole_batch(
    cluster: SimulatedCluster, first_is_local: bool, second_is_local: bool
) -> None:
    producer, location = cluster.start("a")
    other, _ = cluster.start("b")
    sink = writer(producer, result_type=KIND)
    failing = Consumer(gate(producer if first_is_local else other, [location]))
    for start in (0, 1000):
        sink.emit(numbers(start, 1000))
        sink.flush_all()
    cluster.loop.run_for(20)
    failing.poll_all()
    failing.close()
    cluster.loop.run_for(20)
    assert failing.values == list(range(2000))
    for start in (2000, 3000):
        sink.emit(numbers(start, 1000))
        sink.flush_all()
    following = Consumer(gate(producer if second_is_local else other, [location]))
    Producer(sink).end()
    assert following.read_all(cluster) == [*range(2000, 4000), EndOfData(), EndOfPartition()]
    following.close()


def test_a_consumer_that_was_replaced_finds_nothing_more(cluster: SimulatedCluster) -> None:
    producer, location = cluster.start("a")
    sink = writer(producer, result_type=KIND)
    old = Consumer(gate(producer, [location]))
    new = Consumer(gate(producer, [location]))
    sink.emit(numbers(0, 10))
    Producer(sink).end()
    assert new.read_all(cluster) == [*range(10), EndOfData(), EndOfPartition()]
    old.poll_all()
    assert old.seen == []
    old.close()
    new.close()


def test_without_a_consumer_the_producer_is_held_back_and_nothing_is_lost(
    cluster: SimulatedCluster,
) -> None:
    producer, location = cluster.start("a")
    sink = writer(producer, result_type=KIND)
    Consumer(gate(producer, [location])).close()
    start = 0
    while sink.is_available:
        sink.emit(numbers(start, 1000))
        sink.flush_all()
        start += 1000
    assert start > 2000
    consumer = Consumer(gate(producer, [location]))
    consumer.poll_all()
    assert sink.is_available
    assert consumer.values == list(range(start))
    Producer(sink).end()
    consumer.read_all(cluster)
    consumer.close()


def test_the_master_withdraws_what_nobody_will_read(cluster: SimulatedCluster) -> None:
    producer, location = cluster.start("a")
    sink = writer(producer, result_type=KIND)
    Consumer(gate(producer, [location])).close()
    sink.emit(numbers(0, 1000))
    Producer(sink).end()
    assert producer.partitions.partition_count == 1
    producer.release_partitions([partition_id()])


def test_a_consumer_that_comes_behind_the_end_of_data_is_told_of_it_and_acknowledged_once(
    cluster: SimulatedCluster,
) -> None:
    producer, location = cluster.start("a")
    other, _ = cluster.start("b")
    sink = writer(producer, result_type=KIND)
    told: list[str] = []
    sink.partition.on_all_data_processed(lambda: told.append("all"))
    failing = Consumer(gate(other, [location]))
    sink.emit(numbers(0, 10))
    sink.emit_event(EndOfData())
    cluster.loop.run_for(20)
    failing.poll_all()
    failing.source.acknowledge_all_data(0)
    cluster.loop.run_for(20)
    failing.close()
    cluster.loop.run_for(20)
    following = Consumer(gate(other, [location]))
    cluster.loop.run_for(20)
    following.poll_all()
    assert following.seen == [EndOfData()]
    following.source.acknowledge_all_data(0)
    cluster.loop.run_for(20)
    assert told == ["all"]
    sink.finish()
    sink.close()
    assert following.read_all(cluster) == [EndOfData(), EndOfPartition()]
    following.close()

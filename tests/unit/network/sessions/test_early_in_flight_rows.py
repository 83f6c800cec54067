"""A consumer's wish for rows in flight reaches a producer that it cannot tell at once."""

from collections.abc import Callable

import pytest

from headrace.network.gates.gate import InputChannel
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import gate, writer
from tests.unit.network.simulated import SimulatedCluster


class Edge:
    """A producer on TaskManager "a" and a gate of one channel on TaskManager `consumer_name`."""

    def __init__(self, consumer_name: str) -> None:
        self.cluster = SimulatedCluster()
        self.producer, self._there = self.cluster.start("a")
        is_local = consumer_name == "a"
        consumer = self.producer if is_local else self.cluster.start(consumer_name)[0]
        self.source: SingleInputGate = gate(consumer, [self._there])
        self.sink: RecordWriter | None = None

    @property
    def channel(self) -> InputChannel:
        (only,) = self.source.channels
        return only

    def produce(self) -> None:
        self.sink = writer(self.producer)

    @property
    def in_flight_rows(self) -> int | None:
        assert self.sink is not None and isinstance(self.sink.partition, PipelinedResultPartition)
        return self.sink.partition.subpartitions[0].in_flight_rows

    def close(self) -> None:
        self.source.close()
        if self.sink is not None:
            self.sink.close()
        self.cluster.assert_nothing_leaks()


def speak(edge: Edge) -> None:
    edge.channel.request_in_flight_rows(1 << 16)
    edge.channel.request_in_flight_rows(1 << 17)


def before_the_connection(edge: Edge) -> None:
    edge.produce()
    speak(edge)
    edge.cluster.loop.run_for(10)
    edge.source.request_partitions()


def while_it_is_dialled(edge: Edge) -> None:
    edge.produce()
    edge.source.request_partitions()
    speak(edge)


def before_the_partition(edge: Edge) -> None:
    edge.source.request_partitions()
    edge.cluster.loop.run_for(100)
    speak(edge)
    edge.cluster.loop.run_for(100)
    edge.produce()


@pytest.mark.parametrize("consumer_name", ["a", "b"])
@pytest.mark.parametrize(
    "moment", [before_the_connection, while_it_is_dialled, before_the_partition]
)
def test_the_newest_of_several_early_wishes_counts(
    moment: Callable[[Edge], None], consumer_name: str
) -> None:
    edge = Edge(consumer_name)
    moment(edge)
    edge.cluster.loop.run_for(1000)
    assert edge.in_flight_rows == 1 << 17
    edge.close()

"""What a consumer says before its connection stands, or before its partition is there, arrives once both are."""

from collections.abc import Callable

import pytest

from headrace.network.channels import InputChannel
from headrace.network.early_messages import EARLY_TASK_EVENTS_MAX, EarlyMessages
from headrace.network.errors import NetworkError
from headrace.network.pipelined_partition import PipelinedResultPartition
from headrace.network.record_writer import RecordWriter
from headrace.network.single_input_gate import SingleInputGate
from tests.unit.network.exchange import gate, partition_id, writer
from tests.unit.network.simulated import SimulatedCluster


class Edge:
    """A producer on TaskManager "a" and a gate of one channel on TaskManager `consumer_name`."""

    def __init__(self, consumer_name: str) -> None:
        self.cluster = SimulatedCluster()
        self.producer, self._there = self.cluster.start("a")
        is_local = consumer_name == "a"
        consumer = self.producer if is_local else self.cluster.start(consumer_name)[0]
        self.source: SingleInputGate = gate(consumer, [self._there])
        self.events: list[bytes] = []
        self.sink: RecordWriter | None = None

    @property
    def channel(self) -> InputChannel:
        (only,) = self.source.channels
        return only

    def produce(self) -> None:
        self.producer.task_events.subscribe(partition_id(), self.events.append)
        self.sink = writer(self.producer)

    @property
    def in_flight_bytes(self) -> int | None:
        assert self.sink is not None and isinstance(self.sink.partition, PipelinedResultPartition)
        return self.sink.partition.subpartitions[0].in_flight_bytes

    def close(self) -> None:
        self.producer.task_events.unsubscribe(partition_id())
        self.source.close()
        if self.sink is not None:
            self.sink.close()
        self.cluster.assert_nothing_leaks()


def speak(edge: Edge) -> None:
    edge.channel.request_in_flight_bytes(1 << 16)
    edge.channel.send_task_event(b"one")
    edge.channel.request_in_flight_bytes(1 << 17)
    edge.channel.send_task_event(b"two")


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
def test_what_is_said_early_is_heard_and_the_newest_wish_counts(
    moment: Callable[[Edge], None], consumer_name: str
) -> None:
    edge = Edge(consumer_name)
    moment(edge)
    edge.cluster.loop.run_for(1000)
    assert edge.in_flight_bytes == 1 << 17
    assert edge.events == [b"one", b"two"]
    edge.close()


@pytest.mark.parametrize("consumer_name", ["a", "b"])
def test_more_events_than_anybody_keeps_are_refused(consumer_name: str) -> None:
    edge = Edge(consumer_name)
    edge.source.request_partitions()
    edge.cluster.loop.run_for(100)
    for _ in range(EARLY_TASK_EVENTS_MAX + 1):
        edge.channel.send_task_event(b"event")
    edge.cluster.loop.run_for(100)
    with pytest.raises(NetworkError, match="nobody listens"):
        edge.source.poll()
    edge.close()


def test_a_wish_is_told_again_and_an_event_once() -> None:
    early = EarlyMessages()
    told: list[int | bytes] = []
    early.tell(told.append, told.append)
    early.in_flight_bytes = 5
    assert early.keep_task_event(b"event")
    for _ in range(2):
        early.tell(told.append, told.append)
    assert told == [5, b"event", 5]

"""What a consumer says before its connection stands, or before its partition is there, arrives once both are."""

from collections.abc import Callable

import pytest

from headrace.core.ids import ResultPartitionId
from headrace.network.errors import NetworkError
from headrace.network.gates.gate import InputChannel
from headrace.network.gates.partition_requests import AnswerVerdict, ProducerVerdict
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.sessions.consumer_session import (
    EARLY_TASK_EVENTS_MAX,
    PendingChannelMessages,
)
from headrace.network.writers.record_writer import RecordWriter
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
    def in_flight_rows(self) -> int | None:
        assert self.sink is not None and isinstance(self.sink.partition, PipelinedResultPartition)
        return self.sink.partition.subpartitions[0].in_flight_rows

    def close(self) -> None:
        self.producer.task_events.unsubscribe(partition_id())
        self.source.close()
        if self.sink is not None:
            self.sink.close()
        self.cluster.assert_nothing_leaks()


def speak(edge: Edge) -> None:
    edge.channel.request_in_flight_rows(1 << 16)
    edge.channel.send_task_event(b"one")
    edge.channel.request_in_flight_rows(1 << 17)
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
    assert edge.in_flight_rows == 1 << 17
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


class HeldChecks:
    """Asked whether the producer is still to come, each time a request was answered that there is no partition."""

    def __init__(self, edge: Edge) -> None:
        self._cluster = edge.cluster
        self._held: list[AnswerVerdict] = []
        edge.source.check_producers_with(self._check)

    def _check(self, _: ResultPartitionId, answer: AnswerVerdict) -> None:
        self._held.append(answer)

    def await_one(self) -> None:
        self._cluster.loop.run_until(lambda: bool(self._held))

    def ask_again(self) -> None:
        self._held.pop()(ProducerVerdict.ASK_AGAIN)


def test_events_are_kept_over_requests_that_found_no_partition_and_heard_once_in_order() -> None:
    edge = Edge("b")
    checks = HeldChecks(edge)
    edge.channel.send_task_event(b"before")
    edge.source.request_partitions()
    edge.cluster.loop.run_for(100)
    edge.channel.send_task_event(b"while it waited")
    checks.await_one()
    edge.channel.send_task_event(b"between two tries")
    edge.cluster.loop.run_for(10)
    checks.ask_again()
    edge.cluster.loop.run_for(500)
    edge.channel.send_task_event(b"while it waited again")
    edge.cluster.loop.run_for(100)
    assert edge.events == []
    edge.produce()
    edge.cluster.loop.run_for(1000)
    edge.channel.send_task_event(b"at last")
    edge.cluster.loop.run_for(100)
    assert edge.events == [
        b"before",
        b"while it waited",
        b"between two tries",
        b"while it waited again",
        b"at last",
    ]
    edge.close()


def test_more_events_than_anybody_keeps_are_refused_between_two_tries_too() -> None:
    edge = Edge("b")
    checks = HeldChecks(edge)
    edge.source.request_partitions()
    edge.cluster.loop.run_for(100)
    for _ in range(EARLY_TASK_EVENTS_MAX):
        edge.channel.send_task_event(b"event")
    checks.await_one()
    assert edge.source.poll() is None
    edge.channel.send_task_event(b"one too many")
    edge.cluster.loop.run_for(10)
    with pytest.raises(NetworkError, match="nobody listens"):
        edge.source.poll()
    edge.close()


@pytest.mark.parametrize("consumer_name", ["a", "b"])
def test_a_producer_that_is_there_and_silent_hears_any_number_of_events(
    consumer_name: str,
) -> None:
    edge = Edge(consumer_name)
    edge.produce()
    edge.source.request_partitions()
    edge.cluster.loop.run_for(100)
    said = [b"%d" % number for number in range(3 * EARLY_TASK_EVENTS_MAX)]
    for event in said:
        edge.channel.send_task_event(event)
    edge.cluster.loop.run_for(100)
    assert edge.events == said
    assert edge.source.poll() is None
    edge.close()


def test_an_event_that_comes_while_another_is_handed_over_is_heard_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As where the task speaks while the transport's thread says what was kept.
    edge = Edge("a")
    edge.channel.send_task_event(b"one")
    edge.channel.send_task_event(b"two")
    publish = edge.producer.task_events.publish

    def interrupted(identity: ResultPartitionId, event: bytes) -> bool:
        if event == b"one":
            edge.channel.send_task_event(b"three")
        return publish(identity, event)

    monkeypatch.setattr(edge.producer.task_events, "publish", interrupted)
    edge.produce()
    edge.source.request_partitions()
    edge.cluster.loop.run_for(100)
    assert edge.events == [b"one", b"two", b"three"]
    edge.close()


def test_an_event_that_nobody_hears_any_more_does_not_trouble_a_channel_that_was_closed() -> None:
    edge = Edge("a")
    edge.produce()
    edge.source.request_partitions()
    edge.cluster.loop.run_for(100)
    channel = edge.channel
    channel.send_task_event(b"late")
    edge.producer.task_events.unsubscribe(partition_id())
    channel.close()
    edge.cluster.loop.run_for(100)
    assert channel.poll() is None
    edge.close()


def test_a_wish_is_told_again_and_an_event_once() -> None:
    early = PendingChannelMessages()
    told: list[int | bytes] = []
    early.tell(told.append, told.append)
    early.in_flight_rows = 5
    assert early.keep_task_event(b"event")
    for _ in range(2):
        early.tell(told.append, told.append)
    assert told == [5, b"event", 5]

"""Faults of one channel end that channel alone: the others of the connection go on, with all their credit."""

import pytest

from headrace.core.elements import EndOfPartition
from headrace.network.errors import (
    CorruptBatchError,
    CorruptFrameError,
    CreditOverspentError,
    NetworkError,
    ProtocolError,
    SequenceGapError,
)
from headrace.network.gates.gate import GateElement
from headrace.network.sessions.peer_session import PeerSession
from headrace.network.sessions.producer_session import ProducerSession
from headrace.network.trace.simulated_transport import SimulatedTransport
from headrace.network.wire.frames import Cancel, ChannelMessage
from tests.unit.network.exchange import events_of, gate, numbers, values_of, writer
from tests.unit.network.faulty_cluster import FaultyCluster

BAD = 1
GOOD = (0, 2)
TURNS = 6


class Exchange:
    """Three channels between "a" and "b", on one connection; a rule spoils what is for channel 1."""

    def __init__(self, rule: str, **options: str) -> None:
        self.cluster = FaultyCluster(f"{rule} channel={BAD}")
        self.producer, location = self.cluster.start("a", **options)
        consumer, _ = self.cluster.start("b", **options)
        self.sinks = [writer(self.producer, number=number) for number in range(3)]
        self.sources = [gate(consumer, [location], first_number=number) for number in range(3)]
        self.taken: list[list[GateElement]] = [[], [], []]
        self.errors: dict[int, NetworkError] = {}
        for source in self.sources:
            source.request_partitions()

    def send(self) -> None:
        for turn in range(TURNS):
            for sink in self.sinks:
                sink.emit(numbers(turn * 10, 10))
                sink.flush_all()
            self.take_all()

    def take_all(self) -> None:
        self.cluster.loop.run_all()
        for number, source in enumerate(self.sources):
            try:
                while number not in self.errors and (element := source.poll()) is not None:
                    self.taken[number].append(element)
            except NetworkError as error:
                self.errors[number] = error

    def assert_credit_is_whole(self, number: int) -> None:
        """At rest, what the sender may send is all that the receiver set aside."""
        assert isinstance(self.producer.transport, SimulatedTransport)
        (connection,) = self.producer.transport._connections
        session = connection._endpoint.session
        assert isinstance(session, PeerSession)
        sender = session.producer.account_of(number)
        (account,) = self.sources[number]._receiver.credits.accounts
        assert sender is not None and sender.credit == account.granted == account.available > 0

    def close(self) -> None:
        for source in self.sources:
            source.close()
        for sink in self.sinks:
            sink.close()
            sink.partition.release()
        self.cluster.assert_nothing_leaks()


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Channels that producers were told to cancel."""
    channels: list[int] = []
    take = ProducerSession.channel_message_received

    def noted(self: ProducerSession, frame: ChannelMessage) -> None:
        if isinstance(frame, Cancel):
            channels.append(frame.channel)
        take(self, frame)

    monkeypatch.setattr(ProducerSession, "channel_message_received", noted)
    return channels


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("drop Data sequence=2", SequenceGapError),
        ("duplicate Data sequence=2", SequenceGapError),
        ("drop Schema", CorruptBatchError),
        # What a batch pays, and the kind of an event.
        ("corrupt Data sequence=2 at=28", CreditOverspentError),
        ("corrupt Event at=32", ProtocolError),
        # In the metadata of the Arrow message, which the task's own thread reads.
        ("corrupt Data sequence=2 at=56", CorruptBatchError),
    ],
)
def test_the_fault_of_a_channel_leaves_the_others_of_its_connection_alone(
    cancelled: list[int], rule: str, error: type[NetworkError]
) -> None:
    exchange = Exchange(rule)
    exchange.send()
    for number in GOOD:
        exchange.assert_credit_is_whole(number)
    for sink in exchange.sinks:
        sink.finish()
    exchange.take_all()
    assert {number: type(found) for number, found in exchange.errors.items()} == {BAD: error}
    assert cancelled == [BAD]
    rows = values_of(exchange.taken[BAD])
    assert rows == list(range(len(rows)))
    for number in GOOD:
        assert values_of(exchange.taken[number]) == list(range(TURNS * 10))
        assert events_of(exchange.taken[number]) == [EndOfPartition()]
    exchange.close()


def test_what_cannot_be_trusted_to_be_of_one_channel_ends_the_connection() -> None:
    # A header whose checksum is wrong may name any channel.
    exchange = Exchange("corrupt Data sequence=2 at=28", headrace_network_checksum="true")
    exchange.send()
    assert [type(exchange.errors[number]) for number in range(3)] == [CorruptFrameError] * 3
    exchange.close()

"""The choice of a connection where two TaskManagers dial each other at once, by every order of what happens."""

from typing import Any

import pytest

from headrace.core.security.hmac_handshake import Role
from headrace.network.gates.gate import GateElement
from headrace.network.sessions.consumer_session import ConsumerSession
from headrace.network.sessions.peer_session import PeerSession
from headrace.network.transport.connection_manager import PeerConnections
from headrace.network.wire.frames import Close
from tests.unit.network.exchange import gate, numbers, values_of, writer
from tests.unit.network.simulated import SimulatedCluster


class Connection:
    def __init__(self, role: Role) -> None:
        self.role = role
        producer: Any = type("Producer", (), {"reader_count": 0})()
        link: Any = type("Link", (), {"peer": "peer", "wake": lambda self: None})()
        self.session = PeerSession(link, producer, ConsumerSession(link))

    @property
    def is_retired(self) -> bool:
        return self.session._is_retired


class Side:
    """One TaskManager, with a connection that it dialled and one that it accepted."""

    def __init__(self, own: str, peer: str) -> None:
        self.own, self.peer = own, peer
        self.peers = PeerConnections()
        self.dialled, self.accepted = Connection(Role.DIALLER), Connection(Role.ACCEPTOR)
        self.got: list[PeerSession] = []
        self.errors: list[str] = []

    def use(self) -> bool:
        return self.peers.use(self.peer, self.got.append, self.errors.append)

    def established(self, connection: Connection) -> None:
        self.peers.established(self.own, connection, self.peer, connection.session)


def test_the_lower_id_waits_for_its_own_dial() -> None:
    low = Side("a", "b")
    assert low.use()
    low.established(low.accepted)
    assert low.got == []
    low.established(low.dialled)
    assert low.got == [low.dialled.session]
    assert low.accepted.is_retired and not low.dialled.is_retired


def test_the_higher_id_waits_for_a_dial_that_it_knows_of() -> None:
    high = Side("b", "a")
    assert high.use()
    high.peers.claimed(high.accepted, "a")
    high.established(high.dialled)
    assert high.got == []
    high.established(high.accepted)
    assert high.got == [high.accepted.session]
    assert high.dialled.is_retired and not high.accepted.is_retired


def test_a_dial_that_was_not_known_of_takes_over_from_then_on() -> None:
    high = Side("b", "a")
    assert high.use()
    high.established(high.dialled)
    assert high.got == [high.dialled.session]
    high.established(high.accepted)
    assert high.dialled.is_retired
    assert not high.use()
    assert high.got[1:] == [high.accepted.session]


@pytest.mark.parametrize("how", ["dial", "handshake"])
def test_the_lower_id_falls_back_on_the_other_dial(how: str) -> None:
    low = Side("a", "b")
    low.use()
    low.established(low.accepted)
    if how == "dial":
        low.peers.dial_failed("b", "refused")
    else:
        low.peers.ended(low.dialled, "b", "refused")
    assert (low.got, low.errors) == ([low.accepted.session], [])
    assert not low.accepted.is_retired


def test_the_higher_id_falls_back_on_its_own_dial() -> None:
    high = Side("b", "a")
    high.use()
    high.peers.claimed(high.accepted, "a")
    high.established(high.dialled)
    high.peers.ended(high.accepted, None, "it did not prove itself")
    assert (high.got, high.errors) == ([high.dialled.session], [])


def test_a_later_connection_of_the_same_dialler_retires_nothing() -> None:
    side = Side("b", "a")
    side.established(side.accepted)
    again = Connection(Role.ACCEPTOR)
    side.established(again)
    assert not side.accepted.is_retired and not again.is_retired


def test_a_retired_connection_is_closed_once_both_sides_are_done_with_it() -> None:
    connection = Connection(Role.ACCEPTOR)
    connection.session.retire(Role.ACCEPTOR)
    assert not connection.session.is_spent
    connection.session.frame_received(Close())
    assert connection.session.is_spent
    connection.session.producer.reader_count = 1
    assert not connection.session.is_spent


@pytest.mark.slow
@pytest.mark.parametrize("delays", [(1.0, 1.0), (1.0, 7.0), (7.0, 1.0), (3.0, 1.0)])
@pytest.mark.parametrize("a_waits_ms", [0.0, 0.5, 1.5, 2.5, 6.0, 15.0])
@pytest.mark.parametrize("b_waits_ms", [0.0, 1.2, 2.2, 9.0])
def test_whoever_dials_when_all_rows_arrive_and_one_connection_remains(
    delays: tuple[float, float], a_waits_ms: float, b_waits_ms: float
) -> None:
    cluster = SimulatedCluster(lambda source, target: delays[0] if source == "a" else delays[1])
    nodes = [cluster.start(name) for name in "ab"]
    sinks = [writer(each, number=number) for number, (each, _) in enumerate(nodes)]
    sources = [
        gate(nodes[number][0], [nodes[1 - number][1]], first_number=1 - number) for number in (0, 1)
    ]
    for source, wait_ms in zip(sources, (a_waits_ms, b_waits_ms), strict=True):
        cluster.loop.schedule(wait_ms, source.request_partitions)
    cluster.loop.run_for(60)
    for sink in sinks:
        sink.emit(numbers(0, 3))
        sink.finish()
        sink.close()
    cluster.loop.run_all()
    for source in sources:
        elements: list[GateElement] = []
        while not source.is_finished:
            element = source.poll()
            assert element is not None
            elements.append(element)
        assert values_of(elements) == [0, 1, 2]
        source.close()
    cluster.loop.run_all()
    assert [len(each.transport._connections) for each, _ in nodes] == [1, 1]
    cluster.assert_nothing_leaks()

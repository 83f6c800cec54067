"""The last words before a connection is closed reach a peer that is still sending."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity
from headrace.network.errors import NetworkError
from headrace.network.transport import connection
from headrace.network.transport.blocking_connection import BlockingConnection
from headrace.network.wire.frames import NO_CHANNEL, Close, Error, ErrorCode, Proof
from testkit.waiting import wait_until
from tests.integration.network.conftest import Starter
from tests.unit.network.exchange import SECRET

pytestmark = pytest.mark.integration
MORE = Error(99, ErrorCode.PRODUCER_FAILED, bytes(60_000))
"""A large frame, sent where nobody looks at frames any more."""


@pytest.fixture(params=["unix", "tcp", "tls"])
def dial(
    request: pytest.FixtureRequest, start: Starter, tmp_path: Path, identity: TlsIdentity
) -> Callable[[], BlockingConnection]:
    """Starts a TaskManager and connects with it."""
    tls = identity if request.param == "tls" else None
    environment = start("a", tmp_path if request.param == "unix" else None, tls=tls)

    def connect() -> BlockingConnection:
        return BlockingConnection(environment.start(), "raw", SECRET, SeededRandom("raw"), tls)

    return connect


def test_a_peer_that_goes_on_sending_after_its_mistake_is_told_of_it(
    dial: Callable[[], BlockingConnection],
) -> None:
    peer = dial()
    peer.send(Proof(b"p" * 32))
    # Far more than the sockets hold: with the connection reset, one of these would fail.
    for _ in range(200):
        peer.send(MORE)
    words = peer.receive()
    assert isinstance(words, Error)
    assert (words.channel, words.code) == (NO_CHANNEL, ErrorCode.PROTOCOL)
    assert b"a frame of type Proof is not allowed between task managers" in bytes(words.body)
    peer.close()


def test_a_peer_that_sends_while_the_other_leaves_hears_the_farewell(start: Starter) -> None:
    environment = start("a")
    peer = BlockingConnection(environment.start(), "raw", SECRET, SeededRandom("raw"))
    transport = environment.transport
    wait_until(lambda: "raw" in transport._table._peers._used)
    is_leaving = threading.Event()

    def leave() -> None:
        for each in list(transport._connections):
            each.close()
        is_leaving.set()

    transport.post(leave)
    is_leaving.wait()
    for _ in range(200):
        peer.send(MORE)
    assert isinstance(peer.receive(), Close)
    peer.close()


def test_a_peer_that_never_closes_is_left_after_a_while(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 0.05)
    environment = start("a")
    peer = BlockingConnection(environment.start(), "raw", SECRET, SeededRandom("raw"))
    peer.send(Proof(b"p" * 32))
    assert isinstance(peer.receive(), Error)
    with pytest.raises(NetworkError):
        while True:
            peer.send(MORE)
    wait_until(lambda: not environment.transport._connections)
    peer.close()


def test_a_connection_that_ended_is_not_used_again_while_it_lingers(start: Starter) -> None:
    environment = start("a")
    location = environment.start()
    peer = BlockingConnection(location, "b", SECRET, SeededRandom("raw"))
    wait_until(lambda: "b" in environment.transport._table._peers._used)
    peer.send(Proof(b"p" * 32))
    assert isinstance(peer.receive(), Error)
    # Its socket is open still.
    wait_until(lambda: "b" not in environment.transport._table._peers._used)
    assert environment.transport._connections
    peer.close()
    wait_until(lambda: not environment.transport._connections)


def test_a_peer_that_never_stops_sending_is_not_read_without_end(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 3600.0)
    monkeypatch.setattr(connection, "LINGER_BYTES", 1 << 20)
    environment = start("a")
    peer = BlockingConnection(environment.start(), "raw", SECRET, SeededRandom("raw"))
    peer.send(Proof(b"p" * 32))
    assert isinstance(peer.receive(), Error)
    with pytest.raises(NetworkError):
        while True:
            peer.send(MORE)
    wait_until(lambda: not environment.transport._connections)
    peer.close()


def test_what_a_peer_sends_after_its_mistake_is_dropped_no_faster_than_leaves_others_their_turn(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 3600.0)
    monkeypatch.setattr(connection, "LINGER_PAUSE_MS", 200.0)
    environment = start("a")
    peer = BlockingConnection(environment.start(), "raw", SECRET, SeededRandom("raw"))
    peer.send(Proof(b"p" * 32))
    assert isinstance(peer.receive(), Error)
    began_ns = time.monotonic_ns()
    # 24 MB, of which the sockets hold less than half.
    for _ in range(400):
        peer.send(MORE)
    assert time.monotonic_ns() - began_ns >= 2e9
    peer.close()

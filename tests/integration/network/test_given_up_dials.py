"""Dials that are given up at the moment when they were made, and closing where something goes wrong."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.ids import ResourceId
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.errors import PartitionConnectionError
from headrace.network.transport.connection import SocketConnection
from headrace.network.transport.server import host_id
from headrace.network.transport.socket_transport import SocketTransport
from testkit.waiting import wait_until
from tests.integration.network.conftest import Starter
from tests.unit.network.exchange import gate, next_element, numbers, values_of, writer

pytestmark = pytest.mark.integration
Place = tuple[socket.socket, TaskManagerLocation]


@pytest.fixture(params=["tcp", "unix"])
def silent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TaskManagerLocation]:
    """Somebody who accepts and says nothing."""
    path = str(tmp_path / "silent.sock")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        port = tcp.getsockname()[1]
        unix_path = path if request.param == "unix" else None
        yield TaskManagerLocation(ResourceId("raw"), "127.0.0.1", port, unix_path, host_id())


class LateTimeouts:
    """The timeouts of the first dials are over right before their connections are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.expired_count = 0
        begun: list[asyncio.Timeout] = []
        timeout, made = asyncio.timeout, SocketConnection.connection_made

        def begin(delay: float | None) -> asyncio.Timeout:
            begun.append(timeout(delay))
            return begun[-1]

        def expire(connection: SocketConnection, transport: asyncio.BaseTransport) -> None:
            if connection.expected_name is None or self.expired_count == count:
                made(connection, transport)
                return
            self.expired_count += 1
            loop = asyncio.get_running_loop()
            begun[-1].reschedule(loop.time())
            loop.call_soon(made, connection, transport)

        monkeypatch.setattr(asyncio, "timeout", begin)
        monkeypatch.setattr(SocketConnection, "connection_made", expire)


def test_a_dial_that_times_out_when_it_was_made_leaves_no_connection(
    start: Starter, silent: TaskManagerLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = LateTimeouts(monkeypatch, 1)
    consumer = start("b")
    consumer.start()
    source = gate(consumer, [silent])
    source.request_partitions()
    with pytest.raises(PartitionConnectionError, match="no answer in time"):
        next_element(source)
    assert late.expired_count == 1
    assert isinstance(consumer.transport, SocketTransport)
    assert not consumer.transport._connections
    source.close()


@pytest.mark.parametrize("kind", ["tcp", "unix", "tls"])
def test_the_next_try_after_such_a_dial_is_as_good_as_the_first(
    start: Starter,
    tmp_path: Path,
    identity: TlsIdentity,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"tls": identity} if kind == "tls" else {}
    producer = start("a", tmp_path if kind == "unix" else None, **options)
    location = producer.start()
    consumer = start("b", taskmanager_network_retries=2, **options)
    consumer.start()
    late = LateTimeouts(monkeypatch, 2)
    sink, source = writer(producer), gate(consumer, [location])
    source.request_partitions()
    sink.emit(numbers(0, 5))
    sink.flush_all()
    element = next_element(source)
    assert values_of([element] if element else []) == [0, 1, 2, 3, 4]
    # With TLS a dial may be over before its limit is: then it is no longer given up, and the first one serves.
    assert late.expired_count == 2 or (kind == "tls" and late.expired_count == 1)
    assert isinstance(consumer.transport, SocketTransport)
    assert len(consumer.transport._connections) == 1
    source.close()
    sink.close()
    wait_until(lambda: producer.partitions.partition_count == 0)


def test_a_dial_has_no_timeout_any_more_once_it_was_made(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or the loop would close a connection that may be in use by then.
    location = start("a").start()
    limits: list[asyncio.Timeout] = []
    left: list[float | None] = []
    timeout, made = asyncio.timeout, SocketConnection.connection_made

    def begin(delay: float | None) -> asyncio.Timeout:
        limits.append(timeout(delay))
        return limits[-1]

    def note(connection: SocketConnection, transport: asyncio.BaseTransport) -> None:
        if connection.expected_name is not None:
            left.append(limits[-1].when())
        made(connection, transport)
        if connection.expected_name is not None:
            left.append(limits[-1].when())

    monkeypatch.setattr(asyncio, "timeout", begin)
    monkeypatch.setattr(SocketConnection, "connection_made", note)
    consumer = start("b")
    consumer.start()
    source = gate(consumer, [location])
    source.request_partitions()
    wait_until(lambda: len(left) == 2)
    assert left[0] is not None and left[1] is None
    source.close()


def test_a_side_that_is_closed_when_its_dial_was_made_ends_its_thread(
    start: Starter, silent: TaskManagerLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = start("b")
    consumer.start()
    assert isinstance(consumer.transport, SocketTransport)
    table, made = consumer.transport._table, SocketConnection.connection_made
    was_made = threading.Event()

    def cancel(connection: SocketConnection, transport: asyncio.BaseTransport) -> None:
        made(connection, transport)
        table.cancel_dials()
        was_made.set()

    monkeypatch.setattr(SocketConnection, "connection_made", cancel)
    source = gate(consumer, [silent])
    source.request_partitions()
    assert was_made.wait(10)
    source.close()
    consumer.close()
    assert not consumer.transport._connections
    assert "network b" not in [thread.name for thread in threading.enumerate()]


def test_a_connection_that_cannot_be_closed_holds_up_neither_the_others_nor_the_thread(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = [start(name) for name in ("a1", "a2")]
    locations = [producer.start() for producer in producers]
    consumer = start("b")
    consumer.start()
    sinks = [writer(producer, number=number) for number, producer in enumerate(producers)]
    source = gate(consumer, locations)
    source.request_partitions()
    for sink in sinks:
        sink.emit(numbers(0, 5))
        sink.flush_all()
        next_element(source)
    source.close()
    close = SocketConnection.close
    tried: list[str] = []

    def fail_once(connection: SocketConnection) -> None:
        tried.append(connection.peer)
        if len(tried) == 1:
            raise RuntimeError("it cannot be closed")
        close(connection)

    monkeypatch.setattr(SocketConnection, "close", fail_once)
    with pytest.raises(RuntimeError, match="it cannot be closed"):
        consumer.close()
    assert sorted(tried) == ["a1", "a2"]
    assert isinstance(consumer.transport, SocketTransport)
    assert not consumer.transport._connections
    assert "network b" not in [thread.name for thread in threading.enumerate()]
    for sink in sinks:
        sink.close()
    for producer in producers:
        wait_until(lambda producer=producer: producer.partitions.partition_count == 0)

"""One connection between two TaskManagers, shared by all who need it, and a fresh one after its loss."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from headrace.core.security.hmac_handshake import Role
from headrace.core.security.tls import TlsIdentity
from headrace.core.threads import start_thread
from headrace.network.errors import ConnectionLostError
from headrace.network.transport.socket_transport import SocketTransport
from testkit.waiting import wait_until
from tests.integration.network.conftest import Edge, Starter
from tests.unit.network.exchange import drain, gate, next_element, numbers, values_of, writer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("edge", ["unix", "tcp", "tls"], indirect=True),
]


def transport_of(ends: Edge) -> SocketTransport:
    transport = ends.consumer.transport
    assert isinstance(transport, SocketTransport)
    return transport


def test_concurrent_connectors_get_one_connection(edge: Callable[..., Edge]) -> None:
    ends = edge()
    count = 8
    sinks = [writer(ends.producer, number=number) for number in range(count)]
    sources = [gate(ends.consumer, [ends.location] * count) for _ in range(count)]
    together = threading.Barrier(count)

    def request(index: int) -> None:
        together.wait()
        sources[index].channels[index].request()

    threads = [start_thread("requests", lambda i=i: request(i)) for i in range(count)]
    for thread in threads:
        thread.join()
    for index, (sink, source) in enumerate(zip(sinks, sources, strict=True)):
        sink.emit(numbers(index, 1))
        sink.flush_all()
        element = next_element(source)
        assert values_of([element] if element else []) == [index]
    assert len(transport_of(ends)._connections) == 1
    for sink, source in zip(sinks, sources, strict=True):
        source.close()
        sink.close()
        sink.partition.release()


def test_a_connection_outlives_its_channels(edge: Callable[..., Edge]) -> None:
    ends = edge()
    seen = set()
    for number in range(3):
        sink = writer(ends.producer, number=number)
        source = gate(ends.consumer, [ends.location] * (number + 1))
        source.channels[number].request()
        sink.emit(numbers(0, 1))
        sink.finish()
        sink.close()
        next_element(source)
        seen |= transport_of(ends)._connections
        source.close()
    assert len(seen) == 1


def test_after_a_loss_the_next_channel_gets_a_fresh_connection(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    sink.emit(numbers(0, 1))
    sink.flush_all()
    next_element(source)
    (lost,) = transport_of(ends)._connections
    transport_of(ends).post(lost.abort)
    with pytest.raises(ConnectionLostError, match="task manager a was lost"):
        drain(source)
    source.close()
    sink.close()
    wait_until(lambda: ends.producer.partitions.partition_count == 0)

    sink, source = writer(ends.producer, number=1), gate(ends.consumer, [ends.location] * 2)
    source.channels[1].request()
    sink.emit(numbers(7, 1))
    sink.finish()
    sink.close()
    element = next_element(source)
    assert values_of([element] if element else []) == [7]
    (fresh,) = transport_of(ends)._connections
    assert fresh is not lost
    source.close()


def test_of_two_that_dial_each_other_at_once_one_connection_remains(
    edge: Callable[..., Edge],
    start: Starter,
    tmp_path: Path,
    identity: TlsIdentity,
    request: pytest.FixtureRequest,
) -> None:
    kind = request.node.callspec.params["edge"]
    options = {"tls": identity} if kind == "tls" else {}
    ends = [start(name, tmp_path if kind == "unix" else None, **options) for name in "ab"]
    locations = [each.start() for each in ends]
    sinks = [writer(each, number=number) for number, each in enumerate(ends)]
    sources = [
        gate(each, [locations[1 - number]], first_number=1 - number)
        for number, each in enumerate(ends)
    ]
    together = threading.Barrier(2)
    for each, source in zip(ends, sources, strict=True):
        each.transport.post(lambda: together.wait(10) and None)
        source.request_partitions()
    for sink in sinks:
        sink.emit(numbers(0, 5))
        sink.finish()
        sink.close()
    assert [values_of(drain(source)) for source in sources] == [[0, 1, 2, 3, 4]] * 2
    for each in ends:
        connections = cast(SocketTransport, each.transport)._connections
        wait_until(lambda connections=connections: len(connections) == 1)
    kept = [next(iter(cast(SocketTransport, each.transport)._connections)) for each in ends]
    assert [each.role for each in kept] == [Role.DIALLER, Role.ACCEPTOR]
    for source in sources:
        source.close()

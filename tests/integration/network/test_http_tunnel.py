"""TaskManagers that dial each other through a proxy: everything passes it, and what it refuses is told."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.errors import ConfigurationError
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import start_thread
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.errors import PartitionConnectionError
from headrace.network.transport.http_tunnel import PROXY
from headrace.testing.fault_proxy.proxy import Address, FaultProxy
from testkit.waiting import wait_until
from tests.integration.network.conftest import Starter
from tests.integration.network.proxied import LoopThread
from tests.unit.network.exchange import drain, gate, next_element, numbers, values_of, writer

pytestmark = pytest.mark.integration


class PassingProxy:
    """Knows HTTP's CONNECT, and nothing of frames."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self.authority = ""
        self._server = thread.run(asyncio.start_server(self._accepted, "127.0.0.1", 0))
        host, port = self._server.sockets[0].getsockname()
        self.place = f"{host}:{port}"

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.authority = request.split(b" ")[1].decode("ascii")
        host, _, port = self.authority.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))

    def close(self) -> None:
        async def close() -> None:
            self._server.close()
            await self._server.wait_closed()

        self._thread.run(close())


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    finally:
        writer.close()


class AskedProxy:
    """A proxy that leads to whom it is asked for."""

    def __init__(self, thread: LoopThread) -> None:
        self.errors: list[str] = []
        self.proxy = FaultProxy(None, (), on_error=self.errors.append)
        self.place = str(thread.run(self.proxy.listen(Address("127.0.0.1", 0))))


@pytest.fixture
def asked() -> Iterator[AskedProxy]:
    thread = LoopThread()
    made = AskedProxy(thread)
    yield made
    thread.run(made.proxy.close())
    thread.stop()


def assert_rows_cross(
    producer: CreditBasedShuffleEnvironment, consumer: CreditBasedShuffleEnvironment
) -> TaskManagerLocation:
    """Start both, send rows from one to the other, and return where the producer is reached."""
    there = producer.start()
    consumer.start()
    sink, source = writer(producer), gate(consumer, [there])
    source.request_partitions()
    sink.emit(numbers(0, 1000))
    sink.finish()
    assert values_of(drain(source)) == list(range(1000))
    source.close()
    sink.close()
    return there


@pytest.mark.parametrize("has_socket", [False, True])
def test_frames_pass_the_proxy_even_where_a_unix_socket_would_do(
    asked: AskedProxy, start: Starter, tmp_path: Path, has_socket: bool
) -> None:
    options = {"headrace_network_proxy": asked.place}
    producer = start("a", tmp_path if has_socket else None, **options)
    assert_rows_cross(producer, start("b", **options))
    (injector,) = asked.proxy.injectors
    names = {name for lane in injector.lanes.values() for name in lane.frame_counts}
    assert {"PartitionRequest", "Data", "Event"} <= names and asked.errors == []


def test_tls_goes_through_a_proxy_that_only_passes_bytes(
    start: Starter, identity: TlsIdentity
) -> None:
    thread = LoopThread()
    pipe = PassingProxy(thread)
    options = {"headrace_network_proxy": pipe.place, "tls": identity}
    producer, consumer = start("a", **options), start("b", **options)
    there = assert_rows_cross(producer, consumer)
    assert pipe.authority == f"{there.host}:{there.data_port}"
    producer.close()
    consumer.close()
    pipe.close()
    thread.stop()


def refusal(start: Starter, place: str, there_port: int | None = None) -> str:
    """What the consumer says when its dial through `place` came to nothing."""
    producer = start("a")
    there = producer.start()
    consumer = start("b", headrace_network_proxy=place)
    consumer.start()
    if there_port is not None:
        there = type(there)(there.resource_id, there.host, there_port, None, there.host_id)
    source = gate(consumer, [there])
    source.request_partitions()
    with pytest.raises(PartitionConnectionError) as caught:
        next_element(source)
    source.close()
    return str(caught.value)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_proxy_that_cannot_reach_the_peer_says_why(asked: AskedProxy, start: Starter) -> None:
    port = closed_port()
    text = refusal(start, asked.place, port)
    assert f"the proxy at {asked.place} ({PROXY.key}) answered: 502" in text
    assert asked.errors[0].startswith(f"connection 0: 127.0.0.1:{port} cannot be reached")


def test_a_proxy_that_is_not_there_is_named_by_its_port(start: Starter) -> None:
    port = closed_port()
    assert str(port) in refusal(start, f"127.0.0.1:{port}")


def test_what_is_no_proxy_is_named(start: Starter) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        host, port = server.getsockname()

        def answer() -> None:
            with server.accept()[0] as accepted:
                accepted.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")

        answering = start_thread("answering", answer)
        text = refusal(start, f"{host}:{port}")
        answering.join(10)
    assert f"the proxy at {host}:{port} ({PROXY.key}) answered: SSH-2.0-OpenSSH" in text


def test_who_asks_the_proxy_for_nobody_is_turned_away(asked: AskedProxy) -> None:
    address = Address.parse(asked.place)
    with socket.create_connection((address.host, address.port), timeout=10) as dialler:
        dialler.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert dialler.recv(100) == b""
    wait_until(lambda: bool(asked.errors))
    assert f"the client sent no CONNECT request: set '{PROXY.key}', or give --to" in asked.errors[0]


@pytest.mark.parametrize("value", ["nowhere", ":1", "a:b", "a:0", "a:65536"])
def test_a_proxy_of_no_address_is_refused_before_anything_is_dialled(
    start: Starter, value: str
) -> None:
    with pytest.raises(ConfigurationError, match="it is not of the form host:port") as caught:
        start("a", headrace_network_proxy=value)
    assert caught.value.key == PROXY.key

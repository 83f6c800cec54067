"""Connections that are not TLS yet: counted, bounded and timed."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from headrace.core.clock import SystemClock
from headrace.core.security.tls import (
    RefusalLog,
    TlsIdentity,
    TlsListener,
    client_context,
    generate_identity,
    server_context,
)

pytestmark = pytest.mark.integration

COUNT_MAX = 5


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.write(data)


@pytest.fixture(scope="module")
def identity() -> TlsIdentity:
    return generate_identity(SystemClock().now_ms())


@contextlib.asynccontextmanager
async def listening(
    identity: TlsIdentity, timeout_s: float = 60.0
) -> AsyncGenerator[tuple[TlsListener, tuple[str, int]]]:
    refusals = RefusalLog(logging.getLogger("headrace.tests"), "a test")
    context = server_context(identity)
    listener = TlsListener(Echo, "127.0.0.1", 0, context, timeout_s, refusals, COUNT_MAX)
    listener.start()
    try:
        yield listener, listener.sockets[0].getsockname()
    finally:
        listener.close()


async def echoed(address: tuple[str, int], identity: TlsIdentity) -> bytes:
    reader, writer = await asyncio.open_connection(
        *address, ssl=client_context(identity), server_hostname="x"
    )
    writer.write(b"hello")
    try:
        return await reader.readexactly(5)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def test_whose_loop_it_is_hears_that_nobody_is_accepted_any_more(
    identity: TlsIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    async def scenario() -> None:
        hears = asyncio.Event()

        def told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            # As `EventLoopThread` knows a callback.
            if "handle" in context:
                heard.append(str(context["exception"]))
                hears.set()

        def planted(*_: object) -> None:
            raise LookupError("planted")

        asyncio.get_running_loop().set_exception_handler(told)
        async with listening(identity) as (listener, address):
            monkeypatch.setattr(listener._openings, "opened", planted)
            with socket.create_connection(address):
                async with asyncio.timeout(20):
                    await hears.wait()

    asyncio.run(scenario())
    assert heard == ["planted"]


async def hung_up(connection: socket.socket) -> None:
    connection.setblocking(False)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.get_running_loop().sock_recv(connection, 1) == b""


def test_the_oldest_of_too_many_silent_connections_gives_way(identity: TlsIdentity) -> None:
    async def scenario() -> None:
        async with listening(identity) as (listener, address):
            with contextlib.ExitStack() as silent:
                made = [
                    silent.enter_context(socket.create_connection(address))
                    for _ in range(3 * COUNT_MAX)
                ]
                async with asyncio.timeout(20):
                    for one in made[: 2 * COUNT_MAX]:
                        await hung_up(one)
                    assert listener.opening_count == COUNT_MAX
                    assert await echoed(address, identity) == b"hello"

    asyncio.run(scenario())


def test_a_connection_that_never_becomes_tls_is_dropped_in_time(identity: TlsIdentity) -> None:
    async def scenario() -> None:
        async with listening(identity, 0.05) as (listener, address):
            with socket.create_connection(address) as silent:
                async with asyncio.timeout(20):
                    await hung_up(silent)
                    while listener.opening_count:
                        await asyncio.sleep(0)
                assert await echoed(address, identity) == b"hello"

    asyncio.run(scenario())


def test_who_does_not_speak_tls_is_dropped_and_others_are_served(identity: TlsIdentity) -> None:
    async def scenario() -> None:
        async with listening(identity) as (_, address):
            with socket.create_connection(address) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                async with asyncio.timeout(20):
                    assert await echoed(address, identity) == b"hello"

    asyncio.run(scenario())


def test_closing_drops_connections_that_wait(identity: TlsIdentity) -> None:
    async def scenario() -> None:
        async with listening(identity) as (listener, address):
            with socket.create_connection(address) as silent:
                async with asyncio.timeout(20):
                    while not listener.opening_count:
                        await asyncio.sleep(0)
                    listener.close()
                    await hung_up(silent)
                    assert listener.opening_count == 0

    asyncio.run(scenario())

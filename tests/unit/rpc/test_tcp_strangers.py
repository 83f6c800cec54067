"""Strangers without the secret: refused, bounded, timed, and never listened to."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator
from random import Random
from typing import Any

import pytest

from headrace.core.host_port import join_host_port, split_host_port
from headrace.core.security.hmac_handshake import Role
from headrace.rpc.authentication import Authentication
from headrace.rpc.codec import LENGTH
from headrace.rpc.errors import (
    RpcConnectionError,
    RpcHandshakeError,
)
from tests.unit.rpc.sample_endpoints import (
    Ledger,
    LedgerGateway,
)
from tests.unit.rpc.tcp_services import Run, ledger_and_gateway, make_service, started

pytestmark = pytest.mark.integration


def test_another_secret_is_refused_on_both_sides(run: Run) -> None:
    async def scenario() -> None:
        callee, stranger = make_service(), make_service(secret=b"t" * 32)
        async with started(callee, stranger):
            ledger = Ledger(callee)
            ledger.start()
            with pytest.raises(RpcHandshakeError, match="does not know the secret"):
                await stranger.connect(ledger.address, LedgerGateway)

    run(scenario())


def test_a_host_that_is_refused_again_and_again_is_told_of_once(run: Run, caplog: Any) -> None:
    async def scenario() -> None:
        async with started(callee := make_service()):
            for _ in range(3):
                await _read_all(*split_host_port(callee.address), b"GET / HTTP/1.1")
            await _read_all(*split_host_port(callee.address), b"HRPC" + b"\0" * 100)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    refused = [text for text in caplog.messages if "a call from 127.0.0.1 refused" in text]
    assert len(refused) == 2, refused
    assert "does not speak this protocol" in refused[0] and "version 0" in refused[1]


async def _read_all(host: str, port: int, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "opening",
    [b"", b"HR", b"GET / HTTP/1.1\r\n\r\n", b"HRPC" + b"\0" * 100, b"\xff" * 200_000],
    ids=["silence", "a drip", "another protocol", "a wrong version", "a flood"],
)
def test_a_stranger_is_dropped_and_learns_nothing(run: Run, opening: bytes) -> None:
    async def scenario() -> None:
        async with started(callee := make_service({"pekko.tcp.timeout": "30 ms"})):
            Ledger(callee).start()
            received = await _read_all(*split_host_port(callee.address), opening)
            assert len(received) in (0, 42), "nothing but the hello is ever said"
            while callee.accepted_connections:
                await asyncio.sleep(0)

    run(scenario())


def test_requests_without_a_proof_are_never_decoded(run: Run, caplog: Any) -> None:
    async def scenario() -> None:
        async with started(callee := make_service()):
            ledger = Ledger(callee)
            ledger.start()
            _, writer = await asyncio.open_connection(*split_host_port(callee.address))
            stranger = Authentication(
                Role.DIALLER, b"t" * 32, 1000, Random(), "callee", callee.address
            )
            writer.write(stranger.hello + b"p" * 32 + LENGTH.pack(1) + b"x")
            while not any("secret" in record.getMessage() for record in caplog.records):
                await asyncio.sleep(0)
            assert ledger.queue_length == 0
            writer.close()

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "no request" not in caplog.text


@contextlib.asynccontextmanager
async def relay_to(address: str) -> AsyncGenerator[str]:
    """Somebody who took the port of a process that has ended, and hands all bytes to another one of the cluster."""
    ended: list[asyncio.StreamWriter] = []

    async def hand_over(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*split_host_port(address))
        ended.extend((writer, far_writer))
        await asyncio.gather(hand_over(reader, far_writer), hand_over(far_reader, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield join_host_port(*server.sockets[0].getsockname())
    finally:
        server.close()
        for writer in ended:
            writer.close()


def test_a_greeting_that_is_relayed_to_another_process_opens_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with started(callee := make_service(), caller := make_service()):
            ledger = Ledger(callee)
            ledger.start()
            async with relay_to(callee.address) as taken:
                moved = ledger.address.replace(callee.address, taken)
                assert moved != ledger.address
                with pytest.raises(RpcHandshakeError, match="another process was meant"):
                    await caller.connect(moved, LedgerGateway)
                assert not any(one.is_proven for one in callee.accepted_connections)

    run(scenario())


def test_a_frame_that_the_peer_did_not_seal_ends_the_connection_unread(
    run: Run, caplog: Any
) -> None:
    async def scenario() -> None:
        async with started(callee := make_service(), caller := make_service()):
            ledger, gateway = await ledger_and_gateway(callee, caller)
            assert await gateway.count() == 0
            (connection,) = callee.accepted_connections
            call = b"a call in the peer's name".ljust(100)
            connection.data_received(LENGTH.pack(len(call)) + call)
            await connection.closed
            assert ledger.queue_length == 0

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "does not have that peer's seal" in caplog.text
    assert "no request" not in caplog.text


def test_strangers_who_wait_are_bounded(run: Run) -> None:
    async def scenario() -> None:
        async with started(callee := make_service(), caller := make_service()):
            sockets: list[socket.socket] = []
            try:
                for _ in range(300):
                    sockets.append(socket.create_connection(split_host_port(callee.address)))
                    await asyncio.sleep(0)
                _, gateway = await ledger_and_gateway(callee, caller)
                assert await gateway.count() == 0
                open_count = sum(other.is_stranger for other in callee.accepted_connections)
                assert open_count <= 256
            finally:
                for stranger in sockets:
                    stranger.close()

    run(scenario())


def test_a_peer_that_does_not_take_the_connection_is_given_up_in_time(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = join_host_port(*silent.getsockname())
            async with started(caller := make_service({"pekko.tcp.timeout": "30 ms"})):
                with pytest.raises(RpcConnectionError, match="30 ms"):
                    await caller.connect(f"headrace.tcp://{address}/rpc/x", LedgerGateway)

    run(scenario())

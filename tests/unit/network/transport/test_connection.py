"""A connection whose socket is gone without a word, or that is given up while it is made."""

import asyncio
import os
import socket as kernel
from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.clock import ManualClock
from headrace.core.randomness import SeededRandom
from headrace.core.security.hmac_handshake import Role
from headrace.network.errors import ConnectionLostError, NetworkError
from headrace.network.sessions.connection_protocol import ConnectionProtocol
from headrace.network.transport import connection
from headrace.network.transport.connection import TOP_UP_BYTES, SocketConnection
from tests.unit.network.exchange import SECRET


class Host:
    """What a connection asks of its environment before the peer has proved itself."""

    name = "b"
    secret = SECRET
    clock = ManualClock()
    random = SeededRandom(0)
    features = 0


class Socket:
    """A transport; once it is `dead`, it does as uvloop's do whose handle was closed behind their protocol's back."""

    def __init__(self) -> None:
        self.written = b""
        self.is_dead = False
        self.abort_count = 0
        self.kernel_socket: Any = None

    def writelines(self, parts: list[Any]) -> None:
        if self.is_dead:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>")
        self.written += b"".join(map(bytes, parts))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        # Paused with more than that: with a full buffer there is no budget, so a flush would find nothing, and nobody
        # would flush again.
        assert 0 < high < TOP_UP_BYTES

    def get_extra_info(self, name: str) -> Any:
        if name == "peername":
            return ""
        assert name == "socket"

        class Plain:
            family = None

        return self.kernel_socket or Plain()

    def abort(self) -> None:
        self.abort_count += 1

    def close(self) -> None:
        raise AssertionError("it is dead")


class Calls:
    """A dialler's connection, and who was called because of it."""

    def __init__(self) -> None:
        self.opened: list[SocketConnection] = []
        self.ended: list[tuple[str | None, NetworkError]] = []
        self.closed: list[SocketConnection] = []
        self.when_closed: Callable[[], object] = lambda: None
        host: Any = Host()
        self.connection = SocketConnection(
            host,
            Role.DIALLER,
            lambda callback: callback(),
            10.0,
            self.opened.append,
            lambda connection, name: None,
            lambda connection, name, session: None,
            lambda connection, error: self.ended.append((connection.expected_name, error)),
            self._was_closed,
            "there",
            "a",
        )

    def _was_closed(self, connection: SocketConnection) -> None:
        self.closed.append(connection)
        self.when_closed()

    def made(self, socket: Any) -> None:
        self.connection.connection_made(socket)


def test_to_write_to_a_socket_that_is_gone_is_the_end_of_the_connection() -> None:
    async def run() -> None:
        calls, socket = Calls(), Socket()
        socket.is_dead = True
        calls.made(socket)
        ((name, error),) = calls.ended
        assert name == "a" and isinstance(error, ConnectionLostError)
        assert "closed=True" in str(error)
        assert calls.closed == [calls.connection]
        calls.connection.close()
        calls.connection.wake()

    asyncio.run(run())


def planted(*_: Any) -> Any:
    raise LookupError("planted")


@pytest.mark.parametrize("method", ["wake", "resume_writing"])
def test_a_writer_that_fails_is_the_end_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async def run() -> None:
        calls, socket = Calls(), Socket()
        calls.made(socket)
        monkeypatch.setattr(ConnectionProtocol, "take_output", planted)
        getattr(calls.connection, method)()
        assert_ended_by_the_plant(calls, socket)

    asyncio.run(run())


def test_a_connection_that_fails_as_it_is_made_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "enlarge_buffers", planted)

    async def run() -> None:
        calls, socket = Calls(), Socket()
        calls.made(socket)
        assert_ended_by_the_plant(calls, socket)

    asyncio.run(run())


def test_a_timer_that_fails_is_the_end_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        calls, socket = Calls(), Socket()
        has_closed = asyncio.Event()
        calls.when_closed = has_closed.set
        calls.made(socket)
        session: Any = None
        monkeypatch.setattr(ConnectionProtocol, "check_alive", lambda self: 1.0)
        calls.connection._established("a", session)
        monkeypatch.setattr(ConnectionProtocol, "check_alive", planted)
        async with asyncio.timeout(10):
            await has_closed.wait()
        assert_ended_by_the_plant(calls, socket)

    asyncio.run(run())


def test_whose_loop_it_is_hears_of_channels_that_were_not_told_of_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ConnectionProtocol, "lost", planted)
    monkeypatch.setattr(Socket, "close", lambda self: None)
    heard: list[str] = []

    async def run() -> None:
        calls, socket = Calls(), Socket()
        hears = asyncio.Event()

        def told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            # As `EventLoopThread` knows a callback.
            if "handle" in context:
                heard.append(str(context["exception"]))
                hears.set()

        asyncio.get_running_loop().set_exception_handler(told)
        calls.made(socket)
        calls.connection.close()
        async with asyncio.timeout(20):
            await hears.wait()

    asyncio.run(run())
    assert heard == ["planted"]


def assert_ended_by_the_plant(calls: Calls, socket: Socket) -> None:
    ((_, error),) = calls.ended
    assert isinstance(error, ConnectionLostError)
    assert "LookupError: planted" in str(error)
    assert calls.closed == [calls.connection] and socket.abort_count == 1


@pytest.mark.skipif(not hasattr(kernel, "SO_PEERCRED"), reason="the kernel tells on Linux only")
def test_a_process_of_another_user_at_a_unix_socket_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)

    async def run() -> None:
        calls, socket = Calls(), Socket()
        near, far = kernel.socketpair(kernel.AF_UNIX)
        with near, far:
            socket.kernel_socket = near
            calls.made(socket)
        assert (socket.abort_count, socket.written) == (1, b"")
        calls.connection.connection_lost(None)
        ((_, error),) = calls.ended
        assert "a process of another user is at the other end" in str(error)

    asyncio.run(run())


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_dial_that_is_given_up_after_it_was_made_ends_its_connection_once(is_dead: bool) -> None:
    async def run() -> None:
        calls, socket = Calls(), Socket()
        calls.made(socket)
        assert socket.written and calls.opened == [calls.connection]
        socket.is_dead = is_dead
        calls.connection.abandon()
        # Nobody's name: who dials may try again, and tells those who wait.
        assert [name for name, _ in calls.ended] == [None]
        assert calls.closed == [calls.connection] and socket.abort_count == 1
        calls.connection.wake()
        calls.connection.close()
        assert len(calls.ended) == 1

    asyncio.run(run())


def test_a_dial_that_is_given_up_before_it_is_made_opens_nothing() -> None:
    async def run() -> None:
        calls, socket = Calls(), Socket()
        calls.connection.abandon()
        calls.made(socket)
        assert socket.abort_count == 1
        assert calls.opened == [] and socket.written == b""

    asyncio.run(run())

"""Strangers at a data port, without the secret: bounded, timed, told nothing; nobody else is kept out."""

import contextlib
import socket
from pathlib import Path

import pytest

from headrace.core.randomness import SeededRandom
from headrace.core.security.hmac_handshake import STRANGERS_MAX, Role
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.wire.frames import Proof
from headrace.network.wire.framing import encode
from headrace.network.wire.handshake import Handshake
from tests.integration.network.conftest import Starter
from tests.integration.network.raw_peer import RawPeer
from tests.unit.network.exchange import SECRET

pytestmark = pytest.mark.integration


def dial(location: TaskManagerLocation) -> socket.socket:
    return socket.create_connection((location.host, location.data_port), timeout=10)


def dial_unix(location: TaskManagerLocation) -> socket.socket:
    assert location.unix_socket_path is not None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(location.unix_socket_path)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """Everything that the other side still says before it hangs up."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            received += data
    return received


def hello(secret: bytes = SECRET) -> bytes:
    side = Handshake(Role.DIALLER, "raw", secret, SeededRandom(1), "it", expected_name="a")
    return side.opening()


@pytest.mark.parametrize(
    "opening",
    [b"", hello()[:20], b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 200_000],
    ids=["silence", "half a hello", "another protocol", "a flood"],
)
def test_a_stranger_is_disconnected_and_told_nothing(start: Starter, opening: bytes) -> None:
    location = start("a", headrace_network_handshake__timeout="50 ms").start()
    with dial(location) as stranger:
        with contextlib.suppress(ConnectionError):
            stranger.sendall(opening)
        assert read_to_end(stranger) == b""


def test_a_host_that_is_refused_again_and_again_is_told_of_once(
    start: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    location = start("a").start()
    guess = hello() + b"".join(bytes(part) for part in encode(Proof(b"0" * 32)))
    for opening in [b"GET / HTTP/1.1\r\n\r\n"] * 3 + [guess]:
        with dial(location) as stranger:
            with contextlib.suppress(ConnectionError):
                stranger.sendall(opening)
            read_to_end(stranger)
    refused = [text for text in caplog.messages if "a connection for rows from" in text]
    assert len(refused) == 2, caplog.messages
    assert "does not speak this protocol" in refused[0] and "the secret" in refused[1]


def test_a_hello_without_a_proof_is_answered_once_and_then_disconnected(start: Starter) -> None:
    location = start("a", headrace_network_handshake__timeout="50 ms").start()
    with dial(location) as stranger:
        stranger.sendall(hello())
        assert 0 < len(read_to_end(stranger)) < 200


def test_a_drip_does_not_put_the_deadline_off(start: Starter) -> None:
    location = start("a", headrace_network_handshake__timeout="200 ms").start()
    with dial(location) as stranger:
        stranger.settimeout(0.02)
        is_open = True
        # Longer than the deadline by far, if each byte could put it off.
        for byte in hello()[:-1]:
            try:
                stranger.sendall(bytes([byte]))
                is_open = stranger.recv(1) != b""
            except TimeoutError:
                continue
            except ConnectionError:
                is_open = False
            if not is_open:
                break
        assert not is_open


@pytest.mark.parametrize("is_unix", [False, True], ids=["tcp", "unix"])
def test_strangers_are_bounded_and_keep_nobody_out(
    start: Starter, tmp_path: Path, is_unix: bool, caplog: pytest.LogCaptureFixture
) -> None:
    location = start("a", tmp_path).start()
    with contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(dial_unix(location) if is_unix else dial(location))
            for _ in range(STRANGERS_MAX + 1)
        ]
        stack.callback(RawPeer.dial(location).close)
        # Long before the deadline of ten seconds.
        strangers[0].settimeout(5)
        assert read_to_end(strangers[0]) == b""
        assert (
            len(
                [text for text in caplog.messages if "too many unauthenticated connections" in text]
            )
            == 1
        )

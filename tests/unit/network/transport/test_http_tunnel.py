"""The proxy's address, and what it answers: whatever they are, errors have names."""

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.threads import start_thread
from headrace.network.transport.http_tunnel import HttpTunnel


@pytest.mark.parametrize("port", ["9" * 5000, "²", "٣", "0", "65536", "-1", ""])
def test_an_impossible_port_is_refused_by_name(port: str) -> None:
    with pytest.raises(ConfigurationError, match=r"headrace\.network\.proxy"):
        HttpTunnel.from_settings(Settings({"headrace.network.proxy": f"host:{port}"}))


@given(st.text(min_size=1, max_size=30))
def test_any_text_is_an_address_or_refused_by_name(text: str) -> None:
    try:
        assert HttpTunnel.from_settings(Settings({"headrace.network.proxy": text})) is not None
    except ConfigurationError:
        return


@pytest.mark.parametrize(
    "answer",
    [b"\xff\xfe\r\n\r\n", b"HTTP/1.1 \xb2\xb2\r\n\r\n", b"\r\n\r\n", b"x" * 10_000, b""],
    ids=["no text", "no digits", "nothing said", "no end", "silence"],
)
def test_what_is_no_proxy_s_answer_is_an_error_of_the_dial(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        serving = start_thread("proxy", serve)
        tunnel = HttpTunnel(*server.getsockname())
        with pytest.raises(OSError, match=r"headrace\.network\.proxy|reset"):
            asyncio.run(tunnel.open("there", 1))
        serving.join(10)

"""HttpTunnel: connects to other TaskManagers through an HTTP proxy, such as the fault proxy of the tests.

It sends CONNECT to the proxy, which forwards all bytes after its 200 response. Source: RFC 9110, section 9.3.6.
"""

import asyncio
import contextlib
import socket
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError
from headrace.core.host_port import join_host_port, split_host_port

PROXY: Final = ConfigOption(
    "headrace.network.proxy", str, "",
    "Host and port of an HTTP proxy through which TaskManagers dial each other, also on the same host; empty: they "
    "dial each other directly. Meant for `python -m headrace.testing.fault_proxy`.",
)  # fmt: skip
_ANSWER_BYTES_MAX: Final = 4096


class HttpTunnel:
    """Dials through one proxy. Network thread."""

    def __init__(self, host: str, port: int) -> None:
        self._host: Final = host
        self._port: Final = port

    @classmethod
    def from_settings(cls, settings: Settings) -> "HttpTunnel | None":
        """Make a tunnel from the option; None if TaskManagers dial each other directly.

        ConfigurationError if the option is not of the form host:port.
        """
        value = settings.get_option(PROXY)
        if not value:
            return None
        with contextlib.suppress(OSError):
            host, port = split_host_port(value)
            if 0 < port < 1 << 16:
                return cls(host, port)
        raise ConfigurationError(PROXY.key, value, "it is not of the form host:port")

    async def open(self, host: str, port: int) -> socket.socket:
        """Return a socket that the proxy has connected to `host`.

        OSError if the proxy or the host cannot be reached.
        """
        loop = asyncio.get_running_loop()
        (family, kind, protocol, _, address), *_ = await loop.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM
        )
        tunnel = socket.socket(family, kind, protocol)
        try:
            tunnel.setblocking(False)
            await loop.sock_connect(tunnel, address)
            authority = join_host_port(host, port)
            request = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"
            await loop.sock_sendall(tunnel, request.encode("ascii"))
            await self._expect_ok(tunnel)
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    async def _expect_ok(self, tunnel: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            # One byte at a time: the bytes behind it are the peer's.
            received = await loop.sock_recv(tunnel, 1)
            answer += received
            if not received or len(answer) > _ANSWER_BYTES_MAX:
                raise OSError(f"{self} is not an HTTP proxy")
        version, _, status = answer.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        if not version.startswith("HTTP/1.") or not status.startswith("200"):
            raise OSError(f"{self} answered: {status or version}")

    def __str__(self) -> str:
        return f"the proxy at {self._host}:{self._port} ({PROXY.key})"

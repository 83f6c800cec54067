"""Free loopback ports for servers that must be given a port and do not report their own."""

import contextlib
import socket
from pathlib import Path
from typing import Final

from headrace.core.randomness import system_random

_CONNECTIONS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000


def free_ports(count: int = 1) -> list[int]:
    """Return TCP ports at which nobody listens, and that Linux assigns to no connection before a server binds them."""
    first_of_connections = int(_CONNECTIONS.read_text().split()[0])
    random, found = system_random(), set[int]()
    while len(found) < count:
        port = random.randrange(_LOWEST, first_of_connections)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return sorted(found)

"""Where a proxy listens and leads: `host:port` or `unix:path`."""

import contextlib
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from os.path import realpath

from headrace.core.security.tls import is_loopback


@dataclass(frozen=True)
class Address:
    """A TCP address, or a Unix socket where `path` is set."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read an address; ValueError."""
        if text.startswith("unix:") and len(text) > 5:
            return cls(path=text[5:])
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"'{text}' is neither host:port nor unix:path")
        return cls(host.strip("[]"), int(port))

    def is_same_place(self, other: "Address") -> bool:
        """Whether who dials `other` comes to a listener of this address. Looks names up; may block."""
        if self.path is not None or other.path is not None:
            paths = [None if each.path is None else realpath(each.path) for each in (self, other)]
            return paths[0] == paths[1]
        if self.port != other.port or self.port == 0:
            return False
        own, others = _resolved(self.host), _resolved(other.host)
        listens_everywhere = any(each.is_unspecified for each in own)
        return bool(own & others) or (
            listens_everywhere and any(each.is_loopback or each.is_unspecified for each in others)
        )

    @property
    def is_of_this_machine(self) -> bool:
        """Whether only processes of this machine reach a listener there; see `tls.is_loopback`."""
        return self.path is not None or is_loopback(self.host)

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _resolved(host: str) -> set[IPv4Address | IPv6Address]:
    """Return the addresses of a host; none where it has none, as dialling or listening will say."""
    with contextlib.suppress(OSError):
        return {ip_address(found[4][0]) for found in socket.getaddrinfo(host, None)}
    return set()

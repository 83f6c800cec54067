"""Addresses of endpoints: `headrace.tcp://host:port/rpc/<endpoint name>`."""

from dataclasses import dataclass
from typing import Final

from headrace.rpc.errors import RpcConnectionError

_PATH: Final = "/rpc/"


@dataclass(frozen=True)
class RpcAddress:
    """`authority` names the process (`host:port`, or a name in the loopback network)."""

    scheme: str
    authority: str
    endpoint_name: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{_PATH}{self.endpoint_name}"


def parse_address(text: str) -> RpcAddress:
    """Parse an endpoint's address; RpcConnectionError where it is none."""
    scheme, separator, rest = text.partition("://")
    authority, path, endpoint_name = rest.partition(_PATH)
    if not (scheme and separator and authority and path and endpoint_name):
        raise RpcConnectionError(text, "an address has the form headrace.tcp://host:port/rpc/name")
    return RpcAddress(scheme, authority, endpoint_name)

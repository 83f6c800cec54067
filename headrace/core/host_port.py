"""Network addresses as text: `host:port`, in which an IPv6 address stands in brackets."""

from typing import Final

_PORT_DIGITS: Final = 5


def bracketed(host: str) -> str:
    """Return a host as URLs write it: an IPv6 address in brackets, anything else unchanged."""
    return f"[{host}]" if ":" in host else host


def join_host_port(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"{bracketed(host)}:{port}"


def split_host_port(authority: str) -> tuple[str, int]:
    """Return host, without brackets, and port of an authority; OSError if it is not valid, as for an unknown host."""
    host, _, port = authority.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS):
        raise OSError(f"'{authority}' is not of the form host:port")
    return host.strip("[]"), int(port)

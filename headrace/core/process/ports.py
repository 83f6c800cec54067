"""Reads which ports an option allows."""

from collections.abc import Iterator

from headrace.core.errors import ConfigurationError

PORT_MAX = 65535


def parse_ports(key: str, text: str) -> Iterator[int]:
    """Ports of `6123`, `50100-50200` or `6123,50100-50200`; ConfigurationError names `key`."""
    ranges: list[range] = []
    for part in text.split(","):
        first, separator, last = part.strip().partition("-")
        try:
            ranges.append(range(int(first), int(last if separator else first) + 1))
        except ValueError:
            raise ConfigurationError(key, text, "this is not a port, range or list") from None
        if not ranges[-1] or ranges[-1][0] < 0 or ranges[-1][-1] > PORT_MAX:
            raise ConfigurationError(key, text, "ports lie between 0 and 65535")
    return (port for ports in ranges for port in ports)

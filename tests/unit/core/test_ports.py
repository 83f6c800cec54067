"""Ports as options write them."""

import pytest

from headrace.core.config import parse_ports
from headrace.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "ports"),
    [("0", [0]), ("6123", [6123]), ("5-7", [5, 6, 7]), ("9, 5-6", [9, 5, 6])],
)
def test_ports_are_numbers_ranges_and_lists(text: str, ports: list[int]) -> None:
    assert list(parse_ports("key", text)) == ports


@pytest.mark.parametrize("text", ["", "x", "7-5", "65536", "-1", "1,,2"])
def test_what_is_no_port_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(ConfigurationError, match="'key'"):
        parse_ports("key", text)

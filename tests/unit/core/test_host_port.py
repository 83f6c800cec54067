"""Network addresses as text."""

import pytest

from headrace.core.host_port import join_host_port, split_host_port


def test_addresses_of_both_families_are_split_as_they_were_joined() -> None:
    for host, port in (("host", 1), ("127.0.0.1", 2), ("::1", 3)):
        assert split_host_port(join_host_port(host, port)) == (host, port)
    with pytest.raises(OSError, match="host:port"):
        split_host_port("nothing")


@pytest.mark.parametrize("port", ["9" * 5000, "²", "-1", "", "x"])
def test_an_authority_with_an_impossible_port_is_one_that_nobody_finds(port: str) -> None:
    with pytest.raises(OSError, match="is not of the form host:port"):
        split_host_port(f"host:{port}")

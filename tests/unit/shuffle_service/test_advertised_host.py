"""The name that a shuffle service gives itself: something that leads others to it, or nothing at all."""

import socket
from typing import Any

import pytest

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.shuffle_service.options import advertised_host


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Addresses by name; this machine is called `worker-7`."""
    known: dict[str, list[str]] = {}

    def look_up(name: str, port: None) -> list[tuple[Any, ...]]:
        if name not in known:
            raise socket.gaierror("Name or service not known")
        return [(0, 0, 0, "", (address, 0)) for address in known[name]]

    monkeypatch.setattr(socket, "gethostname", lambda: "worker-7")
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


def of(bind_host: str, given: str = "") -> str:
    return advertised_host(Settings({"shuffle-service.host": given}), bind_host)


def test_what_was_given_is_told_whatever_it_listens_at(resolver: dict[str, list[str]]) -> None:
    assert of("0.0.0.0", "shuffle-1") == "shuffle-1"
    assert of("127.0.0.1", "10.0.0.9") == "10.0.0.9"


def test_one_address_is_told_as_it_is(resolver: dict[str, list[str]]) -> None:
    assert of("127.0.0.1") == "127.0.0.1"
    assert of("192.168.3.4") == "192.168.3.4"


@pytest.mark.parametrize("bind_host", ["0.0.0.0", "::", ""])
def test_who_listens_at_all_addresses_is_told_by_the_machine_s_name(
    resolver: dict[str, list[str]], bind_host: str
) -> None:
    resolver["worker-7"] = ["127.0.1.1", "10.0.0.7"]
    assert of(bind_host) == "worker-7"


@pytest.mark.parametrize("addresses", [None, ["127.0.1.1"], ["127.0.1.1", "::1"]])
def test_a_machine_whose_name_leads_nobody_to_it_must_be_given_one(
    resolver: dict[str, list[str]], addresses: list[str] | None
) -> None:
    if addresses is not None:
        resolver["worker-7"] = addresses
    told = r"'shuffle-service\.host' is not set: other hosts cannot connect to 0\.0\.0\.0, .*'worker-7'"
    with pytest.raises(ConfigurationError, match=told):
        of("0.0.0.0")


@pytest.mark.parametrize("given", ["0.0.0.0", "::", "[::]"])
def test_all_addresses_are_nobody_s(resolver: dict[str, list[str]], given: str) -> None:
    told = r"'shuffle-service\.host' has the value .*: other hosts cannot connect to this address"
    with pytest.raises(ConfigurationError, match=told):
        of("10.0.0.7", given)

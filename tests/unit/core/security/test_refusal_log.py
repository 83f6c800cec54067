"""Refusals are told once for each peer and reason."""

import logging

import pytest

from headrace.core.security.tls import RefusalLog

LOGGER = logging.getLogger("headrace.tests.refusals")


def test_the_same_refusal_of_a_peer_is_told_once_and_others_are_told_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = RefusalLog(LOGGER, "a call")
    for port in range(3):
        log.tell("10.0.0.1", f"no secret, at port {port}")
    log.tell("10.0.0.1", "no TLS")
    log.tell("10.0.0.2", "no TLS")
    told = [record.message for record in caplog.records]
    assert [text.partition(" (")[0] for text in told] == [
        "a call from 10.0.0.1 refused: no secret, at port 0",
        "a call from 10.0.0.1 refused: no TLS",
        "a call from 10.0.0.2 refused: no TLS",
    ]


def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog(LOGGER, "a call", known_max=2)
    for host in ("a", "b", "c", "c", "b", "a"):
        log.tell(host, "no TLS")
    assert [record.message.split()[3] for record in caplog.records] == ["a", "b", "c", "a"]

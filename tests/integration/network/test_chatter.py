"""A peer that sends more than its share of what costs it nothing waits; others do not."""

import time

import pytest

from headrace.network.sessions.connection_protocol import FREE_FRAMES_BURST, FREE_FRAMES_PER_S
from headrace.network.wire.frame_decoder import STAGING_BYTES
from headrace.network.wire.frames import Error, ErrorCode, KeepAlive, Proof
from headrace.network.wire.framing import PREFIX
from tests.integration.network.conftest import Starter
from tests.integration.network.raw_peer import RawPeer

pytestmark = pytest.mark.integration


def test_a_peer_that_sends_signs_of_life_without_end_waits_and_others_do_not(
    start: Starter,
) -> None:
    location = start("a").start()
    chatterer, other = RawPeer.dial(location, "chatterer"), RawPeer.dial(location, "other")
    began_ns = time.monotonic_ns()
    # More than is taken at once, and than the last read may owe; then a mistake, whose answer shows that all was read.
    count = FREE_FRAMES_BURST + STAGING_BYTES // PREFIX.size + 2 * FREE_FRAMES_PER_S
    chatterer.send(*[KeepAlive()] * count, Proof(b"p" * 32))
    other.send(Proof(b"p" * 32))
    assert other.expect(Error).code == ErrorCode.PROTOCOL
    assert chatterer.expect(Error).code == ErrorCode.PROTOCOL
    assert time.monotonic_ns() - began_ns >= 2e9
    chatterer.close()
    other.close()

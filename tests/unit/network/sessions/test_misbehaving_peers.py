"""Peers that stall or break the protocol do not cost others their share: bytes in virtual time are the proof.

Each connection carries 100 MB per virtual second. The neighbour's rate is compared with what it has alone.
"""

from collections.abc import Callable

import pytest

from headrace.core.security.hmac_handshake import Role
from headrace.network.errors import ConnectionLostError, NetworkError
from headrace.network.gates.gate import BatchElement, InputGate
from headrace.network.trace.simulated_transport import LetArrive, Relay
from headrace.network.wire.frames import (
    AckAllUserRecordsProcessed,
    AddCredit,
    Data,
    Event,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
)
from headrace.network.wire.framing import encode
from tests.unit.network.exchange import gate, numbers, partition_id, writer
from tests.unit.network.simulated import SimulatedCluster

BYTES_PER_MS = 100_000
DURATION_MS = 400
ROWS = 16_384  # a batch is sealed at 128 KiB

REQUEST = PartitionRequest(0, partition_id(1), 0, 2, 10, 1 << 20)
MISCHIEF: dict[str, Callable[[bytes], bytes]] = {
    "sends garbage": lambda data: b"garbage!" * 10,
    "drips": lambda data: data[:1],
    "goes silent": lambda data: b"",
} | {
    what: (lambda data, frame=frame: b"".join(bytes(part) for part in encode(frame)))
    for what, frame in {
        "requests twice": REQUEST,
        "grants no credit": AddCredit(0, 0),
        "grants more than it can hold": AddCredit(0, 1000),
        "resumes what is not blocked": ResumeConsumption(0),
        "acknowledges what was not asked": AckAllUserRecordsProcessed(0),
        "wants nothing in flight": NewBufferSize(0, 0),
        "sends data for an unknown channel": Data(9, 0, 1, 0, 0, 0, (), b""),
        "sends an event for an unknown channel": Event(9, 0, 0, 2, 0, 0),
    }.items()
}


class Road:
    """Carries bytes at a limited rate. From `spoil_at_ms` on what the dialler says is replaced."""

    def __init__(
        self, cluster: "Cluster", deliver: LetArrive, spoil: Callable[[bytes], bytes]
    ) -> None:
        self._cluster = cluster
        self._deliver = deliver
        self._spoil = spoil
        self._free_ms = {Role.DIALLER: 0.0, Role.ACCEPTOR: 0.0}

    def carry(self, role: Role, data: bytes) -> None:
        now_ms = self._cluster.loop.clock.monotonic_ns() / 1e6
        if role is Role.DIALLER and now_ms > self._cluster.spoil_at_ms and data:
            data = self._spoil(data)
            if not data:
                return
        free_ms = max(now_ms, self._free_ms[role]) + len(data) / BYTES_PER_MS
        self._free_ms[role] = free_ms
        self._cluster.loop.schedule(free_ms - now_ms, lambda: self._deliver(role, data))


class Cluster(SimulatedCluster):
    """Producer "a"; consumer "good" and, for some, consumer "bad", whose road spoils what it says."""

    def __init__(self, spoil: Callable[[bytes], bytes] = bytes) -> None:
        self.spoil_at_ms = 50.0

        def create(dialler: str, acceptor: str, deliver: LetArrive) -> Relay:
            return Road(self, deliver, spoil if dialler == "bad" else bytes)

        super().__init__(create_relay=create)
        self.producer, self.location = self.start("a")

    def rates(self, sources: dict[str, InputGate | None]) -> dict[str, int]:
        """Rows that each of the named gates took; partition n is for the n-th. None takes nothing."""
        sinks = [writer(self.producer, number=number) for number in range(2)]
        rows = dict.fromkeys(sources, 0)
        self.errors: dict[str, NetworkError] = {}
        while self.loop.clock.now_ms() < DURATION_MS:
            for sink in sinks:
                if sink.is_available:
                    sink.emit(numbers(0, ROWS))
            for name, source in sources.items():
                rows[name] += 0 if source is None else self._take(name, source)
            self.loop.step()
        for sink in sinks:
            sink.close()
            sink.partition.release()
        return rows

    def _take(self, name: str, source: InputGate) -> int:
        taken = 0
        try:
            while name not in self.errors and (element := source.poll()) is not None:
                taken += element.batch.num_rows if isinstance(element, BatchElement) else 0
        except NetworkError as error:
            self.errors[name] = error
        return taken


def gate_of(cluster: Cluster, consumer: str, number: int) -> InputGate:
    """A gate that reads only partition `number`."""
    environment = (
        next((each for each in cluster.environments if each.name == consumer), None)
        or cluster.start(consumer)[0]
    )
    source = gate(environment, [cluster.location] * 2)
    source.channels[number].request()
    return source


def rate_alone() -> int:
    cluster = Cluster()
    good = gate_of(cluster, "good", 0)
    rows = cluster.rates({"good": good})["good"]
    good.close()
    cluster.assert_nothing_leaks()
    return rows


ALONE = rate_alone()


def test_the_road_is_what_limits_a_lone_consumer() -> None:
    possible = BYTES_PER_MS * DURATION_MS / (ROWS * 8) * ROWS
    assert 0.8 * possible < ALONE <= possible


def test_two_readers_of_one_connection_share_it() -> None:
    cluster = Cluster()
    sources = {str(number): gate_of(cluster, "good", number) for number in range(2)}
    rows = cluster.rates({**sources})
    assert all(0.45 * ALONE < each < 0.55 * ALONE for each in rows.values())
    for source in sources.values():
        source.close()
    cluster.assert_nothing_leaks()


def test_a_stalled_reader_costs_its_neighbour_on_the_same_connection_nothing() -> None:
    cluster = Cluster()
    good, stalled = gate_of(cluster, "good", 0), gate_of(cluster, "good", 1)
    rows = cluster.rates({"good": good, "stalled": None})
    # What the stalled one was granted at first took its time on the road, once.
    assert rows["good"] >= 0.9 * ALONE
    good.close()
    stalled.close()
    cluster.assert_nothing_leaks()


@pytest.mark.slow
@pytest.mark.parametrize("what", MISCHIEF)
def test_a_peer_that_breaks_the_rules_costs_others_nothing(what: str) -> None:
    cluster = Cluster(MISCHIEF[what])
    good, bad = gate_of(cluster, "good", 0), gate_of(cluster, "bad", 1)
    rows = cluster.rates({"good": good, "bad": bad})
    assert rows["good"] >= 0.9 * ALONE
    if what not in ("drips", "goes silent"):
        # It was disconnected, and told why.
        assert isinstance(cluster.errors["bad"], ConnectionLostError)
        assert "protocol violation by bad" in str(cluster.errors["bad"])
    good.close()
    bad.close()
    cluster.network.kill("bad")
    cluster.assert_nothing_leaks()

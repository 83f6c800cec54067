"""Signs of life: when they are sent, when a peer is given up, and what a half-open link comes to."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.security.hmac_handshake import Role
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.errors import ConnectionLostError
from headrace.network.gates.gate import InputGate
from headrace.network.trace.simulated_transport import LetArrive, Relay
from headrace.network.wire.keepalive import (
    PROGRESS_BYTES,
    KeepAlivePolicy,
    Liveness,
    LivenessAction,
)
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import gate, numbers, values_of, writer
from tests.unit.network.simulated import SimulatedCluster

SECOND = 1_000_000_000
POLICY = KeepAlivePolicy(10 * SECOND, 60 * SECOND)


def test_a_sign_of_life_is_due_after_an_interval_without_output() -> None:
    liveness = Liveness(POLICY, 0)
    assert liveness.due_ns == 10 * SECOND
    assert liveness.check(10 * SECOND - 1) is LivenessAction.NOTHING
    assert liveness.check(10 * SECOND) is LivenessAction.SEND
    assert liveness.check(11 * SECOND) is LivenessAction.NOTHING
    liveness.sent(12 * SECOND)
    assert liveness.due_ns == 22 * SECOND


def test_output_postpones_the_next_sign_of_life() -> None:
    liveness = Liveness(POLICY, 0)
    liveness.sent(9 * SECOND)
    assert liveness.check(10 * SECOND) is LivenessAction.NOTHING
    assert liveness.due_ns == 19 * SECOND


def test_a_silent_peer_is_given_up_after_the_timeout() -> None:
    liveness = Liveness(POLICY, 0)
    liveness.received(16, True, 30 * SECOND)
    assert liveness.check(90 * SECOND - 1) is not LivenessAction.GIVE_UP_SILENT
    assert liveness.check(90 * SECOND) is LivenessAction.GIVE_UP_SILENT


def test_a_peer_that_drips_single_bytes_of_one_frame_is_given_up() -> None:
    liveness = Liveness(POLICY, 0)
    for second in range(60):
        liveness.received(1, False, second * SECOND)
    assert liveness.check(60 * SECOND) is LivenessAction.GIVE_UP_SILENT


def test_a_large_body_on_its_way_is_a_sign_of_life() -> None:
    liveness = Liveness(POLICY, 0)
    for second in range(0, 600, 30):
        liveness.received(PROGRESS_BYTES, False, second * SECOND)
        assert liveness.check(second * SECOND) is not LivenessAction.GIVE_UP_SILENT


def test_a_peer_that_speaks_but_reads_nothing_is_given_up() -> None:
    liveness = Liveness(POLICY, 0)
    assert liveness.check(10 * SECOND) is LivenessAction.SEND
    for second in range(11, 70):
        liveness.received(16, True, second * SECOND)
        assert liveness.check(second * SECOND) is LivenessAction.NOTHING
    assert liveness.due_ns == 70 * SECOND
    assert liveness.check(70 * SECOND) is LivenessAction.GIVE_UP_STUCK


@given(st.lists(st.tuples(st.sampled_from(["sent", "received", "check"]), st.integers(0, 30))))
def test_one_sign_at_a_time_and_no_live_peer_is_given_up(steps: list[tuple[str, int]]) -> None:
    """`check` is called whenever it is due, as the shells do."""
    now, pending, received_at = 0, False, 0
    liveness = Liveness(POLICY, 0)
    for step, seconds in steps:
        until = now + seconds * SECOND
        while (due := max(now, liveness.due_ns)) <= until:
            now = due
            action = liveness.check(now)
            if action is LivenessAction.SEND:
                assert not pending
                pending = True
            elif action is LivenessAction.GIVE_UP_SILENT:
                assert now - received_at == 60 * SECOND
                return
            elif action is LivenessAction.GIVE_UP_STUCK:
                assert pending
                return
        now = until
        if step == "sent":
            liveness.sent(now)
            pending = False
        elif step == "received":
            liveness.received(20, True, now)
            received_at = now


def test_a_timeout_that_would_give_up_live_peers_is_refused() -> None:
    settings = Settings({"headrace.network.keepalive.timeout": "15 s"})
    with pytest.raises(ConfigurationError, match=r"twice 'headrace\.network\.keepalive\.interval'"):
        KeepAlivePolicy.from_settings(settings)
    assert KeepAlivePolicy.from_settings(Settings({})).timeout_ns == 60 * SECOND


class Mute:
    """Carries everything until told that one direction, or both, lead nowhere."""

    def __init__(self, deliver: LetArrive) -> None:
        self._deliver = deliver
        self.lost: set[Role] = set()
        self.byte_count = 0

    def carry(self, role: Role, data: bytes) -> None:
        self.byte_count += len(data)
        if role not in self.lost:
            self._deliver(role, data)


class MutedCluster(SimulatedCluster):
    """Two TaskManagers with signs of life; the consumer "b" dials."""

    def __init__(self, **options: str) -> None:
        self.relays: list[Mute] = []

        def create(dialler: str, acceptor: str, deliver: LetArrive) -> Relay:
            self.relays.append(Mute(deliver))
            return self.relays[-1]

        super().__init__(create_relay=create)
        options = {"headrace_network_keepalive_interval": "10 s"} | options
        self.producer, self.location = self.start("a", **options)
        self.consumer, _ = self.start("b", **options)

    def connect(self) -> tuple[RecordWriter, InputGate]:
        sink, source = writer(self.producer), gate(self.consumer, [self.location])
        source.request_partitions()
        sink.emit(numbers(0, 1))
        sink.flush_all()
        self.loop.run_for(100)
        element = source.poll()
        assert values_of([element] if element else []) == [0]
        return sink, source


@pytest.fixture
def cluster() -> Iterator[MutedCluster]:
    cluster = MutedCluster()
    yield cluster
    cluster.loop.run_for(100)
    for environment in (cluster.producer, cluster.consumer):
        assert environment.partitions.partition_count == 0


def is_connected(environment: CreditBasedShuffleEnvironment) -> bool:
    return bool(environment.transport._connections)  # type: ignore[attr-defined]


def test_an_idle_connection_lives_for_ever_on_a_few_bytes(cluster: MutedCluster) -> None:
    sink, source = cluster.connect()
    before = cluster.relays[0].byte_count
    hour = timedelta(hours=1) / timedelta(milliseconds=1)
    cluster.loop.run_for(hour)
    assert is_connected(cluster.producer)
    assert is_connected(cluster.consumer)
    assert 0 < cluster.relays[0].byte_count - before <= 2 * 360 * 16
    sink.emit(numbers(1, 1))
    sink.finish()
    sink.close()
    cluster.loop.run_for(100)
    element = source.poll()
    assert values_of([element] if element else []) == [1]
    source.poll()
    source.close()


@pytest.mark.parametrize("lost", [{Role.ACCEPTOR}, {Role.DIALLER}, {Role.ACCEPTOR, Role.DIALLER}])
def test_a_half_open_link_is_noticed_within_the_timeout(
    cluster: MutedCluster, lost: set[Role]
) -> None:
    sink, source = cluster.connect()
    cluster.relays[0].lost = lost
    cluster.loop.run_for(61_000)
    # Who still hears the other gives up when that one has.
    cluster.loop.run_for(61_000)
    assert not is_connected(cluster.consumer)
    assert not is_connected(cluster.producer)
    with pytest.raises(ConnectionLostError, match="task manager a was lost"):
        source.poll()
    source.close()
    # The consumer is gone: what is emitted is dropped, and the task can end.
    sink.emit(numbers(1, 1))
    sink.finish()
    sink.close()


def test_a_producer_that_went_silent_is_named_within_sixty_seconds(cluster: MutedCluster) -> None:
    sink, source = cluster.connect()
    cluster.relays[0].lost = {Role.ACCEPTOR}
    cluster.loop.run_for(59_000)
    assert source.poll() is None
    cluster.loop.run_for(1_100)
    with pytest.raises(ConnectionLostError, match="it has sent nothing for 60 s"):
        source.poll()
    source.close()
    cluster.loop.run_for(61_000)
    sink.close()


def test_without_an_interval_nobody_says_anything() -> None:
    cluster = MutedCluster(headrace_network_keepalive_interval="0 s")
    sink, source = cluster.connect()
    cluster.loop.run_all()
    assert is_connected(cluster.consumer)
    source.close()
    sink.close()
    cluster.assert_nothing_leaks()

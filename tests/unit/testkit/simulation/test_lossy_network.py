"""The lossy network as a policy: what it decides about single messages."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from headrace.rpc.loopback import LoopbackMessage, MessageKind
from testkit.simulation.lossy_network import LinkFaults, LossyNetwork


def message(source: str = "a", target: str = "b") -> LoopbackMessage:
    return LoopbackMessage(source, target, MessageKind.TELL, "endpoint", "method", 100)


def test_without_faults_everything_arrives_at_once() -> None:
    lossy = LossyNetwork(ManualClock(), Random(0))
    for _ in range(10):
        (delay_ms,) = lossy.decide(message())
        assert delay_ms < 0.1
    assert (lossy.delivered_count, lossy.lost_count) == (10, 0)


def test_loss_is_about_as_frequent_as_asked_for() -> None:
    lossy = LossyNetwork(ManualClock(), Random(0), LinkFaults(loss=0.3))
    outcomes = [lossy.decide(message()) for _ in range(1000)]
    assert 250 < outcomes.count(()) < 350 and lossy.lost_count == outcomes.count(())


def test_faults_of_a_link_hold_in_one_direction_only() -> None:
    lossy = LossyNetwork(ManualClock(), Random(0))
    lossy.set_link_faults("a", "b", LinkFaults(loss=1))
    assert lossy.decide(message("a", "b")) == () and lossy.decide(message("b", "a")) != ()
    lossy.set_link_faults("a", "b", None)
    assert lossy.decide(message("a", "b")) != ()
    lossy.set_faults(LinkFaults(loss=1))
    assert lossy.decide(message("b", "a")) == ()


def test_a_partition_cuts_groups_off_until_it_heals() -> None:
    lossy = LossyNetwork(ManualClock(), Random(0))
    lossy.partition({"a", "b"}, {"c"}, {"d"})
    reached = {
        (source, target)
        for source in "abcd"
        for target in "abcd"
        if source != target and lossy.decide(message(source, target))
    }
    assert reached == {("a", "b"), ("b", "a")}
    lossy.heal()
    lossy.cut("a", "b")
    assert lossy.decide(message("a", "b")) == () and lossy.decide(message("b", "a")) != ()
    lossy.heal()
    assert lossy.decide(message("a", "b")) != ()


@given(st.integers(), st.lists(st.floats(0, 5), min_size=1, max_size=30), st.floats(0, 1))
def test_messages_of_a_link_arrive_in_order_unless_reordering_is_asked_for(
    seed: int, pauses_ms: list[float], duplication: float
) -> None:
    clock = ManualClock()
    faults = LinkFaults(duplication=duplication, delay_max_ms=20)
    lossy = LossyNetwork(clock, Random(seed), faults)
    arrivals: list[float] = []
    for pause_ms in pauses_ms:
        clock.advance_ms(pause_ms)
        delays = lossy.decide(message())
        assert all(delay_ms >= 0 for delay_ms in delays)
        arrivals.append(clock.monotonic_ns() / 1_000_000 + delays[0])
    assert arrivals == sorted(arrivals)


def test_reordering_lets_messages_overtake() -> None:
    lossy = LossyNetwork(ManualClock(), Random(0), LinkFaults(reordering=1, delay_max_ms=20))
    delays = [lossy.decide(message())[0] for _ in range(20)]
    assert delays != sorted(delays)


def test_switching_one_fault_on_does_not_reshuffle_the_others() -> None:
    plain = LossyNetwork(ManualClock(), Random(3), LinkFaults(reordering=1, delay_max_ms=20))
    doubling = LossyNetwork(
        ManualClock(), Random(3), LinkFaults(reordering=1, delay_max_ms=20, duplication=0.5)
    )
    for _ in range(50):
        assert plain.decide(message())[0] == doubling.decide(message())[0]


@pytest.mark.parametrize(
    "faults", [{"loss": 1.5}, {"duplication": -1}, {"delay_min_ms": 5, "delay_max_ms": 1}]
)
def test_impossible_faults_are_refused(faults: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        LinkFaults(**faults)

"""Bytes in flight: they follow what the task takes in, without jumps and without chatter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.debloat import BufferDebloater

MIN, MAX = 1_000, 10_000_000
PERIOD_MS = 200


def debloater(samples: int = 20) -> BufferDebloater:
    return BufferDebloater(1000, samples, 25, MIN, MAX)


def feed(machine: BufferDebloater, bytes_per_s: float, periods: int) -> list[int]:
    """What is announced while the task takes in so much, always having more to take."""
    announced = [
        machine.recalculate(round(bytes_per_s * PERIOD_MS / 1000), PERIOD_MS, 1_000_000)
        for _ in range(periods)
    ]
    return [each for each in announced if each is not None]


@given(st.floats(5 * MIN, MAX / 5))
def test_a_steady_rate_is_met_within_the_threshold_and_then_nothing_is_said(rate: float) -> None:
    machine = debloater()
    feed(machine, rate, 200)
    assert machine.announced_bytes == pytest.approx(rate, rel=0.34)
    assert feed(machine, rate, 50) == []


def test_after_a_tenfold_drop_the_bytes_are_within_twice_the_target_in_25_periods() -> None:
    machine = debloater()
    feed(machine, 1_000_000, 200)
    feed(machine, 100_000, 25)
    assert machine.announced_bytes <= 2.3 * 100_000


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, PERIOD_MS)), max_size=100))
def test_bytes_stay_within_bounds_and_never_more_than_double(
    periods: list[tuple[int, int]],
) -> None:
    machine = debloater(samples=1)
    last = machine.announced_bytes
    for taken, active_ms in periods:
        announced = machine.recalculate(taken, active_ms, 0)
        if announced is not None:
            assert MIN <= announced <= MAX
            assert announced <= 2 * last / 0.75 + 1
            last = announced


def test_an_idle_gate_says_nothing() -> None:
    machine = debloater()
    assert machine.recalculate(0, 0, 0) is None
    assert machine.recalculate(0, PERIOD_MS, 0) is None
    assert machine.recalculate(5_000, 0, 0) is None
    assert machine.announced_bytes == MAX


def test_the_time_to_consume_is_what_waits_at_the_measured_rate() -> None:
    machine = debloater()
    machine.recalculate(20_000, 100, 50_000)
    assert machine.time_to_consume_ms == 250

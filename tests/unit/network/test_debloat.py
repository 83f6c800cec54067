"""Bytes in flight: they follow what the task takes in, without jumps and without chatter."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.network.debloat import BufferDebloater

MIN, MAX = 1_000, 10_000_000
PERIOD_MS = 200


def debloater(samples: int = 20) -> BufferDebloater:
    return BufferDebloater(1000, samples, 25, MIN, MAX)


def feed(
    machine: BufferDebloater, bytes_per_s: float, periods: int, waiting_bytes: int = 1_000_000
) -> list[int]:
    """What is announced while the task takes in so much, always having more to take."""
    announced = [
        machine.recalculate(round(bytes_per_s * PERIOD_MS / 1000), PERIOD_MS, waiting_bytes)
        for _ in range(periods)
    ]
    return [each for each in announced if each is not None]


@given(st.floats(MIN / 100, MAX * 100), st.sampled_from([0, 1, MAX]))
def test_a_steady_rate_is_met_within_the_threshold_and_then_nothing_is_said(
    rate: float, waiting_bytes: int
) -> None:
    machine = debloater()
    feed(machine, rate, 250, waiting_bytes)
    wanted = min(max(round(rate * PERIOD_MS / 1000) * 1000 / PERIOD_MS, MIN), MAX)
    if wanted in (MIN, MAX):
        # A bound is reached, not only approached.
        assert machine.announced_bytes == wanted
    else:
        assert machine.announced_bytes == pytest.approx(wanted, rel=0.34)
    assert feed(machine, rate, 50, waiting_bytes) == []


@given(st.floats(10 * MIN, MAX / 2))
def test_after_a_tenfold_drop_the_bytes_are_within_twice_the_target_in_about_25_periods(
    rate: float,
) -> None:
    machine = debloater()
    feed(machine, rate, 250)
    feed(machine, rate / 10, 25)
    # What is announced may be a quarter behind what is wanted.
    assert machine.announced_bytes <= 2 * 1.25 * rate / 10
    feed(machine, rate / 10, 5)
    assert machine.announced_bytes <= 2 * rate / 10 + 1


# Slow and fast ones, so that there is something to double.
TAKEN = st.one_of(st.integers(0, 1000), st.integers(0, 10**8))
PERIODS = st.lists(st.tuples(TAKEN, st.integers(0, PERIOD_MS)), max_size=100)


@given(PERIODS, st.sampled_from([1, 5, 20]))
@example([(500, 100), (10**8, 100)], 1)
def test_no_step_more_than_doubles_and_all_stay_within_bounds(
    periods: list[tuple[int, int]], samples: int
) -> None:
    # Without a threshold, each step is told.
    machine = BufferDebloater(1000, samples, 0, MIN, MAX)
    last = machine.announced_bytes
    for taken, active_ms in periods:
        announced = machine.recalculate(taken, active_ms, 0)
        if announced is not None:
            assert MIN <= announced <= MAX
            assert announced <= 2 * last + 1
            last = announced


@given(PERIODS, st.integers(1, 256), st.integers(1, 10_000))
def test_nothing_below_one_byte_is_ever_wanted(
    periods: list[tuple[int, int]], least: int, more: int
) -> None:
    machine = BufferDebloater(1000, 1, 25, least, least + more)
    for taken, active_ms in periods:
        announced = machine.recalculate(taken, active_ms, 0)
        assert announced is None or announced >= least


@pytest.mark.parametrize(
    ("percent", "untold", "told"), [(0, [], [1_010_000]), (25, [1_240_000, 760_000], [1_250_000])]
)
def test_what_changes_by_less_than_the_threshold_is_told_to_nobody(
    percent: int, untold: list[int], told: list[int]
) -> None:
    prefix = "taskmanager.network.memory.buffer-debloat."
    options = {f"{prefix}samples": "1", f"{prefix}threshold-percentages": str(percent)}
    machine = BufferDebloater.from_settings(Settings(options), MIN, MAX)

    def wish(in_flight_bytes: int) -> int | None:
        return machine.recalculate(in_flight_bytes * PERIOD_MS // 1000, PERIOD_MS, 0)

    assert wish(1_000_000) == 1_000_000
    assert [wish(each) for each in untold] == [None] * len(untold)
    assert machine.announced_bytes == 1_000_000
    assert [wish(each) for each in told] == told


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

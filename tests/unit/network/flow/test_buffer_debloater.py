"""Rows in flight: they follow what the task takes in, without jumps and without chatter."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.network.flow.buffer_debloater import (
    EDGE_SIDES,
    GROWTH_MAX,
    ROWS_AT_FIRST,
    UNLIMITED_ROWS,
    BufferDebloater,
    batch_rows,
)

MIN, MAX = 4, 10_000_000
PERIOD_MS = 200
TARGET_MS = 1000


def debloater(samples: int = 20) -> BufferDebloater:
    return BufferDebloater(TARGET_MS, samples, 25, MIN)


def feed(
    machine: BufferDebloater, rows_per_s: float, periods: int, waiting_rows: int = 1_000
) -> list[int]:
    """What is announced while the task takes in so much, always having more to take."""
    taken = round(rows_per_s * PERIOD_MS / 1000)
    announced = [machine.recalculate(taken, PERIOD_MS, waiting_rows, MAX) for _ in range(periods)]
    return [each for each in announced if each is not None]


@given(st.floats(10, MAX * 10), st.sampled_from([0, 1, MAX]))
def test_a_steady_rate_is_met_within_the_threshold_and_then_nothing_is_said(
    rate: float, waiting_rows: int
) -> None:
    machine = debloater()
    feed(machine, rate, 250, waiting_rows)
    wanted = max(round(rate * PERIOD_MS / 1000) * TARGET_MS / EDGE_SIDES / PERIOD_MS, MIN)
    if wanted == MIN or wanted >= MAX:
        # A bound is reached, not only approached.
        assert machine.announced_rows == (MIN if wanted == MIN else UNLIMITED_ROWS)
    elif wanted < 0.9 * MAX:
        assert machine.announced_rows == pytest.approx(wanted, rel=0.34, abs=2)
    assert feed(machine, rate, 50, waiting_rows) == []


@given(st.floats(1_000, MAX))
def test_after_a_tenfold_drop_the_rows_are_within_twice_the_target_in_about_25_periods(
    rate: float,
) -> None:
    machine = debloater()
    feed(machine, rate, 250)
    feed(machine, rate / 10, 25)
    # What is announced may be a quarter behind what is wanted.
    assert machine.announced_rows <= 2 * 1.25 * rate / 10 / EDGE_SIDES + 2
    feed(machine, rate / 10, 5)
    assert machine.announced_rows <= 2 * rate / 10 / EDGE_SIDES + 2


# Slow and fast ones, so that there is something to multiply.
TAKEN = st.one_of(st.integers(0, 1000), st.integers(0, 10**8))
PERIODS = st.lists(st.tuples(TAKEN, st.integers(0, PERIOD_MS)), max_size=100)


@given(PERIODS, st.sampled_from([1, 5, 20]))
@example([(500, 100), (10**8, 100)], 1)
def test_no_step_grows_beyond_its_factor_and_none_is_below_one_row_for_each_channel(
    periods: list[tuple[int, int]], samples: int
) -> None:
    # Without a threshold, each step is told.
    machine = BufferDebloater(TARGET_MS, samples, 0, MIN)
    last = machine.announced_rows
    for taken, active_ms in periods:
        announced = machine.recalculate(taken, active_ms, 0, 1 << 50)
        if announced is not None:
            assert announced >= MIN
            assert announced <= GROWTH_MAX * (last + 1)
            last = announced


def test_it_begins_with_few_rows_and_a_fast_task_is_limited_by_memory_alone_within_four_rounds() -> (
    None
):
    machine = debloater(samples=3)
    assert machine.announced_rows == ROWS_AT_FIRST
    assert machine.is_growing
    steps = [machine.recalculate(20_000, 2, 0, 100_000) for _ in range(4)]
    assert steps == [4 * ROWS_AT_FIRST, 16 * ROWS_AT_FIRST, 64 * ROWS_AT_FIRST, UNLIMITED_ROWS]
    assert machine.announced_rows == UNLIMITED_ROWS
    assert not machine.is_growing


def test_a_task_of_half_a_millisecond_a_row_never_has_more_than_its_share_of_the_target() -> None:
    machine = BufferDebloater(200, 3, 25, 1)
    for _ in range(20):
        machine.recalculate(40, 20, 100, 1_000_000)
    assert machine.announced_rows * 0.5 == pytest.approx(100, rel=0.34)
    # And a barrier waits for the fourth part of it at most.
    assert batch_rows(machine.announced_rows) * 0.5 <= 40
    assert not machine.is_growing


@pytest.mark.parametrize(
    ("percent", "untold", "told"), [(0, [], [4_040]), (25, [4_960, 3_040], [5_000])]
)
def test_what_changes_by_less_than_the_threshold_is_told_to_nobody(
    percent: int, untold: list[int], told: list[int]
) -> None:
    prefix = "taskmanager.network.memory.buffer-debloat."
    options = {
        f"{prefix}samples": "1",
        f"{prefix}target": "2 s",
        f"{prefix}threshold-percentages": str(percent),
    }
    machine = BufferDebloater.from_settings(Settings(options), MIN)

    def wish(in_flight_rows: int) -> int | None:
        return machine.recalculate(in_flight_rows, 1000, 0, MAX)

    assert wish(4_000) == 4_000
    assert [wish(each) for each in untold] == [None] * len(untold)
    assert machine.announced_rows == 4_000
    assert [wish(each) for each in told] == told


def test_an_idle_gate_says_nothing() -> None:
    machine = debloater()
    assert machine.recalculate(0, 0, 0, MAX) is None
    assert machine.recalculate(0, PERIOD_MS, 0, MAX) is None
    assert machine.recalculate(5_000, 0, 0, MAX) is None
    assert machine.announced_rows == ROWS_AT_FIRST


def test_the_time_to_consume_is_what_waits_at_the_measured_rate() -> None:
    machine = debloater()
    machine.recalculate(20_000, 100, 50_000, MAX)
    assert machine.time_to_consume_ms == 250

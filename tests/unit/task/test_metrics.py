"""Accounting of a task's time, with exact values on a manual clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from headrace.task.metrics import EdgeTimes, Occupation, TaskTimes

SHARES = ("busyTimeMsPerSecond", "idleTimeMsPerSecond", "backPressuredTimeMsPerSecond")


def test_the_shares_of_a_second_sum_to_a_thousand() -> None:
    clock = ManualClock()
    times = TaskTimes(clock)
    clock.advance_ms(250)
    times.occupy(Occupation.IDLE)
    clock.advance_ms(500)
    times.occupy(Occupation.BACK_PRESSURED)
    clock.advance_ms(250)
    values = times.snapshot()
    assert values["busyTimeMsPerSecond"] == 250
    assert values["idleTimeMsPerSecond"] == 500
    assert values["backPressuredTimeMsPerSecond"] == 250


def test_waiting_for_buffers_inside_emit_is_back_pressure() -> None:
    clock = ManualClock()
    times = TaskTimes(clock)
    clock.advance_ms(1000)
    times.hard_back_pressured(400 * 1_000_000)
    values = times.snapshot()
    assert values["busyTimeMsPerSecond"] == 600
    assert values["accumulateBackPressuredTimeMs"] == 400


def test_shares_describe_the_time_since_the_last_snapshot() -> None:
    clock = ManualClock()
    times = TaskTimes(clock)
    clock.advance_ms(1000)
    times.snapshot()
    times.occupy(Occupation.IDLE)
    clock.advance_ms(1000)
    values = times.snapshot()
    assert values["idleTimeMsPerSecond"] == 1000
    assert values["busyTimeMsPerSecond"] == 0
    assert values["accumulateBusyTimeMs"] == 1000


def test_a_task_is_active_for_exactly_as_long_as_it_is_not_idle_whatever_its_clock_began_with() -> (
    None
):
    # A clock that shows a week, to a tenth of a microsecond: a float of its milliseconds would be rounded.
    clock = ManualClock(7 * 24 * 3_600_000)
    clock.advance_ms(0.0001)
    times = TaskTimes(clock)
    times.occupy(Occupation.IDLE)
    clock.advance_ms(0.3)
    assert times.active_ms() == 0
    times.occupy(Occupation.BUSY)
    clock.advance_ms(0.25)
    assert times.active_ms() == 0.25
    times.occupy(Occupation.BACK_PRESSURED)
    clock.advance_ms(0.5)
    assert times.active_ms() == 0.75


SPANS = st.tuples(st.sampled_from(Occupation), st.integers(0, 5000), st.integers(0, 100))


@given(st.lists(SPANS, min_size=1, max_size=30), st.integers(1, 5))
def test_on_any_schedule_the_shares_are_exact_and_sum_to_a_thousand(
    spans: list[tuple[Occupation, int, int]], windows: int
) -> None:
    clock = ManualClock()
    times = TaskTimes(clock)
    for _ in range(windows):
        spent_ms = dict.fromkeys(Occupation, 0.0)
        soft_ms = hard_ms = longest_soft_ms = longest_hard_ms = 0.0
        for occupation, duration_ms, hard_percent in spans:
            times.occupy(occupation)
            clock.advance_ms(duration_ms)
            spent_ms[occupation] += duration_ms
            if occupation is Occupation.BUSY:
                waited_ms = duration_ms * hard_percent / 100
                times.hard_back_pressured(round(waited_ms * 1_000_000))
                spent_ms[Occupation.BUSY] -= waited_ms
                spent_ms[Occupation.BACK_PRESSURED] += waited_ms
                hard_ms += waited_ms
                longest_hard_ms = max(longest_hard_ms, waited_ms)
            elif occupation is Occupation.BACK_PRESSURED:
                soft_ms += duration_ms
        times.occupy(Occupation.IDLE)
        total_ms = sum(spent_ms.values())
        values = times.snapshot()
        if total_ms < 100:
            return
        for name, occupation in zip(
            SHARES, (Occupation.BUSY, Occupation.IDLE, Occupation.BACK_PRESSURED), strict=True
        ):
            assert values[name] == pytest.approx(1000 * spent_ms[occupation] / total_ms)
            assert 0 <= values[name] <= 1000
        assert sum(values[name] for name in SHARES) == pytest.approx(1000)
        assert values["softBackPressuredTimeMsPerSecond"] == pytest.approx(1000 * soft_ms / total_ms)  # fmt: skip
        assert values["hardBackPressuredTimeMsPerSecond"] == pytest.approx(1000 * hard_ms / total_ms)  # fmt: skip
        assert values["maxHardBackPressureTimeMs"] == pytest.approx(longest_hard_ms)
        assert longest_soft_ms <= values["maxSoftBackPressureTimeMs"] <= soft_ms


def test_a_task_that_is_blocked_all_the_time_shows_it() -> None:
    clock = ManualClock()
    times = TaskTimes(clock)
    times.occupy(Occupation.BACK_PRESSURED)
    for minute in range(1, 4):
        clock.advance_ms(60_000)
        values = times.snapshot()
        assert values["backPressuredTimeMsPerSecond"] >= 990
        assert values["isBackPressured"] == 1
        # The one wait that goes on, however often somebody asks.
        assert values["maxSoftBackPressureTimeMs"] == minute * 60_000
    times.occupy(Occupation.BUSY)
    clock.advance_ms(1000)
    values = times.snapshot()
    assert values["isBackPressured"] == 0
    assert values["backPressuredTimeMsPerSecond"] == 0
    assert values["maxSoftBackPressureTimeMs"] == 180_000
    clock.advance_ms(1000)
    assert times.snapshot()["maxSoftBackPressureTimeMs"] == 0


def test_the_output_that_holds_a_task_up_is_told_from_the_others() -> None:
    clock = ManualClock()
    edges = EdgeTimes(clock, 2)
    for index, duration_ms in ((0, 30), (1, 50), (1, 7), (None, 100), (0, 5)):
        edges.blame(index)
        clock.advance_ms(duration_ms)
    assert (edges.soft_ms(0), edges.soft_ms(1)) == (35, 57)

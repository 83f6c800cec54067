"""TimerGauge: exact values on synthetic schedules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metrics.timer_gauge import TimerGauge, busy_ms_per_second

MS = 1_000_000
PERIOD = 5_000 * MS


def test_nothing_measured_is_zero() -> None:
    gauge = TimerGauge(0)
    assert gauge.ms_per_second() == 0.0
    gauge.update(PERIOD)
    assert gauge.ms_per_second() == 0.0


def test_half_of_the_time_is_five_hundred() -> None:
    gauge = TimerGauge(0)
    gauge.mark_start(0)
    gauge.mark_end(PERIOD // 2)
    gauge.update(PERIOD)
    assert gauge.ms_per_second() == 500.0
    assert gauge.longest_single_ms() == 2_500
    assert gauge.accumulated_ms() == 2_500


def test_what_lasts_is_counted_across_updates() -> None:
    gauge = TimerGauge(0)
    gauge.mark_start(0)
    gauge.mark_start(1_000 * MS)
    for period in range(1, 13):
        gauge.update(period * PERIOD)
    assert gauge.is_measuring
    assert gauge.ms_per_second() == 1000.0
    assert gauge.longest_single_ms() == 60_000
    gauge.mark_end(12 * PERIOD)
    gauge.mark_end(13 * PERIOD)
    assert gauge.accumulated_ms() == 60_000


def test_only_the_last_minute_counts() -> None:
    gauge = TimerGauge(0)
    gauge.mark_start(0)
    gauge.update(PERIOD)
    gauge.mark_end(PERIOD)
    for period in range(2, 14):
        gauge.update(period * PERIOD)
    assert gauge.ms_per_second() == 0.0
    assert gauge.accumulated_ms() == 5_000


@given(
    st.lists(
        st.tuples(st.sampled_from(["idle", "back", "busy"]), st.integers(1, 3_000)), min_size=1
    )
)
def test_shares_of_any_schedule_sum_to_a_second(schedule: list[tuple[str, int]]) -> None:
    now = 0
    gauges = {name: TimerGauge(0, slot_count=1000) for name in ("idle", "back")}
    spent = {"idle": 0, "back": 0, "busy": 0}
    for what, length_ms in schedule:
        gauge = gauges.get(what)
        if gauge is not None:
            gauge.mark_start(now)
        now += length_ms * MS
        spent[what] += length_ms
        for each in gauges.values():
            each.update(now)
        if gauge is not None:
            gauge.mark_end(now)
    total_ms = now / MS
    for name, gauge in gauges.items():
        assert gauge.ms_per_second() == pytest.approx(1000 * spent[name] / total_ms)
    busy = busy_ms_per_second(gauges["idle"], gauges["back"])
    assert busy == pytest.approx(1000 * spent["busy"] / total_ms, abs=1e-6)

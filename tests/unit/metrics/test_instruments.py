"""Counter, Meter, Gauge, Distribution, Histogram."""

from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest

from headrace.core.clock import ManualClock
from headrace.metrics.instruments import Counter, Distribution, Gauge, Histogram, Meter, RateOf


def test_a_counter_goes_up_and_down() -> None:
    counter = Counter()
    counter.inc()
    counter.inc(5)
    counter.dec(2)
    assert counter.get_count() == 4
    assert counter.snapshot("c") == {"c": 4}


def test_a_meter_gives_events_per_second_since_it_was_made() -> None:
    clock = ManualClock()
    meter = Meter(clock)
    assert meter.get_rate() == 0.0
    meter.mark_event(10)
    clock.advance_ms(5_000)
    assert meter.get_rate() == 2.0
    assert meter.get_count() == 10


def test_a_meter_forgets_what_is_older_than_its_span() -> None:
    clock = ManualClock()
    meter = Meter(clock, time_span_in_seconds=10)
    meter.mark_event(1000)
    for _ in range(10):
        clock.advance_ms(1_000)
        meter.get_rate()
    meter.mark_event(50)
    clock.advance_ms(5_000)
    assert meter.get_rate() == 5.0
    clock.advance_ms(20_000)
    meter.get_rate()
    clock.advance_ms(20_000)
    assert meter.get_rate() == 0.0


def test_the_rate_of_a_count_begins_with_what_is_there_and_stands_still_once_it_is_gone() -> None:
    clock, counts = ManualClock(), [100]
    rate = RateOf(clock, lambda: counts[-1])
    assert rate.snapshot("r") == {"r": 0.0}
    clock.advance_ms(10_000)
    counts.append(150)
    assert rate.snapshot("r") == {"r": 5.0}
    counts.clear()
    clock.advance_ms(10_000)
    assert rate.snapshot("r") == {"r": 2.5}


def test_a_gauge_that_fails_has_no_value() -> None:
    assert Gauge(lambda: 7).snapshot("g") == {"g": 7}
    assert Gauge(lambda: 1 // 0).snapshot("g") == {}


def test_a_distribution_knows_sum_count_and_extremes() -> None:
    distribution = Distribution()
    assert distribution.snapshot("d") == {}
    for value in (5, -3, 8):
        distribution.update(value)
    assert distribution.snapshot("d") == {"d_sum": 10, "d_count": 3, "d_min": -3, "d_max": 8}


def test_a_histogram_tells_of_its_last_values() -> None:
    histogram = Histogram(4)
    assert histogram.snapshot("h") == {}
    for value in (100, 1, 2, 3, 4):
        histogram.update(value)
    values = histogram.snapshot("h")
    assert values["h_count"] == 5
    assert (values["h_min"], values["h_max"], values["h_mean"]) == (1, 4, 2.5)
    assert values["h_stddev"] == pytest.approx(1.2909944)
    # Place 0.5 * 5 = 2.5: half way between the second and the third; 0.9 * 5 lies beyond the last one.
    assert (values["h_median"], values["h_p75"], values["h_p90"]) == (2.5, 3.75, 4.0)
    assert set(values) == {
        f"h_{ending}"
        for ending in (
            "count", "min", "max", "mean", "stddev", "median", "p75", "p90", "p95", "p98", "p99", "p999",
        )
    }  # fmt: skip


def test_quantiles_of_many_values_are_near_their_share() -> None:
    histogram = Histogram(1000)
    for value in range(1000, 0, -1):
        histogram.update(value)
    values = histogram.snapshot("h")
    assert values["h_p99"] == pytest.approx(990.99)
    assert values["h_p999"] == pytest.approx(999.999)


def test_one_value_is_every_quantile() -> None:
    histogram = Histogram(8)
    histogram.update(7)
    assert set(histogram.snapshot("h").values()) == {1, 7, 0.0}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(np.uint8(200), 200), (np.float32(0.5), 0.5), (np.bool_(True), 1), (True, 1)],
)
def test_numbers_of_numpy_are_counted_and_measured_as_python_s(value: Any, expected: float) -> None:
    counter, distribution, histogram = Counter(), Distribution(), Histogram(10)
    for _ in range(3):
        counter.inc(value)
        distribution.update(value)
        histogram.update(value)
    counter.dec(value)
    values = {**counter.snapshot("c"), **distribution.snapshot("d"), **histogram.snapshot("h")}
    values |= Gauge(lambda: value).snapshot("g")
    assert (values["c"], values["d_sum"], values["h_max"]) == (2 * expected, 3 * expected, expected)
    assert values["g"] == expected
    # As a message has them, which holds no type of numpy's.
    assert msgspec.json.decode(msgspec.json.encode(values), type=dict[str, float]) == values


def test_what_is_no_number_is_refused_where_it_is_counted_and_no_value_of_a_gauge() -> None:
    for take in (
        Counter().inc,
        Counter().dec,
        Meter(ManualClock()).mark_event,
        Histogram(1).update,
    ):
        with pytest.raises(TypeError, match=r"needs a number, not Decimal\('1'\)"):
            take(Decimal(1))  # pyright: ignore[reportArgumentType]
    assert Gauge(lambda: "none").snapshot("g") == {}  # pyright: ignore[reportArgumentType]

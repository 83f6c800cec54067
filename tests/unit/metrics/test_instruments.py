"""Counter, Meter, Gauge, Distribution."""

from headrace.core.clock import ManualClock
from headrace.metrics.instruments import Counter, Distribution, Gauge, Meter, RateOf


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

"""The two readings of a clock, and the unit that the second also comes in."""

import pytest

from headrace.core.clock import Clock, ManualClock, SystemClock


def test_monotonic_milliseconds_are_the_nanoseconds_with_their_fraction() -> None:
    clock = ManualClock(start_ms=1_700_000_000_000)
    start_ms, start_ns = clock.monotonic_ms(), clock.monotonic_ns()
    clock.advance_ms(2.5)
    assert clock.monotonic_ms() - start_ms == 2.5
    assert clock.monotonic_ns() - start_ns == 2_500_000


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock(7)])
def test_both_units_read_the_same_monotonic_clock(clock: Clock) -> None:
    before_ns = clock.monotonic_ns()
    reading_ms = clock.monotonic_ms()
    after_ns = clock.monotonic_ns()
    assert before_ns / 1e6 <= reading_ms <= after_ns / 1e6

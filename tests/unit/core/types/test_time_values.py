"""Time, Duration, Instant: values, units, texts."""

from datetime import timedelta
from typing import Any

import pytest

from headrace.core.errors import ProgramError
from headrace.core.types.time_values import Duration, Instant, Time, to_millis


def test_equal_times_in_different_units_are_equal() -> None:
    assert Time.days(1) == Time.hours(24) == Time.minutes(1440) == Time.seconds(86_400)
    assert Time.seconds(3).to_milliseconds() == 3000
    assert str(Time.milliseconds(3000)) == "3000 ms"


def test_durations_are_equal_by_value() -> None:
    assert Duration.of_days(1) == Duration.of_hours(24) == Duration.of_minutes(1440)
    assert Duration.of_seconds(1) == Duration.of_millis(1000) == Duration.of_nanos(10**9)
    assert Duration.of_nanos(1_999_999).to_millis() == 1
    assert Duration.of_timedelta(timedelta(milliseconds=1.5)).to_nanos() == 1_500_000


def test_instants_before_the_epoch_round_towards_the_past() -> None:
    assert Instant.of_epoch_milli(-1) == Instant(-1, 999_000_000)
    assert Instant.of_epoch_milli(-1).to_epoch_milli() == -1
    assert repr(Instant.of_epoch_milli(1500)) == "Instant<1, 500000000>"


def test_any_amount_becomes_milliseconds() -> None:
    amounts = [Time.seconds(2), Duration.of_seconds(2), timedelta(seconds=2), 2000]
    assert {to_millis(amount) for amount in amounts} == {2000}


@pytest.mark.parametrize("amount", [None, "2 s", 2.5])
def test_what_is_no_amount_of_time_is_refused(amount: Any) -> None:
    with pytest.raises(ProgramError, match=r"an amount of time must be .*, not "):
        to_millis(amount)

"""Evictors: what they leave in the list of a window's records."""

import pickle
from datetime import timedelta
from typing import Any

import pytest

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.time_values import Time
from headrace.functions.evictors import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    TimeEvictor,
    TimestampedValue,
)
from headrace.functions.windowing.triggers import DeltaFunction
from headrace.functions.windows import TimeWindow

WINDOW = TimeWindow(0, 10)
NO_CONTEXT: Any = None


class Difference(DeltaFunction[int]):
    def get_delta(self, old_data_point: int, new_data_point: int) -> float:
        return new_data_point - old_data_point


def records(*timestamps: int) -> list[TimestampedValue]:
    return [TimestampedValue(timestamp, timestamp) for timestamp in timestamps]


def left_by(evictor: Evictor[Any, Any], *timestamps: int) -> tuple[list[int], list[int]]:
    """What `evict_before` leaves of records, and then `evict_after` of the same ones."""
    before, after = records(*timestamps), records(*timestamps)
    evictor.evict_before(before, len(before), WINDOW, NO_CONTEXT)
    evictor.evict_after(after, len(after), WINDOW, NO_CONTEXT)
    return [one.value for one in before], [one.value for one in after]


@pytest.mark.parametrize(
    ("evictor", "stays"),
    [
        (CountEvictor.of(2), [5, 2]),
        (CountEvictor.of(0), []),
        (CountEvictor.of(9), [1, 3, 5, 2]),
        (TimeEvictor.of(Time.milliseconds(3)), [3, 5]),
        (TimeEvictor.of(timedelta(milliseconds=4)), [3, 5, 2]),
        (DeltaEvictor.of(1, Difference()), [3, 5, 2]),
        (DeltaEvictor.of(0, lambda old, new: new - old), [3, 5]),
    ],
)
def test_evictors_act_before_the_function_unless_told_otherwise(
    evictor: Evictor[Any, Any], stays: list[int]
) -> None:
    untouched = [1, 3, 5, 2]
    assert left_by(evictor, *untouched) == (stays, untouched)


@pytest.mark.parametrize(
    "evictor",
    [
        CountEvictor.of(2, True),
        TimeEvictor.of(Time.milliseconds(3), True),
        DeltaEvictor.of(0, Difference(), True),
    ],
)
def test_evictors_may_act_after_the_function(evictor: Evictor[Any, Any]) -> None:
    before, after = left_by(evictor, 1, 3, 5, 2)
    assert before == [1, 3, 5, 2]
    assert len(after) == 2


def test_records_of_one_time_are_all_as_new_as_the_newest() -> None:
    assert left_by(TimeEvictor.of(Time.milliseconds(1)), 4, 4, 3) == ([4, 4], [4, 4, 3])


def test_without_timestamps_nothing_is_too_old() -> None:
    elements = [TimestampedValue("a", MIN_TIMESTAMP), TimestampedValue("b", MIN_TIMESTAMP)]
    assert not elements[0].has_timestamp()
    TimeEvictor.of(Time.milliseconds(1)).evict(elements)
    assert [one.value for one in elements] == ["a", "b"]


def test_nothing_is_evicted_from_nothing() -> None:
    for evictor in (CountEvictor.of(1), TimeEvictor(1), DeltaEvictor(1, Difference())):
        assert left_by(evictor) == ([], [])


def test_evictors_travel() -> None:
    evictor = pickle.loads(pickle.dumps(DeltaEvictor.of(1, Difference(), True)))
    assert left_by(evictor, 1, 3, 5, 2) == ([1, 3, 5, 2], [3, 5, 2])


def test_evictors_show_what_they_are() -> None:
    assert repr(CountEvictor.of(2)) == "CountEvictor(2)"
    assert repr(TimeEvictor.of(Time.seconds(1))) == "TimeEvictor(1000)"
    assert repr(DeltaEvictor.of(0.5, Difference())) == "DeltaEvictor(Difference, 0.5)"


def test_mistakes_are_errors_at_once() -> None:
    with pytest.raises(ValueError, match="CountEvictor must keep 0 or more records, not -1"):
        CountEvictor.of(-1)
    no_function: Any = 3
    with pytest.raises(TypeError, match="a DeltaFunction or a callable of two records is needed"):
        DeltaEvictor.of(1, no_function)


def test_a_window_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 0 ms, not -1 ms"):
        TimeEvictor.of(Time.milliseconds(-1))

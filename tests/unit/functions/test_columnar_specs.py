"""What columnar operators are made of: when windows are due, which key columns both sides of a join share."""

import pytest

from headrace.core.elements import MIN_TIMESTAMP
from headrace.functions.columnar_specs import EventTimeWindows, shared_key_columns

WINDOWS = EventTimeWindows(size=10, slide=10, offset=0)


def test_a_window_is_due_when_the_watermark_reaches_its_last_millisecond() -> None:
    assert WINDOWS.last_due(8) < 0
    assert WINDOWS.last_due(9) == 0
    assert WINDOWS.last_due(18) < 10


@pytest.mark.parametrize("watermark", [MIN_TIMESTAMP, MIN_TIMESTAMP + 5])
def test_before_the_first_watermark_no_window_is_due_and_nothing_overflows(watermark: int) -> None:
    assert WINDOWS.last_due(watermark) == MIN_TIMESTAMP


def test_key_columns_are_shared_by_name_and_place() -> None:
    assert shared_key_columns(("a", "x", "b"), ("a", "y", "b")) == {"a", "b"}
    assert shared_key_columns(("a", "b"), ("b", "a")) == frozenset()

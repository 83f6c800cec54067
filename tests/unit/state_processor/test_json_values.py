"""Values of state in JSON: what JSON has no word for is a text, and the same text is taken back."""

import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.state_processor.errors import JsonValueError
from headrace.state_processor.json_values import (
    EXACT_INTEGER_MAX,
    TEXT_LENGTH_MAX,
    json_values,
    shortened,
    values_of_json,
)

UTC_TIMES = pa.timestamp("us", tz="UTC")
PLACE = pa.struct([pa.field("city", pa.string()), pa.field("at", pa.list_(pa.float64()))])
SAMPLES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, True),
    (pa.int64(), 7, 7),
    (pa.int64(), EXACT_INTEGER_MAX + 1, "9007199254740992"),
    (pa.uint64(), 2**64 - 1, "18446744073709551615"),
    (pa.float64(), 1.5, 1.5),
    (pa.float64(), math.inf, "Infinity"),
    (pa.string(), "a", "a"),
    (pa.binary(), b"\x00\xff", "0x00ff"),
    (pa.decimal128(10, 2), decimal.Decimal("1.10"), "1.10"),
    (pa.date32(), datetime.date(2026, 1, 2), "2026-01-02"),
    (pa.time64("us"), datetime.time(1, 2, 3), "01:02:03"),
    (pa.timestamp("us"), datetime.datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),
    (UTC_TIMES, datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02T00:00:00+00:00"),
    (PLACE, {"city": "Köln", "at": [1.0, None]}, {"city": "Köln", "at": [1.0, None]}),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)], [["a", 1]]),
    (pa.int32(), None, None),
]
REFUSED: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), True),
    (pa.int64(), 1.5),
    (pa.int64(), "seven"),
    (pa.int8(), 300),
    (pa.int64(), 2**70),
    (pa.float64(), True),
    (pa.string(), 7),
    (pa.binary(), "00ff"),
    (pa.binary(), "0xz"),
    (pa.decimal128(10, 2), 1.1),
    (pa.decimal128(3, 2), "123456.78"),
    (pa.decimal128(10, 2), "NaN"),
    (pa.timestamp("us"), "yesterday"),
    (pa.timestamp("us"), 7),
    (PLACE, {"city": "Köln"}),
    (PLACE, {"city": "Köln", "at": [], "more": 1}),
    (PLACE, ["Köln", []]),
    (pa.list_(pa.int64()), 1),
    (pa.map_(pa.string(), pa.int64()), {"a": 1}),
    (pa.map_(pa.string(), pa.int64()), [["a"]]),
    (pa.duration("s"), 1),
]


@pytest.mark.parametrize(("kind", "value", "shown"), SAMPLES)
def test_a_value_is_shown_in_json_and_taken_back(kind: pa.DataType, value: Any, shown: Any) -> None:
    column = pa.array([value], kind)
    assert json_values(column) == [shown]
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert values_of_json([shown], kind, "the value") == column


def test_a_number_that_is_none_is_a_text() -> None:
    column = pa.array([math.nan], pa.float64())
    assert json_values(column) == ["NaN"]
    assert math.isnan(values_of_json(["NaN"], pa.float64(), "the value")[0].as_py())


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_a_value_of_another_type_is_refused(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(JsonValueError, match="the value") as refused:
        values_of_json([value], kind, "the value")
    assert refused.value.what.startswith("the value")


def test_times_that_python_has_no_calendar_for_are_shown_as_texts() -> None:
    column = pa.array([2**62, None], pa.timestamp("s"))
    (shown, missing) = json_values(column)
    assert isinstance(shown, str)
    assert missing is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_no_digit_of_a_whole_number_is_lost(value: int) -> None:
    column = pa.array([value], pa.int64())
    (shown,) = json_values(column)
    assert isinstance(shown, str) or abs(shown) <= EXACT_INTEGER_MAX
    assert values_of_json([shown], pa.int64(), "the value") == column


def test_the_beginning_of_a_long_value_is_shown() -> None:
    assert shortened([1, 2]) == ([1, 2], False)
    text, is_cut = shortened("x" * 3_000)
    assert (len(text) < TEXT_LENGTH_MAX + 30, is_cut, text.endswith("(3000 characters)")) == (
        True,
        True,
        True,
    )
    assert shortened([["x" * 3_000]])[1] is True

"""Parts of columnar operators: due windows, aggregates that can be sliced, key columns that sides share."""

import pyarrow as pa
import pytest

from headrace.core.elements import MIN_TIMESTAMP
from headrace.functions.specs.columnar_specs import (
    MERGEABLE_AGGREGATES,
    MERGEABLE_KEYS,
    EventTimeWindows,
    can_be_sliced,
    shared_key_columns,
)
from headrace.functions.specs.operator_specs import ColumnAggregate

TEXTS = {"string"}
SIGNED = {"int8", "int16", "int32", "int64"}
INTEGERS = SIGNED | {"uint8", "uint64"}
TRUTH_VALUES = {"bool"}
OTHERS = {"double", "timestamp[ms]", "binary"}
COLUMNS = pa.schema(
    [(name, name) for name in sorted(TEXTS | INTEGERS | TRUTH_VALUES | OTHERS - {"timestamp[ms]"})]
    + [("timestamp[ms]", pa.timestamp("ms"))]
)
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


def aggregates_that_can_be_sliced(function: str) -> set[str]:
    """Return the types of columns that it can be sliced over."""
    return {
        name
        for name in COLUMNS.names
        if can_be_sliced((ColumnAggregate(function, name, "made"),), (), COLUMNS)
    }


def test_aggregates_can_be_sliced_as_people_are_told() -> None:
    assert MERGEABLE_AGGREGATES == (
        "counts, counts of distinct texts, integers or truth values, "
        "and sums, means, minima and maxima of signed integers"
    )
    assert aggregates_that_can_be_sliced("count") == set(COLUMNS.names)
    assert aggregates_that_can_be_sliced("count_distinct") == TEXTS | INTEGERS | TRUTH_VALUES
    for function in ("sum", "mean", "min", "max"):
        assert aggregates_that_can_be_sliced(function) == SIGNED
    for function in ("first", "last", "quantile"):
        assert not aggregates_that_can_be_sliced(function)


def test_keys_can_be_sliced_by_as_people_are_told() -> None:
    assert MERGEABLE_KEYS == "per key of texts, integers or truth values"
    count = ColumnAggregate("count", None, "made")
    keys = {name for name in COLUMNS.names if can_be_sliced((count,), (name,), COLUMNS)}
    assert keys == TEXTS | INTEGERS | TRUTH_VALUES

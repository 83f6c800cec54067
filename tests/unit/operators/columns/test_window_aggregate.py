"""Built-in window aggregates: against the reference in plain Python, however cut, with nulls and late rows."""

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import UserCodeError
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TimestampTypeInfo, TypeInformation, Types
from headrace.functions.specs.operator_specs import ColumnAggregate, WindowAggregateSpec
from headrace.functions.windowing.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from headrace.operators.columns import window_results
from headrace.testing.operator_harness import (
    HarnessStep,
    OperatorHarness,
    Rows,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways
from tests.unit.operators.windowing.reference_triggers import AtTheEnd
from tests.unit.operators.windowing.window_reference import (
    Firing,
    Fixed,
    WindowReference,
)

INPUT = Types.ROW_NAMED(["key", "n", "x"], [Types.STRING(), Types.INT(), Types.DOUBLE()])
UTC = TimestampTypeInfo("UTC")
AGGREGATES = [
    (ColumnAggregate("count", None, "rows"), Types.LONG()),
    (ColumnAggregate("count", "x", "values"), Types.LONG()),
    (ColumnAggregate("sum", "n", "sum_n"), Types.LONG()),
    (ColumnAggregate("sum", "x", "sum_x"), Types.DOUBLE()),
    (ColumnAggregate("mean", "x", "mean_x"), Types.DOUBLE()),
    (ColumnAggregate("mean", "n", "mean_n"), Types.DOUBLE()),
    (ColumnAggregate("min", "x", "min_x"), Types.DOUBLE()),
    (ColumnAggregate("max", "n", "max_n"), Types.INT()),
    (ColumnAggregate("quantile", "x", "p80", 0.8), Types.DOUBLE()),
    (ColumnAggregate("quantile", "n", "median", 0.5), Types.DOUBLE()),
    (ColumnAggregate("first", "n", "first_n"), Types.INT()),
    (ColumnAggregate("last", "x", "last_x"), Types.DOUBLE()),
]


def _harness(
    assigner: Any,
    aggregates: Sequence[tuple[ColumnAggregate, TypeInformation]],
    input_type: Any = INPUT,
    key_columns: tuple[str, ...] = ("key",),
    lateness: int = 0,
    late_tag: str | None = None,
) -> OperatorHarness:
    key_types = [input_type.field_types[input_type.get_field_index(name)] for name in key_columns]
    names = [
        *key_columns,
        "window_start",
        "window_end",
        *(one.output_name for one, _ in aggregates),
    ]
    output_type = Types.ROW_NAMED(
        names, [*key_types, UTC, UTC, *(result for _, result in aggregates)]
    )
    spec = WindowAggregateSpec(
        assigner, lateness, late_tag, tuple(one for one, _ in aggregates), key_columns
    )
    return OperatorHarness(
        spec,
        input_types=[input_type],
        output_type=output_type,
        keys=[lambda row: tuple(row[name] for name in key_columns)],
        key_type=Types.TUPLE(key_types),
        side_types={"late": input_type},
    )


def _ms(time: datetime.datetime) -> int:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return round((time - epoch) / datetime.timedelta(milliseconds=1))


def _percentile(values: list[float], quantile: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    position = (len(ordered) - 1) * quantile
    lower, higher = math.floor(position), math.ceil(position)
    if lower == higher or ordered[lower] == ordered[higher]:
        return float(ordered[lower])
    return (higher - position) * ordered[lower] + (position - lower) * ordered[higher]


def _expected(firing: Firing) -> tuple[Any, ...]:
    """What the aggregates of a firing must be; values come as (n, x)."""
    key, (_, start, end), values = firing
    ns = [n for n, _ in values if n is not None]
    xs = [x for _, x in values if x is not None]
    total = 0.0
    for x in xs:
        total += x
    return (
        key,
        start,
        end,
        len(values),
        len(xs),
        sum(ns) if ns else None,
        total if xs else None,
        total / len(xs) if xs else None,
        sum(ns) / len(ns) if ns else None,
        min(xs, default=None),
        max(ns, default=None),
        _percentile(xs, 0.8),
        _percentile([float(n) for n in ns], 0.5),
        ns[0] if ns else None,
        xs[-1] if xs else None,
    )


RECORD = st.tuples(
    st.sampled_from(["a", "b", "ä"]),
    st.integers(-20, 60),
    st.none() | st.integers(-1000, 1000),
    st.none() | st.floats(-1e6, 1e6),
)
STEPS = st.lists(st.lists(RECORD, max_size=10) | st.integers(1, 15), max_size=10)


@pytest.mark.slow
@settings(max_examples=25)
@given(STEPS, st.integers(1, 12), st.integers(1, 12), st.sampled_from([0, 0, 7]))
def test_aggregates_are_those_of_the_reference_whatever_the_batches(
    steps: Any, size: int, slide: int, lateness: int
) -> None:
    assigner = SlidingEventTimeWindows(size, slide, 0)
    if size == slide:
        assigner = TumblingEventTimeWindows(size, 0)
    reference = WindowReference(Fixed(size, slide), AtTheEnd("event"), lateness)
    watermark = 0
    operator_steps: list[HarnessStep] = []
    expected: list[Any] = []
    for step in steps:
        if isinstance(step, int):
            watermark += step
            operator_steps.append(WatermarkAt(watermark))
            expected.extend(_expected(f) for f in _in_order(reference.advance(watermark)))
        elif step:
            rows = [Row(key=key, n=n, x=x) for key, _, n, x in step]
            operator_steps.append(Rows(rows, [ts for _, ts, _, _ in step]))
            for key, timestamp, n, x in step:
                expected.extend(_expected(f) for f in reference.record(key, (n, x), timestamp))
    expected.extend(_expected(f) for f in _in_order(reference.advance(MAX_WATERMARK)))
    harness = run_all_ways(
        lambda: _harness(assigner, AGGREGATES, lateness=lateness, late_tag="late"), operator_steps
    )
    rows = [(row[0], _ms(row[1]), _ms(row[2]), *row[3:]) for row in harness.output.rows]
    assert rows == expected
    assert [ts for _, ts in harness.output.timed_rows] == [row[2] - 1 for row in rows]
    assert [(row.n, row.x) for row in harness.output.side_rows("late")] == reference.late
    operator: Any = harness.operator
    assert operator._state.slots.live_slot_count == 0


def _in_order(firings: list[Firing]) -> list[Firing]:
    return sorted(firings, key=lambda firing: (firing[1], firing[0]))


def test_results_stand_in_order_of_window_and_key() -> None:
    harness = _harness(TumblingEventTimeWindows(10, 0), AGGREGATES[:1])
    rows = [Row(key=key, n=1, x=1.0) for key in "cabca"]
    harness.perform(Rows(rows, [15, 1, 2, 3, 12]))
    harness.perform(WatermarkAt(100))
    got = [(row.key, _ms(row.window_start), row["rows"]) for row in harness.output.rows]
    assert got == [("a", 0, 1), ("b", 0, 1), ("c", 0, 1), ("a", 10, 1), ("c", 10, 1)]


def test_several_key_columns_and_every_type_of_value() -> None:
    moment = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    day = datetime.date(2013, 1, 1)
    fields: list[tuple[str, TypeInformation, Any, Any]] = [
        ("text", Types.STRING(), "b", "a"),
        ("flag", Types.BOOLEAN(), True, False),
        ("day", Types.SQL_DATE(), day, day - datetime.timedelta(1)),
        ("moment", UTC, moment, moment - datetime.timedelta(1)),
        ("price", Types.BIG_DEC(), Decimal("2.50"), Decimal("1.25")),
        ("small", Types.SHORT(), 7, -7),
        ("single", Types.FLOAT(), 1.5, -1.5),
    ]
    input_type = Types.ROW_NAMED(
        ["a", "b", *(name for name, _, _, _ in fields)],
        [Types.STRING(), Types.INT(), *(value_type for _, value_type, _, _ in fields)],
    )
    aggregates = [
        (ColumnAggregate(function, name, f"{function}_{name}"), value_type)
        for name, value_type, _, _ in fields
        for function in ("min", "max", "first", "last")
        if not (name == "price" and function in ("min", "max"))  # carried as text, ordered as text
    ]
    rows = [
        Row("x", 1, *(big for _, _, big, _ in fields)),
        Row("x", 1, *(None for _ in fields)),
        Row("x", 1, *(small for _, _, _, small in fields)),
        Row("x", 2, *(None for _ in fields)),
    ]
    for row in rows:
        row.set_field_names(input_type.field_names)
    harness = run_all_ways(
        lambda: _harness(TumblingEventTimeWindows(10, 0), aggregates, input_type, ("a", "b")),
        [Rows(rows, [1, 2, 3, 4])],
    )
    filled, empty = harness.output.rows
    assert (filled[0], filled[1], empty[1]) == ("x", 1, 2)
    for name, _, big, small in fields:
        if name != "price":
            assert (filled[f"min_{name}"], filled[f"max_{name}"]) == (small, big)
        assert (filled[f"first_{name}"], filled[f"last_{name}"]) == (big, small)
    assert set(list(empty)[4:]) == {None}


def test_nan_is_larger_than_every_number() -> None:
    aggregates = [
        (ColumnAggregate(function, "x", function), Types.DOUBLE())
        for function in ("min", "max", "sum")
    ]
    rows = [Row(key="a", n=1, x=math.nan), Row(key="a", n=1, x=2.0), Row(key="b", n=1, x=math.nan)]
    harness = _harness(TumblingEventTimeWindows(10, 0), aggregates)
    harness.perform(Rows(rows, [1, 1, 1]))
    harness.perform(WatermarkAt(10))
    first, second = [[str(value) for value in row[3:]] for row in harness.output.rows]
    assert first == ["2.0", "nan", "nan"]
    assert second == ["nan", "nan", "nan"]


def test_late_rows_without_a_side_output_are_counted() -> None:
    harness = _harness(TumblingEventTimeWindows(10, 0), AGGREGATES)
    harness.perform(WatermarkAt(19))
    harness.perform(Rows([Row(key="a", n=1, x=1.0)] * 3, [9, 19, 20]))
    assert harness.metrics.snapshot() == {"numLateRecordsDropped": 2}


def test_late_rows_with_a_side_output_are_counted_too() -> None:
    harness = _harness(TumblingEventTimeWindows(10, 0), AGGREGATES, late_tag="late")
    harness.perform(WatermarkAt(19))
    harness.perform(Rows([Row(key="a", n=1, x=1.0)] * 3, [9, 19, 20]))
    assert len(harness.output.side_rows("late")) == 2
    assert harness.metrics.snapshot() == {"numLateRecordsDiverted": 2}


def test_rows_between_windows_are_not_late() -> None:
    harness = _harness(SlidingEventTimeWindows(2, 10, 0), AGGREGATES)
    harness.perform(Rows([Row(key="a", n=1, x=1.0)] * 2, [1, 5]))
    harness.finish()
    assert [row["rows"] for row in harness.output.rows] == [1]
    assert harness.metrics.snapshot() == {"numLateRecordsDropped": 0}


def test_rows_without_timestamps_are_refused() -> None:
    harness = _harness(TumblingEventTimeWindows(10, 0), AGGREGATES)
    with pytest.raises(UserCodeError, match=r"without a timestamp"):
        harness.perform(Rows([Row(key="a", n=1, x=1.0)]))


@pytest.mark.slow
def test_many_windows_that_end_at_once_leave_in_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_results, "TABLE_ROWS_MAX", 8192)
    harness = _harness(TumblingEventTimeWindows(10, 0), AGGREGATES[:1])
    rows = [Row(key=f"k{index}", n=1, x=1.0) for index in range(5000)]
    for start in (0, 10, 20):
        harness.perform(Rows(rows, [start] * 5000))
    harness.perform(WatermarkAt(100))
    assert [batch.num_rows for batch in harness.output.batches] == [10_000, 5000]


@pytest.mark.slow
def test_means_of_large_integers_do_not_wrap() -> None:
    longs = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
    means = [(ColumnAggregate("mean", "n", "mean"), Types.DOUBLE())]
    large = 2**63 - 1
    steps: list[HarnessStep] = [
        Rows([Row(key="a", n=n) for n in (large, large, large - 9, None)], [1, 2, 3, 4]),
        Rows([Row(key="b", n=n) for n in (-large, -large, 7)], [1, 2, 3]),
        WatermarkAt(5),
        Rows([Row(key="b", n=-large), Row(key="c", n=None)], [4, 4]),
        WatermarkAt(10),
    ]
    harness = run_all_ways(lambda: _harness(TumblingEventTimeWindows(10, 0), means, longs), steps)
    found = {row["key"]: row["mean"] for row in harness.output.rows}
    assert found == {"a": float(large), "b": pytest.approx((7 - 3 * large) / 4), "c": None}

"""Column expressions against the same computation on Python rows, nulls among them."""

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import coalesce, col, lit, when
from headrace.api.columns.expressions import Expression
from headrace.core.errors import ProgramError
from headrace.operators.columns.batch_functions import evaluate

INTEGERS = st.none() | st.integers(-(10**6), 10**6)
DIVISORS = st.none() | st.integers(-50, 50).filter(bool)
FLOATS = st.none() | st.floats(-1e6, 1e6)
TEXTS = st.none() | st.text(st.characters(max_codepoint=0x17F), max_size=6)
TRUTHS = st.none() | st.booleans()


def values(expression: Expression, **columns: pa.Array) -> list[Any]:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    (array,) = evaluate(batch, [expression.to_arrow()])
    return array.to_pylist()


def on_rows(function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """What `function` gives for each row; null where one of its arguments is."""
    return [None if None in row else function(*row) for row in zip(*columns, strict=True)]


def pairs(left: Any, right: Any) -> Any:
    return st.lists(st.tuples(left, right), min_size=1, max_size=8)


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@pytest.mark.slow
@pytest.mark.parametrize("operator", ARITHMETIC)
@settings(max_examples=25)
@given(rows=pairs(INTEGERS, DIVISORS))
def test_operators_on_integers_are_pythons(operator: str, rows: list[tuple[Any, Any]]) -> None:
    a, b = ([row[index] for row in rows] for index in (0, 1))
    columns = {"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64())}
    operate = ARITHMETIC[operator]
    assert values(operate(col("a"), col("b")), **columns) == on_rows(operate, a, b)
    assert values(operate(col("a"), 7), **columns) == on_rows(lambda x: operate(x, 7), a)
    assert values(operate(7, col("b")), **columns) == on_rows(lambda y: operate(7, y), b)


@pytest.mark.slow
@pytest.mark.parametrize("operator", ARITHMETIC)
@settings(max_examples=25)
@given(rows=pairs(FLOATS, FLOATS.filter(lambda number: number is None or abs(number) > 1e-3)))
def test_operators_on_floating_numbers_are_pythons(
    operator: str, rows: list[tuple[Any, Any]]
) -> None:
    a, b = ([row[index] for row in rows] for index in (0, 1))
    columns = {"a": pa.array(a, pa.float64()), "b": pa.array(b, pa.float64())}
    operate = ARITHMETIC[operator]
    assert values(operate(col("a"), col("b")), **columns) == on_rows(operate, a, b)


@pytest.mark.slow
@settings(max_examples=25)
@given(rows=pairs(INTEGERS, FLOATS))
def test_an_integer_meets_a_floating_number_in_64_bits(rows: list[tuple[Any, Any]]) -> None:
    a, b = ([row[index] for row in rows] for index in (0, 1))
    for integer in (pa.int32(), pa.int64()):
        columns = {"a": pa.array(a, integer), "b": pa.array(b, pa.float64())}
        assert values(col("a") + col("b"), **columns) == on_rows(lambda x, y: x + y, a, b)
        assert values(col("a") * 0.5, **columns) == on_rows(lambda x: x * 0.5, a)
    large = pa.array([2**53 - 1, 16_777_217])
    assert values(col("a") + 0.5, a=large) == [2**53 - 1 + 0.5, 16_777_217.5]
    assert values(col("a") / 2, a=pa.array([2**62 + 2**9])) == [(2**62 + 2**9) / 2]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.integers(0, 9)), min_size=1))
def test_integers_are_raised_to_integers(rows: list[tuple[Any, int]]) -> None:
    a, b = ([row[index] for row in rows] for index in (0, 1))
    columns = {"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64())}
    assert values(col("a") ** col("b"), **columns) == on_rows(lambda x, y: x**y, a, b)
    assert values(2 ** col("b"), **columns) == [2**exponent for exponent in b]


@pytest.mark.parametrize(
    ("expression", "divisor", "expected"),
    [
        (col("a") / col("b"), 0, math.inf),
        (col("a") / col("b"), 0.0, math.inf),
        (col("a") // col("b"), 0.0, math.nan),
        (col("a") % col("b"), 0.0, math.nan),
    ],
)
def test_floating_division_by_zero_is_no_error(
    expression: Expression, divisor: float, expected: float
) -> None:
    (result,) = values(expression, a=pa.array([1]), b=pa.array([divisor]))
    assert result == expected or (math.isnan(expected) and math.isnan(result))


@pytest.mark.parametrize(
    ("expression", "a", "b"),
    [
        (col("a") // col("b"), 1, 0),
        (col("a") % col("b"), 1, 0),
        (col("a") // col("b"), -(2**63), -1),
        (col("a") + col("b"), 2**63 - 1, 1),
        (col("a") * col("b"), 2**62, 2),
        (col("a") ** col("b"), 10, 19),
        (col("a") ** col("b"), 2, -1),
        (-col("a"), -(2**63), 0),
    ],
)
def test_integers_without_a_result_are_an_error(expression: Expression, a: int, b: int) -> None:
    with pytest.raises(pa.ArrowInvalid):
        values(expression, a=pa.array([a]), b=pa.array([b]))


def kleene_and(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if None in (a, b) else True


@settings(max_examples=25)
@given(rows=pairs(TRUTHS, TRUTHS))
def test_truth_values_follow_kleene(rows: list[tuple[Any, Any]]) -> None:
    a, b = ([row[index] for row in rows] for index in (0, 1))
    columns = {"a": pa.array(a, pa.bool_()), "b": pa.array(b, pa.bool_())}
    negated = on_rows(lambda x: not x, a)
    assert values(~col("a"), **columns) == negated
    both = [kleene_and(x, y) for x, y in rows]
    assert values(col("a") & col("b"), **columns) == both
    # De Morgan
    assert values(~(~col("a") | ~col("b")), **columns) == both


@settings(max_examples=25)
@given(st.lists(INTEGERS, min_size=1, max_size=8), st.lists(INTEGERS, max_size=3))
def test_is_in_is_the_in_of_sql(a: list[Any], candidates: list[Any]) -> None:
    found = values(col("a").is_in(candidates), a=pa.array(a, pa.int64()))
    for value, answer in zip(a, found, strict=True):
        if value is None:
            assert answer is None
        elif value in candidates:
            assert answer is True
        else:
            assert answer is (None if None in candidates else False)


@settings(max_examples=25)
@given(st.lists(st.tuples(INTEGERS, INTEGERS, INTEGERS), min_size=1, max_size=8))
def test_between_is_two_comparisons(rows: list[tuple[Any, Any, Any]]) -> None:
    a, low, high = ([row[index] for row in rows] for index in (0, 1, 2))
    columns = {
        name: pa.array(column, pa.int64())
        for name, column in zip("abc", (a, low, high), strict=True)
    }
    above = on_rows(lambda x, y: x >= y, a, low)
    below = on_rows(lambda x, y: x <= y, a, high)
    expected = [kleene_and(x, y) for x, y in zip(above, below, strict=True)]
    assert values(col("a").between(col("b"), col("c")), **columns) == expected


@settings(max_examples=25)
@given(st.lists(FLOATS, min_size=1, max_size=8), st.integers(0, 3))
def test_rounding_and_absolute_values_are_pythons(a: list[Any], digits: int) -> None:
    column = pa.array(a, pa.float64())
    assert values(col("a").abs(), a=column) == on_rows(abs, a)
    rounded = values(col("a").round(digits), a=column)
    for value, result in zip(a, rounded, strict=True):
        if value is None:
            assert result is None
        else:
            assert abs(result - value) <= 0.5 * 10**-digits + 1e-9


@pytest.mark.parametrize("value", [0.5, 1.5, 2.5, -0.5, -2.5])
def test_halves_are_rounded_away_from_zero(value: float) -> None:
    expected = float(Decimal(value).quantize(Decimal(1), ROUND_HALF_UP))
    assert values(col("a").round(), a=pa.array([value])) == [expected]
    assert values(col("a").round(-1), a=pa.array([15, -25, 14])) == [20, -30, 10]


@settings(max_examples=25)
@given(st.lists(TEXTS, min_size=1, max_size=8), st.text("aAxé ", max_size=2))
def test_texts_are_pythons(a: list[Any], part: str) -> None:
    column = pa.array(a, pa.string())
    assert values(col("a").length(), a=column) == on_rows(len, a)
    assert values(col("a").starts_with(part), a=column) == on_rows(lambda x: x.startswith(part), a)
    assert values(col("a").ends_with(part), a=column) == on_rows(lambda x: x.endswith(part), a)
    assert values(col("a").contains(part), a=column) == on_rows(lambda x: part in x, a)


@settings(max_examples=25)
@given(
    st.lists(st.none() | st.text(st.characters(max_codepoint=0x7E, min_codepoint=0x20)), min_size=1)
)
def test_letters_change_and_white_space_goes_as_in_python(a: list[Any]) -> None:
    column = pa.array(a, pa.string())
    assert values(col("a").lower(), a=column) == on_rows(str.lower, a)
    assert values(col("a").upper(), a=column) == on_rows(str.upper, a)
    assert values(col("a").strip(), a=column) == on_rows(str.strip, a)


@settings(max_examples=25)
@given(st.lists(st.tuples(TRUTHS, TRUTHS, INTEGERS), min_size=1, max_size=8))
def test_the_first_true_condition_decides(rows: list[tuple[Any, Any, Any]]) -> None:
    a, b, c = ([row[index] for row in rows] for index in (0, 1, 2))
    columns = {
        "a": pa.array(a, pa.bool_()),
        "b": pa.array(b, pa.bool_()),
        "c": pa.array(c, pa.int64()),
    }
    case = when(col("a"), 1).when(col("b"), col("c"))
    without_default = [1 if x else z if y else None for x, y, z in rows]
    assert values(case, **columns) == without_default
    with_default = [1 if x else z if y else -1 for x, y, z in rows]
    assert values(case.otherwise(-1), **columns) == with_default


@settings(max_examples=25)
@given(rows=pairs(INTEGERS, INTEGERS))
def test_coalesce_takes_the_first_value_that_is_there(rows: list[tuple[Any, Any]]) -> None:
    a, b = ([row[index] for row in rows] for index in (0, 1))
    columns = {"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64())}
    expected = [x if x is not None else y if y is not None else 0 for x, y in rows]
    assert values(coalesce(col("a"), col("b"), 0), **columns) == expected
    assert values(col("a").is_null(), **columns) == [x is None for x in a]
    assert values(col("a").is_not_null(), **columns) == [x is not None for x in a]


def test_coalesce_of_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="coalesce needs a value"):
        coalesce()


def test_a_function_that_arrow_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pyarrow.compute.modulo")
    with pytest.raises(ProgramError, match="has no function 'modulo'"):
        lit(1) % 2

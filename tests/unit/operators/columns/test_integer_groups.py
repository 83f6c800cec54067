"""Groups of integers by sorting: what Arrow's hash table makes of the same rows, or nothing at all."""

from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.operators.columns.integer_groups import (
    are_in_order,
    count_integers,
    group_codes,
    merge_integers,
)

MERGES = [("n", "sum"), ("m", "min"), ("o", "max")]
LONGS = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**40), 2**40]))


def table_of(rows: list[tuple[int, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 5
    types = [pa.int64(), pa.int32(), pa.int64(), pa.int32(), pa.int64()]
    arrays = [pa.array(column, one) for column, one in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["a", "b", "n", "m", "o"])


@given(
    st.lists(st.tuples(LONGS, st.integers(-2, 2), LONGS, st.integers(-9, 9), LONGS), min_size=1),
    st.integers(0, 8),
)
@example([(1, 0, 1, 1, 1), (1, 0, 2, -2, 2), (0, 1, 5, 5, 5)], 1)
@example([(-n % 7, n % 2, n, n - 9, -n) for n in range(40)], 8)
@example([((-n % 7) << 56, n % 3, n, n - 9, -n) for n in range(40)], 8)
def test_groups_come_in_order_and_are_those_of_a_hash_table(
    rows: list[tuple[int, ...]], cut: int
) -> None:
    whole = table_of(rows)
    table = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    expected = pa.TableGroupBy(table, ["a", "b"]).aggregate(MERGES)
    names = ["a", "b", "n", "m", "o"]
    expected = expected.rename_columns(names).sort_by([("a", "ascending"), ("b", "ascending")])
    merged = merge_integers(table, ["a", "b"], MERGES)
    assert merged is not None
    assert merged.schema == whole.schema
    assert merged.to_pylist() == expected.to_pylist()
    assert are_in_order(merged, ["a", "b"])
    assert are_in_order(table, ["a"]) == (
        table.column("a").to_pylist() == sorted(whole["a"].to_pylist())
    )


@given(
    st.lists(
        st.tuples(LONGS, st.one_of(st.none(), st.integers(-2, 2)), st.sampled_from("xy")),
        min_size=1,
    ),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True),
)
@example([(-(2**62), 1, "x"), (2**62, 1, "x"), (-(2**62), 1, "x")], ["b", "a"])
@example([(3, 1, "x"), (1, 2, "x"), (3, 1, "y")], ["a", "b"])
def test_codes_number_groups_by_their_first_row(
    rows: list[tuple[int, int | None, str]], by: list[str]
) -> None:
    a, b, c = zip(*rows, strict=True)
    table = pa.table({"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64()), "c": c})
    numbers: dict[tuple[Any, ...], int] = {}
    picked = [tuple(row["abc".index(name)] for name in by) for row in rows]
    expected = [numbers.setdefault(group, len(numbers)) for group in picked]
    codes, count = group_codes(table, by)
    assert (codes.tolist(), count) == (expected, len(numbers))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None], pa.int64()),
        pa.array(["x", "y"]),
        pa.array([1.5, 2.5]),
        pa.array([1, 2], pa.uint64()),
    ],
    ids=["a null", "text", "floating", "without a sign"],
)
def test_other_columns_are_left_to_arrow(column: Any) -> None:
    table = pa.table({"a": column, "n": [1, 2]})
    assert merge_integers(table, ["a"], [("n", "sum")]) is None
    assert merge_integers(table, ["n"], [("a", "min")]) is None
    assert not are_in_order(table, ["a"])


def test_what_64_bits_cannot_hold_together_and_no_rows_are_left_to_arrow() -> None:
    far = pa.table({"a": [-(2**62), 2**62], "b": [0, 1], "n": [1, 2]})
    assert merge_integers(far, ["a", "b"], [("n", "sum")]) is None
    assert merge_integers(far.slice(0, 0), ["b"], [("n", "sum")]) is None
    assert merge_integers(far, [], [("n", "sum")]) is None
    assert merge_integers(far, ["b"], [("n", "count")]) is None


@given(
    st.lists(st.tuples(st.integers(-5, 5), LONGS, st.integers(-2, 2)), min_size=1),
    st.integers(1, 9),
    st.sampled_from([-(2**63), -7, 2**62]),
    st.integers(0, 8),
)
@example([(0, 1, 1), (0, 1, 1), (-5, 1, 0)], 9, -7, 1)
@example([(0, 1, 1), (0, 2**40, 1), (5, 1, 0), (0, 1, 1)], 9, -7, 1)
def test_rows_are_counted_as_by_a_hash_table_unless_their_values_lie_far_apart(
    rows: list[tuple[int, int, int]], step: int, begin: int, cut: int
) -> None:
    groups = sorted((begin + (5 + place) * step, a, b) for place, a, b in rows)
    columns = [pa.array(column, pa.int64()) for column in zip(*groups, strict=True)]
    whole = pa.table(columns, names=["time", "a", "b"])
    table = pa.concat_tables([whole.slice(cut), whole.slice(0, cut)])
    counted = count_integers(table, ["time", "a", "b"], step)
    if counted is None:
        assert max(abs(a) for _, a, _ in rows) == 2**40
        return
    values, counts = counted
    found = list(zip(*(column.tolist() for column in values), counts.tolist(), strict=True))
    assert found == [(*group, len(list(same))) for group, same in groupby(groups)]


@pytest.mark.parametrize("column", [pa.array([1, None], pa.int64()), pa.array(["x", "y"])])
def test_rows_with_other_values_are_not_counted_in_a_table(column: Any) -> None:
    table = pa.table({"a": column, "n": [1, 2]})
    assert count_integers(table, ["n", "a"], 1) is None
    assert count_integers(table.slice(0, 0), ["n"], 1) is None
    assert count_integers(table, [], 1) is None
    far = pa.table({"a": [-(2**62), 2**62]})
    assert count_integers(far, ["a"], 1) is None

"""Lists of different values against Python's sets, of numbers that are near, far apart, and of no numbers at all."""

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.columns import partial_aggregates
from headrace.operators.columns.partial_aggregates import (
    cut_lists,
    lists_of_rows,
    merged_lists,
    piece_counts,
    piece_numbers,
)

TYPES = {
    pa.int64(): st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)),
    pa.int8(): st.integers(-128, 127),
    pa.string(): st.sampled_from(["", "a", "bc"]),
    pa.bool_(): st.booleans(),
    pa.uint64(): st.integers(0, 2**64 - 1),
}
GROUPS = 4


def column_of(values: list[Any], kind: pa.DataType, cut: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values[:cut], kind), pa.array(values[cut:], kind)])


def sets_of(lists: pa.Array) -> list[set[Any]]:
    found: list[list[Any]] = lists.to_pylist()
    assert all(len(one) == len(set(one)) for one in found)
    return [set(one) for one in found]


@given(st.data(), st.sampled_from(list(TYPES)))
def test_a_list_has_each_value_of_its_group_once(data: Any, kind: pa.DataType) -> None:
    drawn = st.tuples(st.integers(0, GROUPS - 1), st.none() | TYPES[kind])
    rows: list[tuple[int, Any]] = data.draw(st.lists(drawn, max_size=12))
    cut = data.draw(st.integers(0, len(rows)))
    codes = np.array([code for code, _ in rows], dtype=np.int64)
    made = lists_of_rows(column_of([value for _, value in rows], kind, cut), codes, GROUPS)
    assert made.type == pa.list_(kind)
    expected: list[set[Any]] = [set() for _ in range(GROUPS)]
    for code, value in rows:
        if value is not None:
            expected[code].add(value)
    assert sets_of(made) == expected


@given(st.data(), st.sampled_from(list(TYPES)))
def test_merged_lists_have_each_value_of_any_of_them_once(data: Any, kind: pa.DataType) -> None:
    drawn = st.tuples(st.integers(0, GROUPS - 1), st.lists(TYPES[kind], max_size=4))
    rows: list[tuple[int, list[Any]]] = data.draw(st.lists(drawn, max_size=6))
    cut = data.draw(st.integers(0, len(rows)))
    codes = np.array([code for code, _ in rows], dtype=np.int64)
    lists = column_of([values for _, values in rows], pa.list_(kind), cut)
    expected: list[set[Any]] = [set() for _ in range(GROUPS)]
    for code, values in rows:
        expected[code].update(values)
    assert sets_of(merged_lists(lists, codes, GROUPS)) == expected


@given(st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=5), st.integers(1, 4))
def test_pieces_of_a_list_are_short_and_make_it_up(lists: list[list[int]], longest: int) -> None:
    # A slice, whose values begin behind those of the row before it.
    column = column_of([[7], *lists], pa.list_(pa.int64()), 2).slice(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_aggregates, "VALUES_PER_ROW", longest)
        pieces = piece_counts([column])
        if pieces is None:
            assert all(len(one) <= longest for one in lists)
            return
        made: list[list[int]] = cut_lists(column, pieces).to_pylist()
    assert all(len(piece) <= longest for piece in made)
    begins = np.flatnonzero(piece_numbers(pieces) == 0).tolist()
    ends = [*begins[1:], len(made)]
    joined = [list(chain(*made[begin:end])) for begin, end in zip(begins, ends, strict=True)]
    assert joined == column.to_pylist()

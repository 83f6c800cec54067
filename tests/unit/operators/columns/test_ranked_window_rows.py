"""The first rows of their window in the order of some columns: both halves together, against plain Python."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.specs.columnar_specs import (
    END_OF_INPUT,
    ROWS,
    SLICE,
    EventTimeWindows,
    LocalRankedRowsSpec,
    RankedRows,
    RankedRowsSpec,
)
from headrace.operators.columns.window_rows import are_first
from headrace.testing.operator_harness import OperatorHarness, Rows, WatermarkAt
from headrace.testing.operator_ways import run_all_cuts, run_all_ways
from tests.unit.operators.columns.two_halves import second_steps, steps_of

COLUMNS = ["key", "n", "text", "id"]
TYPES = [Types.STRING(), Types.LONG(), Types.STRING(), Types.INT()]
ROW = Types.ROW_NAMED(COLUMNS, TYPES)
WITH_SLICE = Types.ROW_NAMED([*COLUMNS, SLICE, ROWS], [*TYPES, Types.LONG(), Types.LONG()])
TUMBLING = EventTimeWindows(10, 10, 3)
Drawn = tuple[str, int | None, str | None, int]
"""Key, n, text and event time."""


def halves(wanted: RankedRows) -> tuple[OperatorHarness, Any]:
    local = OperatorHarness(LocalRankedRowsSpec(wanted), input_types=[ROW], output_type=WITH_SLICE)

    def ranked() -> OperatorHarness:
        return OperatorHarness(
            RankedRowsSpec(wanted),
            input_types=[WITH_SLICE],
            output_type=ROW,
            keys=[lambda row: row["key"] if wanted.key_columns else row[SLICE]],
            key_type=Types.STRING() if wanted.key_columns else Types.LONG(),
        )

    return local, ranked


def row_of(number: int, drawn: Drawn) -> Row:
    return Row(key=drawn[0], n=drawn[1], text=drawn[2], id=number)


def sort_key(row: tuple[Any, ...], *, is_largest: bool) -> list[Any]:
    """Where a row of n, text and number comes: nulls last, then by arrival."""
    n, text, number = row
    places: list[Any] = []
    for value in (n, None if text is None else ord(text)):
        sign = -1 if is_largest else 1
        places.append((value is None, 0 if value is None else sign * value))
    return [*places, number]


def expected(
    batches: list[list[Drawn] | int], wanted: RankedRows
) -> dict[tuple[int, str], list[int]]:
    """Numbers of rows, in order, by window and key, with what comes too late left out."""
    watermark, number = -(2**62), 0
    groups: dict[tuple[int, str], list[tuple[Any, ...]]] = defaultdict(list)
    for batch in batches:
        if isinstance(batch, int):
            watermark = max(watermark, batch)
            continue
        for key, n, text, time in batch:
            start = 0 if wanted.windows is END_OF_INPUT else time - (time - 3) % 10
            if wanted.windows is END_OF_INPUT or start + 9 > watermark:
                groups[start, key if wanted.key_columns else ""].append((n, text, number))
            number += 1
    return {
        group: [
            number
            for *_, number in sorted(
                rows, key=lambda row: sort_key(row, is_largest=wanted.is_largest)
            )[: wanted.count]
        ]
        for group, rows in groups.items()
    }


def found(harness: OperatorHarness, wanted: RankedRows) -> dict[tuple[int, str], list[int]]:
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row, time in harness.output.timed_rows:
        assert (time is None) == (wanted.windows is END_OF_INPUT)
        start = 0 if time is None else time - 9
        groups[start, row["key"] if wanted.key_columns else ""].append(row["id"])
    return dict(groups)


BATCHES: list[list[Drawn] | int] = [
    [("a", 5, "x", 4), ("b", 7, None, 5), ("a", 7, "x", 6), ("a", None, "z", 12)],
    8,
    [("a", 7, "y", 12), ("a", 7, "x", 11), ("b", -(2**63), "x", 12), ("b", None, None, 25)],
    13,
    [("a", 99, "x", 4), ("b", 2**63 - 1, "y", 14), ("b", 1, "y", 25)],
    50,
]
KINDS = [
    (windows, keys, is_largest, count)
    for windows in (TUMBLING, END_OF_INPUT)
    for keys in ((), ("key",))
    for is_largest in (True, False)
    for count in (1, 2)
]


@pytest.mark.parametrize(("windows", "keys", "is_largest", "count"), KINDS[::5])
def test_ties_go_to_the_first_and_nulls_come_last(
    windows: EventTimeWindows, keys: tuple[str, ...], is_largest: bool, count: int
) -> None:
    wanted = RankedRows(windows, keys, ("n", "text"), is_largest, count)
    local, ranked = halves(wanted)
    harness = run_all_ways(ranked, second_steps(local, steps_of(BATCHES, row_of)))
    assert found(harness, wanted) == expected(BATCHES, wanted)


rows_drawn = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.one_of(st.none(), st.integers(-1, 1)),
        st.one_of(st.none(), st.sampled_from("xy")),
        st.integers(-10, 30),
    ),
    min_size=1,
    max_size=8,
)


@given(st.lists(st.one_of(rows_drawn, st.integers(-10, 30)), max_size=6), st.sampled_from(KINDS))
@example(BATCHES, (TUMBLING, ("key",), True, 2))
def test_random_rows_give_what_plain_python_gives(batches: list[Any], kind: Any) -> None:
    windows, keys, is_largest, count = kind
    wanted = RankedRows(windows, keys, ("n", "text"), is_largest, count)
    local, ranked = halves(wanted)
    harness = run_all_cuts(ranked, second_steps(local, steps_of(batches, row_of)))
    assert found(harness, wanted) == expected(batches, wanted)


def test_the_first_half_lets_few_rows_through_and_says_for_how_many_they_stand() -> None:
    local, _ = halves(RankedRows(TUMBLING, (), ("n",), True, 3))
    rows = [Row(key="a", n=n, text="", id=n) for n in range(100)]
    local.perform(Rows(rows, [3 + n % 10 for n in range(100)]))
    assert local.output.rows == []
    assert not local.snapshot().chunks
    assert [row["n"] for row in local.output.rows] == [97, 98, 99]
    assert sum(row[ROWS] for row in local.output.rows) == 100


def test_the_half_before_the_exchange_waits_for_many_rows_where_only_the_end_counts() -> None:
    local, _ = halves(RankedRows(END_OF_INPUT, (), ("n",), True, 1))
    local.perform(Rows([Row(key="a", n=1, text="", id=1)]))
    local.perform(WatermarkAt(1_000))
    assert local.output.rows == []
    local.perform(WatermarkAt(2**63 - 1))
    assert [row["n"] for row in local.output.rows] == [1]


def test_floating_numbers_are_ordered_with_nan_behind_all_others() -> None:
    values = pa.array([float("nan"), 1.5, None, float("-inf"), float("inf"), -0.5])
    rows = pa.table({"x": values, SLICE: [0] * 6})
    codes = np.zeros(6, dtype=np.int64)
    for count, expected_rows in ((1, [4]), (3, [1, 4, 5]), (4, [1, 3, 4, 5])):
        wanted = RankedRows(END_OF_INPUT, (), ("x",), True, count)
        assert np.flatnonzero(are_first(rows, wanted, codes, 1)).tolist() == expected_rows

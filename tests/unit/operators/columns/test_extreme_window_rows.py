"""Whole rows with the largest value of their window: both halves together, against plain Python."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.errors import UserCodeError
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.specs.columnar_specs import ROWS as STOOD_FOR
from headrace.functions.specs.columnar_specs import (
    SLICE,
    EventTimeWindows,
    ExtremeRows,
    ExtremeRowsSpec,
    LocalExtremeRowsSpec,
)
from headrace.operators.columns import window_rows
from headrace.state.columnar_rows import ColumnarRows, FrozenTables
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt
from headrace.testing.operator_ways import run_all_cuts, run_all_ways

ROW = Types.ROW_NAMED(["key", "n", "id"], [Types.STRING(), Types.LONG(), Types.INT()])
WITH_SLICE = Types.ROW_NAMED(
    ["key", "n", "id", SLICE, STOOD_FOR],
    [Types.STRING(), Types.LONG(), Types.INT(), Types.LONG(), Types.LONG()],
)
SIZE, OFFSET = 10, 3
Drawn = tuple[str, int | None, int]


def wanted(keys: tuple[str, ...], is_largest: bool) -> ExtremeRows:
    return ExtremeRows(EventTimeWindows(SIZE, SIZE, OFFSET), keys, "n", is_largest)


def local(keys: tuple[str, ...], is_largest: bool = True) -> OperatorHarness:
    return OperatorHarness(
        LocalExtremeRowsSpec(wanted(keys, is_largest)), input_types=[ROW], output_type=WITH_SLICE
    )


def extreme(keys: tuple[str, ...], is_largest: bool = True) -> OperatorHarness:
    return OperatorHarness(
        ExtremeRowsSpec(wanted(keys, is_largest)),
        input_types=[WITH_SLICE],
        output_type=ROW,
        keys=[lambda row: row["key"] if keys else row[SLICE]],
        key_type=Types.STRING() if keys else Types.LONG(),
    )


def second_steps(
    keys: tuple[str, ...], steps: list[HarnessStep], is_largest: bool = True
) -> list[HarnessStep]:
    harness = local(keys, is_largest)
    for step in steps:
        harness.perform(step)
    harness.finish()
    return [
        Rows([element[1]]) if element[0] == "row" else WatermarkAt(element[1])
        for element in harness.output.main
    ]


def expected_ids(
    batches: list[list[Drawn] | int], keys: tuple[str, ...], is_largest: bool
) -> dict[int, set[int]]:
    """Row numbers by window start, with what comes too late left out."""
    watermark, number = -(2**62), 0
    windows: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for batch in batches:
        if isinstance(batch, int):
            watermark = max(watermark, batch)
            continue
        for key, n, time in batch:
            start = time - (time - OFFSET) % SIZE
            if n is not None and start + SIZE - 1 > watermark:
                windows[start, key if keys else ""].append((n, number))
            number += 1
    found: dict[int, set[int]] = defaultdict(set)
    for (start, _), rows in windows.items():
        extreme_n = (max if is_largest else min)(n for n, _ in rows)
        found[start] |= {number for n, number in rows if n == extreme_n}
    return found


def late_count(batches: list[list[Drawn] | int]) -> int:
    """How many rows come when their window has fired."""
    watermark, count = -(2**62), 0
    for batch in batches:
        if isinstance(batch, int):
            watermark = max(watermark, batch)
        else:
            ends = [time - (time - OFFSET) % SIZE + SIZE - 1 for _, _, time in batch]
            count += sum(end <= watermark for end in ends)
    return count


def steps_of(batches: list[list[Drawn] | int]) -> list[HarnessStep]:
    steps: list[HarnessStep] = []
    watermark, number = -(2**62), 0
    for batch in batches:
        if isinstance(batch, int):
            if batch > watermark:
                watermark = batch
                steps.append(WatermarkAt(batch))
            continue
        rows = [
            Row(key=key, n=n, id=index) for index, (key, n, _) in enumerate(batch, start=number)
        ]
        number += len(batch)
        steps.append(Rows(rows, [time for _, _, time in batch]))
    return steps


def found_ids(harness: OperatorHarness) -> dict[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for row, time in harness.output.timed_rows:
        assert time is not None
        found[time - SIZE + 1].add(row["id"])
    return found


BATCHES: list[list[Drawn] | int] = [
    [("a", 5, 4), ("b", 7, 5), ("a", 7, 6), ("a", None, 12), ("b", 1, 25)],
    8,
    [("b", -4, 13), ("a", 7, 12), ("a", 2, 30)],
    13,
    [("a", 99, 4), ("b", -(2**63), 14), ("b", 2**63 - 1, 40)],
    50,
]


@pytest.mark.slow
@pytest.mark.parametrize("is_largest", [True, False])
@pytest.mark.parametrize("keys", [(), ("key",)])
def test_ties_stay_late_rows_and_nulls_do_not(keys: tuple[str, ...], is_largest: bool) -> None:
    steps = second_steps(keys, steps_of(BATCHES), is_largest)
    harness = run_all_ways(lambda: extreme(keys, is_largest), steps)
    assert found_ids(harness) == expected_ids(BATCHES, keys, is_largest)


batches_drawn = st.lists(
    st.one_of(
        st.lists(
            st.tuples(
                st.sampled_from("ab"),
                st.one_of(st.none(), st.integers(-2, 2)),
                st.integers(-20, 40),
            ),
            min_size=1,
            max_size=8,
        ),
        st.integers(-20, 40),
    ),
    max_size=8,
)


@given(batches_drawn, st.sampled_from([(), ("key",)]), st.booleans())
def test_random_rows_give_what_plain_python_gives(
    batches: list[Any], keys: tuple[str, ...], is_largest: bool
) -> None:
    steps = second_steps(keys, steps_of(batches), is_largest)
    harness = run_all_cuts(lambda: extreme(keys, is_largest), steps)
    assert found_ids(harness) == expected_ids(batches, keys, is_largest)


@given(batches_drawn, st.sampled_from([(), ("key",)]), st.booleans())
@example(BATCHES, (), True)
@example([14, [("a", None, 4), ("b", None, 5), ("a", 1, 14)]], ("key",), True)
def test_rows_that_the_first_half_leaves_out_are_counted_where_they_are_late(
    batches: list[Any], keys: tuple[str, ...], is_largest: bool
) -> None:
    harness = extreme(keys, is_largest)
    for step in second_steps(keys, steps_of(batches), is_largest):
        harness.perform(step)
    assert harness.metrics.counter("numLateRecordsDropped").get_count() == late_count(batches)


def test_the_first_half_lets_few_rows_through_and_keeps_none_over_a_barrier() -> None:
    harness = local(())
    harness.perform(
        Rows([Row(key="a", n=n, id=n) for n in range(100)], [n % 10 for n in range(100)])
    )
    assert harness.output.rows == []
    assert not harness.snapshot().chunks
    assert [row["n"] for row in harness.output.rows] == [92, 99]


def test_rows_without_event_time_are_refused() -> None:
    with pytest.raises(UserCodeError, match="timestamp"):
        local(()).perform(Rows([Row(key="a", n=1, id=1)]))


@pytest.mark.slow
def test_state_shrinks_to_the_rows_that_may_still_win() -> None:
    harness = extreme(())
    for number in range(3):
        rows = [Row(key="a", n=n, id=number, **{SLICE: 3, STOOD_FOR: 1}) for n in range(65_536)]
        harness.perform(Rows(rows))
    chunks = harness.snapshot().chunks
    assert sum(chunk.row_count for chunk in chunks) == 3


def test_batches_that_are_late_as_a_whole_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen: list[Callable[[], FrozenTables]] = []

    def watched(name: str, schema: pa.Schema, freeze: Callable[[], FrozenTables]) -> ColumnarRows:
        frozen.append(freeze)
        return ColumnarRows(name, schema, freeze)

    monkeypatch.setattr(window_rows, "ColumnarRows", watched)
    harness = extreme(())
    (tables,) = frozen
    harness.perform(Rows([Row(key="a", n=1, id=0, **{SLICE: 3, STOOD_FOR: 1})]))
    assert sum(table.num_rows for table in tables()()) == 1
    harness.perform(WatermarkAt(100))
    fired = len(tables()())
    for number in range(3):
        harness.perform(Rows([Row(key="a", n=number, id=number, **{SLICE: 3, STOOD_FOR: 1})]))
    assert harness.metrics.counter("numLateRecordsDropped").get_count() == 3
    assert len(tables()()) == fired

"""Different values, counted in slices that windows share, in sessions and up to the end, against plain Python."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.types.arrow_types import data_schema, type_info_from_schema
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TimestampTypeInfo, Types
from headrace.functions.specs.columnar_specs import (
    END_OF_INPUT,
    EventTimeWindows,
    LocalAggregateSpec,
    LocalSessionAggregateSpec,
    SessionAggregateSpec,
    SessionAggregation,
    SlicedAggregateSpec,
    SlicedAggregation,
)
from headrace.functions.specs.operator_specs import ColumnAggregate
from headrace.operators.columns import partial_aggregates
from headrace.state.keyed_chunks import read_tables
from headrace.testing.operator_harness import (
    HARNESS_KEY_GROUPS,
    MemorySnapshots,
    OperatorHarness,
    Rows,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_cuts, run_all_ways
from tests.unit.operators.columns.two_halves import second_steps, steps_of

ROW = Types.ROW_NAMED(["key", "n", "text"], [Types.STRING(), Types.LONG(), Types.STRING()])
UTC = TimestampTypeInfo("UTC")
AGGREGATES = (
    ColumnAggregate("count_distinct", "n", "numbers"),
    ColumnAggregate("count", None, "rows"),
    ColumnAggregate("count_distinct", "text", "texts"),
    ColumnAggregate("mean", "n", "mean"),
    ColumnAggregate("count_distinct", "key", "keys"),
)
RESULTS = [Types.LONG(), Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.LONG()]
NAMES = [one.output_name for one in AGGREGATES]
TIMES = ["window_start", "window_end"]
KINDS = {
    "tumbling": EventTimeWindows(10, 10, 3),
    "sliding": EventTimeWindows(10, 5, 0),
    "to the end": END_OF_INPUT,
}
Drawn = tuple[str, int | None, str | None, int]
Found = dict[tuple[str, int | None], tuple[Any, ...]]


def halves(kind: str, keys: tuple[str, ...]) -> tuple[OperatorHarness, Any]:
    aggregation = SlicedAggregation(KINDS[kind], keys, AGGREGATES)
    partial: Any = type_info_from_schema(aggregation.partial_schema(data_schema(ROW)))
    local = OperatorHarness(LocalAggregateSpec(aggregation), input_types=[ROW], output_type=partial)
    times = [] if kind == "to the end" else TIMES
    result = Types.ROW_NAMED(
        [*keys, *times, *NAMES], [*(Types.STRING() for _ in keys), *(UTC for _ in times), *RESULTS]
    )

    def sliced() -> OperatorHarness:
        return OperatorHarness(
            SlicedAggregateSpec(aggregation),
            input_types=[partial],
            output_type=result,
            keys=[lambda row: row["key"] if keys else row["$slice"]],
            key_type=Types.STRING() if keys else Types.LONG(),
        )

    return local, sliced


def row_of(number: int, drawn: Drawn) -> Row:
    return Row(key=drawn[0], n=drawn[1], text=drawn[2])


def counted(groups: dict[tuple[str, int | None], list[Drawn]]) -> Found:
    found: Found = {}
    for group, rows in groups.items():
        numbers = [n for _, n, _, _ in rows if n is not None]
        found[group] = (
            len(set(numbers)),
            len(rows),
            len({text for *_, text, _ in rows} - {None}),
            sum(numbers) / len(numbers) if numbers else None,
            len({key for key, *_ in rows}),
        )
    return found


def expected(kind: str, keys: tuple[str, ...], batches: list[list[Drawn] | int]) -> Found:
    windows = KINDS[kind]
    watermark = -(2**62)
    groups: dict[tuple[str, int | None], list[Drawn]] = defaultdict(list)
    for batch in batches:
        if isinstance(batch, int):
            watermark = max(watermark, batch)
            continue
        for row in batch:
            group = row[0] if keys else ""
            if kind == "to the end":
                groups[group, None].append(row)
                continue
            last = row[-1] - (row[-1] - windows.offset) % windows.slide
            for start in range(last, row[-1] - windows.size, -windows.slide):
                if start + windows.size - 1 > watermark:
                    groups[group, start].append(row)
    return counted(groups)


def found(harness: OperatorHarness, keys: tuple[str, ...]) -> Found:
    made: Found = {}
    for row, time in harness.output.timed_rows:
        start = None
        if time is not None:
            start = round(row["window_start"].timestamp() * 1000)
            assert time == round(row["window_end"].timestamp() * 1000) - 1
        group = row["key"] if keys else "", start
        assert group not in made
        made[group] = tuple(row[name] for name in NAMES)
    return made


BATCHES: list[list[Drawn] | int] = [
    [("a", 1, "x", 4), ("b", 1, None, 5), ("a", 1, "y", 6), ("a", None, "x", 12), ("a", 2, "x", 4)],
    8,
    [("a", 1, "x", 9), ("b", None, None, 11), ("a", 3, "x", 11), ("b", None, None, 25)],
    13,
    [("a", 1, "x", 14), ("b", 2, "y", 14), ("a", 7, "q", 1), ("b", 4, "y", 25)],
    50,
]
WAYS = [(kind, keys) for kind in KINDS for keys in (("key",), ()) if keys or kind != "sliding"]


@pytest.mark.parametrize(
    ("kind", "keys"), [("tumbling", ()), ("sliding", ("key",)), ("to the end", ("key",))]
)
def test_each_value_counts_once_however_it_came(kind: str, keys: tuple[str, ...]) -> None:
    local, sliced = halves(kind, keys)
    harness = run_all_ways(sliced, second_steps(local, steps_of(BATCHES, row_of)))
    assert found(harness, keys) == expected(kind, keys, BATCHES)


rows_drawn = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.one_of(st.none(), st.integers(0, 2)),
        st.one_of(st.none(), st.sampled_from("xy")),
        st.integers(-10, 30),
    ),
    min_size=1,
    max_size=8,
)
batches_drawn = st.lists(st.one_of(rows_drawn, st.integers(-10, 30)), max_size=6)


@given(st.sampled_from(WAYS), batches_drawn)
@example(("sliding", ("key",)), BATCHES)
def test_random_rows_give_what_plain_python_gives(way: Any, batches: list[Any]) -> None:
    local, sliced = halves(*way)
    harness = run_all_cuts(sliced, second_steps(local, steps_of(batches, row_of)))
    kind, keys = way
    assert found(harness, keys) == expected(kind, keys, batches)


@given(st.lists(rows_drawn, max_size=2), st.sampled_from([1, partial_aggregates.VALUES_PER_ROW]))
@example([batch for batch in BATCHES if isinstance(batch, list)], 1)
def test_sessions_count_each_value_once(batches: list[list[Drawn]], longest: int) -> None:
    gap = 4
    aggregation = SessionAggregation(gap, ("key",), AGGREGATES)
    partial: Any = type_info_from_schema(aggregation.partial_schema(data_schema(ROW)))
    local = OperatorHarness(
        LocalSessionAggregateSpec(aggregation), input_types=[ROW], output_type=partial
    )

    def sessions() -> OperatorHarness:
        return OperatorHarness(
            SessionAggregateSpec(aggregation),
            input_types=[partial],
            output_type=Types.ROW_NAMED(
                ["key", *TIMES, *NAMES], [Types.STRING(), UTC, UTC, *RESULTS]
            ),
            keys=[lambda row: row["key"]],
            key_type=Types.STRING(),
        )

    groups: dict[tuple[str, int | None], list[Drawn]] = {}
    for key in "ab":
        reach = start = None
        for row in sorted((row for batch in batches for row in batch), key=lambda row: row[-1]):
            if row[0] != key:
                continue
            if reach is None or row[-1] > reach:
                start = row[-1]
            groups.setdefault((key, start), []).append(row)
            reach = row[-1] + gap
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_aggregates, "VALUES_PER_ROW", longest)
        steps = second_steps(local, steps_of(list(batches), row_of))
        harness = run_all_cuts(sessions, steps)
    assert found(harness, ("key",)) == counted(groups)


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "to the end"])
def test_lists_that_are_cut_hold_the_same_values(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_aggregates, "VALUES_PER_ROW", 2)
    drawn: list[Drawn] = [("a", n, None if n % 3 else f"text {n}", n % 10) for n in range(9)]
    drawn += [("b", 1, "x", 5), ("b", None, None, 5)]
    batches: list[list[Drawn] | int] = [drawn, 8, [*drawn[:5], ("a", 100, "y", 9)], 50]
    local, sliced = halves(kind, ("key",))
    steps = second_steps(local, steps_of(batches, row_of))
    longest = max(
        len(row[name])
        for step in steps
        if isinstance(step, Rows)
        for row in step.values
        for name in ("$0", "$2", "$4")
    )
    assert longest == 2
    harness = run_all_ways(sliced, steps)
    assert found(harness, ("key",)) == expected(kind, ("key",), batches)


def lists_of(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row["$0"], row["$2"], row["$4"], row["$rows"]) for row in rows]


def stored_lists(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    tables = read_tables(harness.snapshot().chunks, MemorySnapshots(), range(HARNESS_KEY_GROUPS))
    return lists_of([row for table in tables for row in table.to_pylist()])


def test_a_stored_list_is_cut_and_its_first_piece_alone_stands_for_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local, sliced = halves("tumbling", ("key",))
    drawn: list[Drawn] = [("a", n, None, 0) for n in (5, 1, 3)]
    drawn.append(("a", 3, "x", 9))
    for step in steps_of([drawn], row_of):
        local.perform(step)
    local.finish()
    harness = sliced()
    harness.perform(Rows(local.output.rows))
    monkeypatch.setattr(partial_aggregates, "VALUES_PER_ROW", 2)
    assert stored_lists(harness) == [
        ([1, 3], [], ["a"], 3),
        ([5], [], [], 0),
        ([3], ["x"], ["a"], 1),
    ]


def test_what_is_kept_of_a_value_is_one_place_in_a_list_however_often_it_comes() -> None:
    local, sliced = halves("tumbling", ("key",))
    rows: list[Drawn] = [("a", 1, None, 4), ("a", 2, None, 5)]
    step, earlier = steps_of([rows * 10, [("a", 1, "x", 0)]], row_of)
    local.perform(step)
    local.finish()
    assert lists_of(local.output.rows) == [([1, 2], [], ["a"], 20)]
    local.perform(earlier)
    local.finish()
    harness = sliced()
    for _ in range(5):
        harness.perform(Rows(local.output.rows))
    assert sum(chunk.row_count for chunk in harness.snapshot().chunks) == 5 * 2
    # Only when a window fires, or there are many, is what came brought together.
    harness.perform(WatermarkAt(2))
    assert [row["rows"] for row in harness.output.rows] == [5]
    assert stored_lists(harness) == [([1, 2], [], ["a"], 100)]

"""Aggregates in two halves: together they are the plain operator, however rows were cut, restored and rescaled."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import UserCodeError
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_types import data_schema, type_info_from_schema
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.specs.columnar_specs import (
    TIME_LIMIT_MS,
    EventTimeWindows,
    LocalAggregateSpec,
    SlicedAggregateSpec,
    SlicedAggregation,
    can_be_sliced,
)
from headrace.functions.specs.operator_specs import ColumnAggregate
from headrace.state.evolution import StateIncompatibleError
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt
from headrace.testing.operator_ways import run_all_cuts, run_all_ways
from tests.unit.operators.columns.sliced_halves import (
    AGGREGATES,
    KINDS,
    ROW,
    UTC,
    local,
    partials_of,
    plain,
    records,
    sliced,
    steps_from,
)

STEPS: list[HarnessStep] = [
    records(("a", 1, 1), ("b", 5, 2), ("a", None, 14), ("a", 7, 3)),
    WatermarkAt(6),
    records(("b", None, 8), ("c", None, 9), ("a", 2, 21)),
    WatermarkAt(9),
    records(("b", 4, 1), ("a", -3, 16), ("é", 2**53 + 1, 16), ("é", 1, 19)),
    WatermarkAt(30),
    records(("a", 1, 44)),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_both_halves_together_are_the_plain_operator(kind: str) -> None:
    expected = plain(kind)
    for step in STEPS:
        expected.perform(step)
    expected.finish()
    second = run_all_ways(lambda: sliced(kind), partials_of(kind, STEPS))
    assert second.output.main == expected.output.main
    late = [harness.metrics.counter("numLateRecordsDropped") for harness in (second, expected)]
    assert late[0].get_count() == late[1].get_count()


def test_whole_numbers_as_keys_give_what_texts_give() -> None:
    texts = counted(ROW, Types.STRING(), STEPS)
    numbers_row = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])
    numbers = counted(numbers_row, Types.LONG(), [as_numbers(step) for step in STEPS])
    assert numbers == [(ord(key), *rest) for key, *rest in texts]


def counted(row_type: Any, key_type: Any, steps: list[HarnessStep]) -> list[tuple[Any, ...]]:
    """Rows of sliding windows with counts per key."""
    aggregates = tuple(one for one in AGGREGATES if one.column is None)
    halves = SlicedAggregation(EventTimeWindows(*KINDS["sliding"]), ("key",), aggregates)
    partial: Any = type_info_from_schema(halves.partial_schema(data_schema(row_type)))
    first = OperatorHarness(LocalAggregateSpec(halves), input_types=[row_type], output_type=partial)
    names = ["key", "window_start", "window_end", "rows"]

    def second() -> OperatorHarness:
        return OperatorHarness(
            SlicedAggregateSpec(halves),
            input_types=[partial],
            output_type=Types.ROW_NAMED(names, [key_type, UTC, UTC, Types.LONG()]),
            keys=[lambda row: row["key"]],
            key_type=key_type,
        )

    for step in steps:
        first.perform(step)
    first.finish()
    harness = run_all_ways(second, steps_from(first))
    return [tuple(row) for row in harness.output.rows]


def as_numbers(step: HarnessStep) -> HarnessStep:
    """The same step with whole numbers as keys, in the same order."""
    if not isinstance(step, Rows):
        return step
    return Rows([Row(key=ord(row.key), n=row.n) for row in step.values], step.timestamps)


rows_drawn = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.one_of(st.none(), st.integers(-5, 5)),
        st.integers(-30, 60),
    ),
    min_size=1,
    max_size=8,
)
steps_drawn = st.lists(st.one_of(rows_drawn, st.integers(-30, 60)), max_size=8)


@pytest.mark.slow
@given(st.sampled_from(list(KINDS)), steps_drawn)
def test_random_steps_give_what_the_plain_operator_gives(kind: str, drawn: list[Any]) -> None:
    steps: list[HarnessStep] = []
    watermark = -(2**62)
    for one in drawn:
        if isinstance(one, list):
            steps.append(records(*one))
        elif one > watermark:
            watermark = one
            steps.append(WatermarkAt(one))
    expected = plain(kind)
    for step in steps:
        expected.perform(step)
    expected.finish()
    second = run_all_cuts(lambda: sliced(kind), partials_of(kind, steps))
    assert second.output.main == expected.output.main


LARGE = [1_700_000_000_000_000_000 + 10**14 * n for n in range(10)]
ENDS = [2**63 - 1, 2**63 - 1, -(2**63)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_means_do_not_wrap_however_partial_results_are_merged_and_restored(kind: str) -> None:
    numbers = {"a": LARGE, "b": [-n for n in LARGE], "c": ENDS, "d": [-1, -2, 2**62]}
    rows = [(key, n, 6) for key, values in numbers.items() for n in values]
    # No window ends before the input does.
    steps: list[HarnessStep] = [records(*rows[:7]), WatermarkAt(6), records(*rows[7:20])]
    steps += [WatermarkAt(7), records(*rows[20:]), records(("a", None, 6), ("e", None, 6))]
    second = run_all_ways(lambda: sliced(kind), partials_of(kind, steps))
    expected = {key: sum(values) / len(values) for key, values in numbers.items()}
    means = [(row["key"], row["mean"]) for row in second.output.rows]
    assert {key for key, mean in means if mean is None} == {"e"}
    assert {key for key, mean in means if mean is not None} == set(expected)
    for key, mean in means:
        if mean is not None:
            assert mean == pytest.approx(expected[key], rel=2**-52, abs=0)
    whole = plain(kind)
    for step in steps:
        whole.perform(step)
    whole.finish()
    assert second.output.main == whole.output.main


def test_windows_that_fired_before_a_restart_do_not_fire_again_beside_slices_that_live_on() -> None:
    harness = sliced("sliding")
    for step in partials_of("sliding", [records(("a", 1, 6)), WatermarkAt(9)])[:-1]:
        harness.perform(step)
    assert [row["window_start"].timestamp() for row in harness.output.rows] == [0.0]
    # Event time begins anew, as on a subtask that gets the keys of one that was ahead.
    stored = harness.snapshot()
    harness.watermark_ms = -(2**63)
    harness.restart(stored)
    harness.perform(WatermarkAt(20))
    assert [row["sum"] for row in harness.output.rows] == [1, 1]
    assert harness.output.rows[1]["window_start"].timestamp() == 0.005


def test_partial_results_go_out_before_a_barrier_and_nothing_is_kept() -> None:
    harness = local("tumbling")
    harness.perform(records(("a", 1, 1), ("a", 2, 2)))
    assert harness.output.rows == []
    assert not harness.snapshot().chunks
    assert [row["$rows"] for row in harness.output.rows] == [2]


@pytest.mark.slow
def test_many_rows_do_not_wait_for_a_watermark() -> None:
    harness = local("tumbling")
    for _ in range(3):
        harness.perform(Rows([Row(key="a", n=1)] * 65_536, [1] * 65_536))
    assert [row["$rows"] for row in harness.output.rows] == [131_072]


def test_rows_without_event_time_are_refused() -> None:
    with pytest.raises(UserCodeError, match="timestamp"):
        local("tumbling").perform(Rows([Row(key="a", n=1)]))


def test_an_aggregate_that_was_not_stored_is_named_with_what_was() -> None:
    harness = sliced("tumbling")
    harness.perform(partials_of("tumbling", [records(("a", 1, 1))])[0])
    stored = harness.snapshot()
    fewer = SlicedAggregation(EventTimeWindows(10, 10, 0), ("key",), AGGREGATES[:1])
    other = OperatorHarness(
        SlicedAggregateSpec(fewer),
        input_types=[type_info_from_schema(fewer.partial_schema(data_schema(ROW)))],
        output_type=Types.ROW_NAMED(
            ["key", "window_start", "window_end", "rows"], [Types.STRING(), UTC, UTC, Types.LONG()]
        ),
        keys=[lambda row: row["key"]],
        key_type=Types.STRING(),
    )
    with pytest.raises(StateIncompatibleError, match="sliced-aggregates"):
        other.restart(stored)


@pytest.mark.parametrize("function", ["first", "last", "quantile"])
def test_aggregates_that_depend_on_the_order_of_rows_are_not_halved(function: str) -> None:
    assert not can_be_sliced((ColumnAggregate(function, "n", "x"),), ("key",), data_schema(ROW))


def test_sums_of_floating_numbers_are_not_halved_as_their_order_shows() -> None:
    columns = data_schema(Types.ROW_NAMED(["key", "x"], [Types.STRING(), Types.DOUBLE()]))
    assert not can_be_sliced((ColumnAggregate("sum", "x", "sum"),), ("key",), columns)
    assert not can_be_sliced((ColumnAggregate("count", None, "n"),), ("x",), columns)
    assert can_be_sliced((ColumnAggregate("count", "x", "n"),), ("key",), columns)


@pytest.mark.parametrize("sign", [1, -1])
def test_windows_fire_as_far_from_1970_as_a_column_of_times_reaches(sign: int) -> None:
    far = sign * (TIME_LIMIT_MS - 10)
    harness, emitted = sliced("tumbling"), list[RecordBatch]()
    harness.output.emit = emitted.append  # Python's own times, of rows, end with the year 9999
    for step in partials_of("tumbling", [records(("a", 1, far))]):
        harness.perform(step)
    harness.finish()
    (columns,) = [batch.columns() for batch in emitted]
    extent = [
        columns.column(name).cast(pa.int64())[0].as_py() for name in ("window_start", "window_end")
    ]
    assert extent == [1000 * time for time in [far - far % 10, far - far % 10 + 10]]
    with pytest.raises(
        UserCodeError, match=f"event time {far + 10 * sign} cannot be put into windows"
    ):
        far += 10 * sign
        partials_of("tumbling", [records(("a", 1, far))])

"""Columnar state and timers of operators, read while they run: as a snapshot of the same moment has them."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace.checkpoint.handles import StateTable
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.process import KeyedProcessFunction
from headrace.functions.specs.operator_specs import KeyedProcessSpec, WindowAggregateSpec
from headrace.functions.windowing.assigners import SlidingEventTimeWindows
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt
from tests.unit.operators.columns import row_join_harness as row_joins
from tests.unit.operators.columns import session_halves as session
from tests.unit.operators.columns import sliced_halves as sliced
from tests.unit.state.live_reading import opened, shown, stored, tables_of

DRAWN: list[list[tuple[str, int | None, int]] | int] = [
    [("a", 1, 1), ("b", None, 3), ("a", 2, 5), ("c", 7, 26)],
    4,
    [("b", 5, 12), ("a", 4, 17), ("d", 1, 21)],
]


def aggregates() -> tuple[OperatorHarness, list[HarnessStep]]:
    harness = OperatorHarness(
        WindowAggregateSpec(
            SlidingEventTimeWindows(10, 5, 0), 3, None, sliced.AGGREGATES, ("key",)
        ),
        input_types=[sliced.ROW],
        output_type=sliced.RESULT,
        keys=[lambda row: row["key"]],
        key_type=Types.STRING(),
    )
    rows = [
        Row(key=key, n=n) for batch in DRAWN if not isinstance(batch, int) for key, n, _ in batch
    ]
    times = [time for batch in DRAWN if not isinstance(batch, int) for *_, time in batch]
    # Some windows have fired and are kept for late rows.
    return harness, [Rows(rows, times), WatermarkAt(16), Rows(rows[:1], [14])]


def slices() -> tuple[OperatorHarness, list[HarnessStep]]:
    rows = Rows([Row(key="a", n=1), Row(key="b", n=2), Row(key="a", n=3)], [1, 3, 17])
    return sliced.sliced("sliding"), sliced.partials_of("sliding", [rows, WatermarkAt(8)])


def sessions() -> tuple[OperatorHarness, list[HarnessStep]]:
    return session.sessions(), session.second_steps(DRAWN)[:-1]


def joins() -> tuple[OperatorHarness, list[HarnessStep]]:
    left, right = row_joins.left(("x", 1), ("y", 2)), row_joins.right(("x", 3))
    return row_joins.plain_join(), [left, right]


class _Timed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(value + 5)
        ctx.timer_service().register_processing_time_timer(value + 10**12)
        return []


def timers() -> tuple[OperatorHarness, list[HarnessStep]]:
    harness = OperatorHarness(
        KeyedProcessSpec(_Timed()),
        input_types=[Types.LONG()],
        keys=[lambda value: value % 3],
        key_type=Types.LONG(),
    )
    return harness, [Rows(list(range(9)), list(range(9))), WatermarkAt(7)]


Made = tuple[OperatorHarness, list[HarnessStep]]


@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize("make", [aggregates, slices, sessions, joins, timers])
def test_live_rows_are_those_that_a_snapshot_stores(make: Callable[[], Made], count: int) -> None:
    harness, steps = make()
    *before, last = steps
    for step in before:
        harness.perform(step)
    names = {StateTable.COLUMNAR, StateTable.TIMERS}
    sources = [one for one in harness.states.live_sources() if one.table in names]
    rows = [opened(source) for source in sources]
    snapshot = harness.snapshot()
    # Whatever comes meanwhile does not show.
    harness.perform(last)
    found = 0
    for source, one in zip(sources, rows, strict=True):
        live = shown(tables_of(one, count))
        assert live == stored(snapshot, source.name, source.table)
        found += len(live)
    assert found >= 2


@pytest.mark.parametrize("make", [aggregates, slices, sessions, joins, timers])
def test_columns_are_known_before_there_is_a_row(make: Callable[[], Made]) -> None:
    def schemas(harness: OperatorHarness) -> list[pa.Schema]:
        return [opened(source).schema() for source in harness.states.live_sources()]

    harness, steps = make()
    at_first = schemas(harness)
    for step in steps:
        harness.perform(step)
    assert schemas(harness) == at_first
    assert all(len(schema) > 1 for schema in at_first)


def test_rows_that_sessions_hold_back_are_read_before_any_snapshot() -> None:
    harness, steps = sessions()
    harness.perform(steps[0])
    (source,) = harness.states.live_sources()
    assert sum(table.num_rows for table in tables_of(opened(source))) > 0


def test_timers_are_found_by_key() -> None:
    harness, steps = timers()
    for step in steps:
        harness.perform(step)
    (source,) = [one for one in harness.states.live_sources() if one.table is StateTable.TIMERS]
    of_one = shown(tables_of(opened(source, [1]), 2))
    assert {dict(row)["key"] for row in of_one} == {"1"}
    times = [10**12 + 1, 10**12 + 4, 10**12 + 7, 9, 12]
    assert sorted(dict(row)["ts"] for row in of_one) == sorted(map(repr, times))

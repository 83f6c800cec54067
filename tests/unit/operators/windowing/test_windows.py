"""The window operator against the behaviours that PyFlink's own tests pin down."""

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.core.elements import MAX_WATERMARK
from headrace.functions.process import ProcessWindowFunction, TimeDomain
from headrace.functions.windowing.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from headrace.testing.operator_harness import (
    PICKLED,
    OperatorHarness,
    Rows,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways
from tests.unit.operators.window_specs import window_spec
from tests.unit.state.entries import total_entry_count

KEYS = [lambda value: value[0]]


class Contents(ProcessWindowFunction[Any, Any, Any, Any]):
    """(key, start, end, sorted values)."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        values = tuple(sorted(value[1] for value in elements))
        return [(key, window.start, window.end, values)]


def contents(assigner: WindowAssigner[Any, Any], timestamps: list[int]) -> list[Any]:
    harness = run_all_ways(
        lambda: OperatorHarness(window_spec(assigner, window_function=Contents()), keys=KEYS),
        [Rows([("hi", ts) for ts in timestamps], timestamps)],
    )
    assert harness.output.watermarks == [MAX_WATERMARK]
    assert [ts for _, ts in harness.output.timed_rows] == [
        row[2] - 1 for row in harness.output.rows
    ]
    _assert_nothing_is_left(harness)
    return [(row[1], row[2], len(row[3])) for row in harness.output.rows]


def _assert_nothing_is_left(harness: OperatorHarness) -> None:
    operator: Any = harness.operator
    assert total_entry_count(operator._backend) == 0
    assert len(operator._timers._event_timers) == 0


def test_tumbling_windows_lie_side_by_side() -> None:
    fired = contents(TumblingEventTimeWindows(5, 0), [1, 2, 3, 4, 5, 8, 9, 15])
    assert fired == [(0, 5, 4), (5, 10, 3), (15, 20, 1)]


def test_sliding_windows_overlap() -> None:
    fired = contents(SlidingEventTimeWindows(5, 2, 0), [1, 2, 3, 4, 5, 8, 9, 15])
    assert fired == [
        (-2, 3, 2),
        (0, 5, 4),
        (2, 7, 4),
        (4, 9, 3),
        (6, 11, 2),
        (8, 13, 2),
        (12, 17, 1),
        (14, 19, 1),
    ]


def test_sessions_end_after_their_gap() -> None:
    assert contents(EventTimeSessionWindows(5), [1, 2, 3, 4, 8, 9, 15]) == [(1, 14, 6), (15, 20, 1)]


def test_a_record_between_two_sessions_makes_them_one() -> None:
    assert contents(EventTimeSessionWindows(5), [0, 8, 4]) == [(0, 13, 3)]


def test_sessions_that_became_one_leave_no_timers_of_their_own() -> None:
    spec = window_spec(
        EventTimeSessionWindows(5), window_function=Contents(), allowed_lateness_ms=10
    )
    harness = OperatorHarness(spec, keys=KEYS)
    operator: Any = harness.operator
    harness.perform(Rows([("a", 1), ("a", 2)], [0, 8]))
    # For each session the end, and the time at which it is cleaned up.
    assert operator._timers.timer_count(TimeDomain.EVENT_TIME) == 4
    harness.perform(Rows([("a", 3)], [4]))
    assert operator._timers.timer_count(TimeDomain.EVENT_TIME) == 2


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(5, 0), EventTimeSessionWindows(5)])
def test_late_records_without_a_side_output_are_counted(assigner: WindowAssigner[Any, Any]) -> None:
    harness = OperatorHarness(window_spec(assigner, window_function=Contents()), keys=KEYS)
    harness.perform(WatermarkAt(20))
    harness.perform(Rows([("a", 1), ("a", 2), ("a", 3)], [3, 4, 21]))
    assert harness.metrics.snapshot() == {"numLateRecordsDropped": 2}


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(5, 0), EventTimeSessionWindows(5)])
def test_late_records_with_a_side_output_are_counted_too(
    assigner: WindowAssigner[Any, Any],
) -> None:
    spec = window_spec(assigner, window_function=Contents(), late_tag_id="late")
    harness = OperatorHarness(spec, keys=KEYS, side_types={"late": PICKLED})
    harness.perform(WatermarkAt(20))
    harness.perform(Rows([("a", 1), ("a", 2), ("a", 3)], [3, 4, 21]))
    assert harness.output.side_rows("late") == [("a", 1), ("a", 2)]
    assert harness.metrics.snapshot() == {"numLateRecordsDiverted": 2}


def test_a_record_between_two_windows_is_late_only_once_the_allowed_lateness_is_over() -> None:
    spec = window_spec(
        SlidingEventTimeWindows(2, 10, 0),
        window_function=Contents(),
        allowed_lateness_ms=5,
        late_tag_id="late",
    )
    harness = OperatorHarness(spec, keys=KEYS, side_types={"late": PICKLED})
    between = ("a", 1)
    harness.perform(WatermarkAt(9))
    harness.perform(Rows([between], [5]))
    assert harness.output.side_rows("late") == []
    harness.perform(WatermarkAt(10))
    harness.perform(Rows([between], [5]))
    assert harness.output.side_rows("late") == [between]

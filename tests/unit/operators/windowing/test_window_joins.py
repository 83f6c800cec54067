"""Join and co-group in windows: what functions are given, and against a reference, however batches are cut."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import UserCodeError
from headrace.core.types.type_info import Types
from headrace.functions.evictors import CountEvictor, DeltaEvictor
from headrace.functions.joins import CoGroupFunction, FlatJoinFunction, JoinFunction, TaggedUnion
from headrace.functions.process import OutputTag
from headrace.functions.specs.operator_specs import CoGroupSpec, TwoStreamWindowSpec, WindowJoinSpec
from headrace.functions.state import ValueStateDescriptor
from headrace.functions.windowing.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from headrace.functions.windowing.triggers import (
    CountTrigger,
    DeltaTrigger,
    ProcessingTimeoutTrigger,
    PurgingTrigger,
    Trigger,
)
from headrace.testing.operator_harness import (
    PICKLED,
    HarnessStep,
    OperatorHarness,
    Rows,
    TimeAt,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_cuts, run_all_ways
from tests.unit.operators.windowing.reference_triggers import (
    AfterCount,
    AtTheEnd,
    OrTimeout,
    Purging,
    ReferenceTrigger,
    TooFar,
)
from tests.unit.operators.windowing.window_expectations import (
    START_MS,
    assert_nothing_is_left,
    expected,
)
from tests.unit.operators.windowing.window_reference import (
    Assigner,
    Everything,
    Eviction,
    Fixed,
    Sessions,
    WindowReference,
    keep_close,
    keep_last,
)

TUMBLING = TumblingEventTimeWindows(10, 0)


def spec(kind: type[TwoStreamWindowSpec], function: Any, **changes: Any) -> TwoStreamWindowSpec:
    parts: dict[str, Any] = {
        "assigner": TUMBLING,
        "trigger": None,
        "evictor": None,
        "allowed_lateness_ms": 0,
        "late_tag_ids": ("left", "right"),
    }
    return kind(function=function, **{**parts, **changes})


def harness(given_spec: TwoStreamWindowSpec) -> OperatorHarness:
    return OperatorHarness(
        given_spec,
        input_types=(PICKLED, PICKLED),
        keys=[lambda value: value[0], lambda value: value[0]],
        side_types={"left": PICKLED, "right": PICKLED, "side": PICKLED},
        start_ms=START_MS,
    )


def run(given_spec: TwoStreamWindowSpec, steps: list[HarnessStep]) -> OperatorHarness:
    done = run_all_ways(lambda: harness(given_spec), steps)
    assert_nothing_is_left(done)
    return done


LEFT = Rows([("a", 1), ("b", 2), ("a", 3)], [1, 2, 3], 0)
RIGHT = Rows([("a", 10), ("c", 20), ("a", 30), ("a", 40)], [4, 5, 6, 15], 1)


def _sides(first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
    yield [value[1] for value in first], [value[1] for value in second]


def test_a_join_gives_each_pair_of_a_window_in_order() -> None:
    joined = run(spec(WindowJoinSpec, lambda one, two: (one[1], two[1])), [LEFT, RIGHT])
    assert joined.output.timed_rows == [((1, 10), 9), ((1, 30), 9), ((3, 10), 9), ((3, 30), 9)]


def test_a_co_group_sees_the_sides_that_are_empty_too() -> None:
    grouped = run(spec(CoGroupSpec, _sides), [LEFT, RIGHT])
    assert grouped.output.rows == [([1, 3], [10, 30]), ([2], []), ([], [20]), ([], [40])]


class Flat(FlatJoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Iterable[Any] | None:
        if first[1] == 1:
            return None
        return [second[1]] * (first[1] - 1)


class Counting(JoinFunction[Any, Any, Any]):
    """Numbers the pairs of each key."""

    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("pairs", Types.INT()))

    def join(self, first: Any, second: Any) -> Any:
        self._count.update((self._count.value() or 0) + 1)
        return self._count.value()


class ToSideOutput(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
        yield OutputTag("side"), len(list(first))


def test_join_functions_may_give_any_number_of_results_keep_state_and_use_side_outputs() -> None:
    assert run(spec(WindowJoinSpec, Flat()), [LEFT, RIGHT]).output.rows == [10, 10, 30, 30]
    counted = run_all_ways(lambda: harness(spec(WindowJoinSpec, Counting())), [LEFT, RIGHT])
    assert counted.output.rows == [1, 2, 3, 4]
    assert run(spec(CoGroupSpec, ToSideOutput()), [LEFT]).output.side_rows("side") == [2, 1]


def test_a_function_that_gives_no_iterable_is_told_so() -> None:
    class Wrong(FlatJoinFunction[Any, Any, Any]):
        def join(self, first: Any, second: Any) -> Any:
            return 3

    broken = harness(spec(WindowJoinSpec, Wrong()))
    broken.perform(LEFT)
    broken.perform(RIGHT)
    with pytest.raises(UserCodeError, match="join must return an iterable"):
        broken.perform(WatermarkAt(100))
    grouped = harness(spec(CoGroupSpec, lambda first, second: 3))
    grouped.perform(LEFT)
    with pytest.raises(UserCodeError, match="must return an iterable"):
        grouped.perform(WatermarkAt(100))


def test_late_records_go_to_the_side_output_of_their_stream() -> None:
    steps: list[HarnessStep] = [WatermarkAt(9), LEFT, RIGHT]
    joined = run(spec(WindowJoinSpec, lambda one, two: 0), steps)
    assert joined.output.side_rows("left") == list(LEFT.values)
    assert joined.output.side_rows("right") == list(RIGHT.values)[:3]
    assert joined.metrics.snapshot() == {"numLateRecordsDiverted": 6}
    dropping = harness(spec(WindowJoinSpec, lambda one, two: 0, late_tag_ids=(None, "right")))
    for step in steps:
        dropping.perform(step)
    assert dropping.metrics.snapshot() == {"numLateRecordsDropped": 3, "numLateRecordsDiverted": 3}


def test_a_join_in_windows_by_the_clock_fires_when_their_time_is_over() -> None:
    by_clock = spec(
        WindowJoinSpec,
        lambda one, two: (one[1], two[1]),
        assigner=TumblingProcessingTimeWindows(10, 0),
    )
    steps: list[HarnessStep] = [Rows([("a", 1)]), Rows([("a", 2)], None, 1), TimeAt(110)]
    assert run(by_clock, steps).output.rows == [(1, 2)]


# -- against the reference


def _number(element: Any) -> int:
    value = element.get_one() if element.is_one() else element.get_two()
    return value[1]


def _apart(one: TaggedUnion, other: TaggedUnion) -> float:
    return abs(_number(one) - _number(other))


EVENT = AtTheEnd("event")
WINDOWS: dict[str, tuple[WindowAssigner[Any, Any], Assigner, Trigger[Any, Any] | None, Any]] = {
    "tumbling": (TumblingEventTimeWindows(7, 2), Fixed(7, 7, 2), None, EVENT),
    "sliding": (SlidingEventTimeWindows(9, 4, 0), Fixed(9, 4), None, EVENT),
    "sessions": (EventTimeSessionWindows(4), Sessions(lambda value: 4), None, EVENT),
    "sessions by count": (
        EventTimeSessionWindows(4),
        Sessions(lambda value: 4),
        PurgingTrigger(CountTrigger(3)),
        Purging(AfterCount(3)),
    ),
    "tumbling by delta": (
        TumblingEventTimeWindows(7, 2),
        Fixed(7, 7, 2),
        DeltaTrigger(2, _apart),
        TooFar(2),
    ),
    "global": (
        GlobalWindows(),
        Everything(),
        ProcessingTimeoutTrigger(PurgingTrigger(CountTrigger(3)), 4),
        OrTimeout(Purging(AfterCount(3)), 4, resets=False, clears=True),
    ),
}
EVICTORS: list[tuple[Any, Eviction | None]] = [
    (None, None),
    (None, None),
    (CountEvictor.of(2), Eviction(keep_last(2))),
    (DeltaEvictor(3, _apart, True), Eviction(keep_close(3), is_after=True)),
]
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 6), st.integers(-5, 40)), min_size=1, max_size=6
)
STEPS = st.lists(
    st.one_of(
        st.tuples(ROWS, st.integers(0, 1)).map(
            lambda drawn: Rows(
                [(key, number, drawn[1]) for key, number, _ in drawn[0]],
                [timestamp for _, _, timestamp in drawn[0]],
                drawn[1],
            )
        ),
        st.integers(1, 12),
    ),
    max_size=12,
)


def _shown(first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
    yield tuple(first), tuple(second)


@pytest.mark.slow
@pytest.mark.parametrize("windows", WINDOWS)
@given(STEPS, st.sampled_from(EVICTORS), st.sampled_from([0, 0, 6]))
def test_windows_over_two_streams_are_those_of_the_reference(
    windows: str, drawn: list[Any], eviction: tuple[Any, Eviction | None], lateness: int
) -> None:
    assigner, reference_assigner, trigger, reference_trigger = WINDOWS[windows]
    steps: list[HarnessStep] = []
    time = 0
    for one in drawn:
        time += one if isinstance(one, int) else 0
        # The clock goes with event time, so that timeouts are reached as well.
        steps += [WatermarkAt(time), TimeAt(START_MS + time)] if isinstance(one, int) else [one]
    steps += [WatermarkAt(MAX_WATERMARK), TimeAt(START_MS + 400)]
    reference = _reference(reference_assigner, reference_trigger, lateness, eviction[1])
    groups = [firing for fired in expected(reference, steps) for firing in fired]
    parts = {
        "assigner": assigner,
        "trigger": trigger,
        "evictor": eviction[0],
        "allowed_lateness_ms": lateness,
    }
    grouped = run_all_cuts(
        lambda: harness(spec(CoGroupSpec, _shown, **parts)), steps, finishes=False
    )
    sides = [_split(values) for _, _, values in groups]
    assert sorted(grouped.output.rows) == sorted(sides)
    joined = run_all_cuts(
        lambda: harness(spec(WindowJoinSpec, lambda one, two: (one, two), **parts)),
        steps,
        finishes=False,
    )
    pairs = [(one, two) for first, second in sides for one in first for two in second]
    assert sorted(joined.output.rows) == sorted(pairs)
    for name, side in (("left", 0), ("right", 1)):
        assert joined.output.side_rows(name) == [one for one in reference.late if one[2] == side]
    if not isinstance(reference_assigner, Everything):
        assert_nothing_is_left(joined)


def _reference(
    assigner: Assigner, trigger: ReferenceTrigger, lateness: int, eviction: Eviction | None
) -> WindowReference:
    reference = WindowReference(assigner, trigger, lateness, eviction)
    reference.clock(START_MS)
    return reference


def _split(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (
        tuple(value for value in values if value[2] == 0),
        tuple(value for value in values if value[2] == 1),
    )

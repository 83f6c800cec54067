"""Window functions of every kind, their contexts and state; count windows, other triggers, the wall clock."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import UserCodeError
from headrace.core.types.rows import Row
from headrace.core.types.time_values import Time
from headrace.core.types.type_info import Types
from headrace.functions.process import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headrace.functions.record import AggregateFunction, ReduceFunction
from headrace.functions.specs.operator_specs import ReduceSpec, RollingAggregationSpec
from headrace.functions.state import ReducingStateDescriptor, ValueStateDescriptor
from headrace.functions.windowing.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from headrace.functions.windowing.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    PurgingTrigger,
)
from headrace.testing.operator_harness import (
    PICKLED,
    HarnessStep,
    OperatorHarness,
    Rows,
    TimeAt,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways
from tests.unit.operators.window_specs import window_spec

KEYS = [lambda value: value[0]]
TUMBLING = TumblingEventTimeWindows(10, 0)


def run(
    assigner: WindowAssigner[Any, Any], steps: list[HarnessStep], **changes: Any
) -> OperatorHarness:
    keys = KEYS if changes.get("is_keyed", True) else []
    return run_all_ways(
        lambda: OperatorHarness(
            window_spec(assigner, **changes), keys=keys, side_types={"side": PICKLED}, start_ms=100
        ),
        steps,
    )


class _Apply(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield key, window, list(inputs)


class _ApplyAll(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(window.start, window.end, list(inputs))]


class _ProcessAll(ProcessAllWindowFunction[Any, Any, Any]):
    def process(self, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield context.window().end, sum(value[1] for value in elements)


class _Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class _JoinTexts(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], f"{value1[1]}{value2[1]}"


ROWS = Rows([("a", 1), ("b", 2), ("a", 5), ("a", 7)], [1, 2, 3, 11])


def test_reduce_folds_in_the_order_of_arrival() -> None:
    harness = run(TUMBLING, [ROWS], incremental=_JoinTexts())
    assert harness.output.timed_rows == [(("a", "15"), 9), (("b", 2), 9), (("a", 7), 19)]
    harness = run(TUMBLING, [ROWS], incremental=lambda a, b: (a[0], a[1] + b[1]))
    assert harness.output.rows == [("a", 6), ("b", 2), ("a", 7)]


def test_aggregate_gives_its_result_at_the_end_of_the_window() -> None:
    harness = run(TUMBLING, [ROWS], incremental=_Mean())
    assert harness.output.timed_rows == [(3.0, 9), (2.0, 9), (7.0, 19)]


def test_a_window_function_behind_an_aggregate_sees_one_element() -> None:
    harness = run(EventTimeSessionWindows(5), [ROWS], incremental=_Mean(), window_function=_Apply())
    assert [
        (key, window.start, window.end, values) for key, window, values in harness.output.rows
    ] == [
        ("b", 2, 7, [2.0]),
        ("a", 1, 8, [3.0]),
        ("a", 11, 16, [7.0]),
    ]


def test_sessions_of_an_aggregate_are_merged() -> None:
    rows = Rows([("a", 1), ("a", 3), ("a", 8)], [0, 8, 4])
    assert run(EventTimeSessionWindows(5), [rows], incremental=_Mean()).output.rows == [4.0]
    harness = run(EventTimeSessionWindows(5), [rows], incremental=_JoinTexts())
    assert harness.output.timed_rows == [(("a", "138"), 12)]


def test_windows_over_a_whole_stream_take_the_all_functions() -> None:
    applied = run(TUMBLING, [ROWS], window_function=_ApplyAll(), is_keyed=False)
    assert applied.output.rows == [(0, 10, [("a", 1), ("b", 2), ("a", 5)]), (10, 20, [("a", 7)])]
    processed = run(TUMBLING, [ROWS], window_function=_ProcessAll(), is_keyed=False)
    assert processed.output.timed_rows == [((10, 8), 9), ((20, 7), 19)]


def _numbers(keys: str) -> Rows:
    return Rows([(key, index) for index, key in enumerate(keys)])


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (CountTumblingWindowAssigner(3), [("a", [0, 1, 3]), ("b", [2, 5, 6])]),
        (CountSlidingWindowAssigner(3, 2), [("a", [0, 1, 3]), ("b", [2, 5, 6])]),
        (
            CountSlidingWindowAssigner(2, 1),
            [("a", [0, 1]), ("a", [1, 3]), ("a", [3, 4]), ("b", [2, 5]), ("b", [5, 6])],
        ),
    ],
)
def test_count_windows_fire_when_they_are_full(
    assigner: WindowAssigner[Any, Any], expected: Any
) -> None:
    harness = run(assigner, [_numbers("aabaabb")], window_function=_Apply())
    rows = [(key, [value[1] for value in values]) for key, _, values in harness.output.rows]
    assert sorted(rows) == expected


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (CountTrigger(2), [[0, 1], [0, 1, 2, 3]]),
        (PurgingTrigger.of(CountTrigger(2)), [[0, 1], [2, 3]]),
    ],
)
def test_a_count_trigger_fires_again_and_again(trigger: Any, expected: list[Any]) -> None:
    harness = run(GlobalWindows(), [_numbers("aaaaa")], trigger=trigger, window_function=_Apply())
    assert [[value[1] for value in row[2]] for row in harness.output.rows] == expected


def test_count_triggers_of_merged_sessions_are_added_up() -> None:
    rows = Rows([("a", 0), ("a", 1), ("a", 2)], [0, 8, 4])
    harness = run(
        EventTimeSessionWindows(5), [rows], trigger=CountTrigger(3), window_function=_Apply()
    )
    assert [sorted(row[2]) for row in harness.output.rows] == [[("a", 0), ("a", 1), ("a", 2)]]


def test_a_trigger_that_never_fires_at_the_end_leaves_the_rest_unfired() -> None:
    harness = run(TUMBLING, [ROWS], trigger=CountTrigger(2), incremental=_Mean())
    assert harness.output.rows == [3.0]


def test_a_continuous_trigger_fires_within_the_window_and_at_its_end() -> None:
    steps = [Rows([("a", 1)], [12]), WatermarkAt(14), Rows([("a", 3)], [16]), WatermarkAt(17)]
    harness = run(
        TumblingEventTimeWindows(20, 0),
        steps,
        trigger=ContinuousEventTimeTrigger.of(Time.milliseconds(5)),
        incremental=_Mean(),
    )
    assert [e[1] for e in harness.output.main if e[0] == "row" or e[1] < 100] == [14, 2.0, 17, 2.0]


def test_processing_time_windows_fire_by_the_clock() -> None:
    steps: list[HarnessStep] = [
        Rows([("a", 1)]),
        TimeAt(105),
        Rows([("a", 3), ("b", 5)]),
        TimeAt(130),
    ]
    harness = run(TumblingProcessingTimeWindows(10, 0), steps, incremental=_Mean())
    assert harness.output.rows == [2.0, 5.0]
    harness = run(SlidingProcessingTimeWindows(10, 5, 0), steps, incremental=_Mean())
    assert harness.output.rows == [1.0, 2.0, 5.0, 3.0, 5.0]
    harness = run(ProcessingTimeSessionWindows(7), steps, incremental=_Mean())
    assert harness.output.rows == [2.0, 5.0]


def test_a_continuous_trigger_on_the_clock() -> None:
    steps: list[HarnessStep] = [Rows([("a", 1)]), TimeAt(108), Rows([("a", 3)]), TimeAt(140)]
    harness = run(
        TumblingProcessingTimeWindows(20, 0),
        steps,
        trigger=ContinuousProcessingTimeTrigger.of(Time.milliseconds(5)),
        incremental=_Mean(),
    )
    assert harness.output.rows == [1.0, 2.0, 2.0, 2.0]


class _Stateful(ProcessWindowFunction[Any, Any, Any, Any]):
    """Counts its firings per window and per key."""

    window_count = ValueStateDescriptor("firings of the window", Types.INT())
    key_count = ReducingStateDescriptor("firings of the key", lambda a, b: a + b, Types.INT())

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        own = context.window_state().get_state(self.window_count)
        own.update((own.value() or 0) + 1)
        shared = context.global_state().get_reducing_state(self.key_count)
        shared.add(1)
        yield key, context.window().end, own.value(), shared.get(), context.current_watermark()

    def clear(self, context: Any) -> None:
        context.window_state().get_state(self.window_count).clear()


def test_window_functions_keep_state_per_window_and_per_key() -> None:
    steps: list[HarnessStep] = [ROWS, WatermarkAt(9), Rows([("a", 0)], [4]), WatermarkAt(19)]
    harness = run(TUMBLING, steps, window_function=_Stateful(), allowed_lateness_ms=5)
    assert harness.output.rows == [
        ("a", 10, 1, 1, 9),
        ("b", 10, 1, 1, 9),
        ("a", 10, 2, 2, 9),
        ("a", 20, 1, 3, 19),
    ]
    operator: Any = harness.operator
    assert operator._backend.key_count("firings of the window") == 0
    assert operator._backend.key_count("firings of the key") == 2


def test_merging_windows_have_no_state_of_their_own() -> None:
    harness = OperatorHarness(
        window_spec(EventTimeSessionWindows(5), window_function=_Stateful()), keys=KEYS
    )
    harness.perform(ROWS)
    with pytest.raises(UserCodeError, match=r"merging windows have no state of their own"):
        harness.perform(WatermarkAt(100))


def test_event_time_windows_ask_for_timestamps() -> None:
    harness = OperatorHarness(window_spec(TUMBLING, window_function=_Apply()), keys=KEYS)
    with pytest.raises(
        UserCodeError, match=r"without a timestamp cannot be put into event-time windows"
    ):
        harness.perform(_numbers("a"))


def test_a_failing_window_function_names_the_operator() -> None:
    harness = OperatorHarness(
        window_spec(TUMBLING, incremental=lambda a, b: 1 // 0), keys=KEYS, operator_name="W"
    )
    with pytest.raises(UserCodeError, match=r"ZeroDivisionError: .*\(in operator 'W', .*line"):
        harness.perform(ROWS)


def test_running_reduce_emits_for_every_record() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(ReduceSpec(lambda a, b: (a[0], a[1] + b[1])), keys=KEYS),
        [Rows([(1, 1), (1, 2), (1, 3), (2, 5), (2, 1)], [1, 2, 3, 4, 5])],
        finishes=False,
    )
    assert harness.output.timed_rows == [
        ((1, 1), 1),
        ((1, 3), 2),
        ((1, 6), 3),
        ((2, 5), 4),
        ((2, 6), 5),
    ]


@pytest.mark.parametrize(
    ("aggregation", "position", "values", "expected"),
    [
        ("sum", 1, [("a", 1, "x"), ("a", 2, "y")], [("a", 1, "x"), ("a", 3, "x")]),
        (
            "min",
            1,
            [("a", 3, "x"), ("a", 1, "y"), ("a", 2, "z")],
            [("a", 3, "x"), ("a", 1, "x"), ("a", 1, "x")],
        ),
        ("max", 1, [("a", 1, "x"), ("a", 2, "y")], [("a", 1, "x"), ("a", 2, "x")]),
        (
            "min_by",
            1,
            [("a", 3, "x"), ("a", 1, "y"), ("a", 1, "z")],
            [("a", 3, "x"), ("a", 1, "y"), ("a", 1, "y")],
        ),
        ("max_by", 1, [("a", 1, "x"), ("a", 2, "y")], [("a", 1, "x"), ("a", 2, "y")]),
        ("sum", "v", [Row(k="a", v=1), Row(k="a", v=2)], [Row(k="a", v=1), Row(k="a", v=3)]),
        ("max", 1, [Row("a", 1), Row("a", 2)], [Row("a", 1), Row("a", 2)]),
        ("min_by", "v", [Row(k="a", v=2), Row(k="a", v=1)], [Row(k="a", v=2), Row(k="a", v=1)]),
    ],
)
def test_rolling_aggregations_of_a_field(
    aggregation: str, position: Any, values: Any, expected: Any
) -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(RollingAggregationSpec(aggregation, position), keys=KEYS),
        [Rows(values)],
    )
    assert harness.output.rows == expected


def test_rolling_aggregations_of_plain_numbers() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(RollingAggregationSpec("sum", 0), keys=[lambda value: value % 2]),
        [Rows([1, 2, 3, 4])],
    )
    assert harness.output.rows == [1, 2, 4, 6]


@pytest.mark.slow
@given(st.lists(st.sampled_from("ab"), max_size=30), st.integers(1, 5), st.integers(1, 6))
def test_count_windows_hold_runs_of_each_keys_records(
    keys: list[str], size: int, slide: int
) -> None:
    expected: list[Any] = []
    numbers: dict[str, list[int]] = {"a": [], "b": []}
    for index, key in enumerate(keys):
        mine = numbers[key]
        mine.append(index)
        begin = len(mine) - size
        if begin >= 0 and begin % slide == 0:
            expected.append((key, mine[begin:]))
    assigners: list[WindowAssigner[Any, Any]] = [CountSlidingWindowAssigner(size, slide)]
    if size == slide:
        assigners.append(CountTumblingWindowAssigner(size))
    for assigner in assigners:
        harness = run(assigner, [_numbers("".join(keys))], window_function=_Apply())
        rows = [(key, [value[1] for value in values]) for key, _, values in harness.output.rows]
        assert rows == expected

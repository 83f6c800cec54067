"""The interval join: bounds, lateness, what it keeps, and against a brute-force reference, however batches are cut."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import UserCodeError
from headrace.core.types.type_info import Types
from headrace.functions.joins import ProcessJoinFunction
from headrace.functions.process import OutputTag
from headrace.functions.specs.operator_specs import IntervalJoinSpec
from headrace.functions.state import ValueStateDescriptor
from headrace.testing.operator_harness import (
    PICKLED,
    HarnessStep,
    OperatorHarness,
    Rows,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_cuts, run_all_ways
from tests.unit.operators.windowing.window_expectations import assert_nothing_is_left

LEFT, RIGHT = 0, 1


class Pair(ProcessJoinFunction[Any, Any, Any]):
    """(left, right) with their times and the pair's own."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        times = ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp()
        yield left, right, times


def harness(
    lower: int, upper: int, function: Any = None, late: tuple[Any, Any] = ("left", "right")
) -> OperatorHarness:
    return OperatorHarness(
        IntervalJoinSpec(function or Pair(), lower, upper, late),
        input_types=(PICKLED, PICKLED),
        keys=[lambda value: value[0], lambda value: value[0]],
        side_types={"left": PICKLED, "right": PICKLED, "side": PICKLED},
    )


def rows(side: int, *timestamps: int) -> Rows:
    return Rows([("k", one) for one in timestamps], timestamps, side)


def matches(lower: int, upper: int, steps: list[HarnessStep]) -> list[tuple[int, int]]:
    done = run_all_ways(lambda: harness(lower, upper), steps)
    assert_nothing_is_left(done)
    for ((_, left), (_, right), times), timestamp in done.output.timed_rows:
        assert times == (left, right, timestamp) and timestamp == max(left, right)
    return [(left[1], right[1]) for left, right, _ in done.output.rows]


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (-2, 1, [8, 9, 10, 11]),
        (0, 0, [10]),
        (1, 3, [11, 12, 13]),
        (-3, -2, [7, 8]),
    ],
)
def test_both_bounds_belong_to_the_interval(lower: int, upper: int, expected: list[int]) -> None:
    around = range(5, 16)
    right_first: list[HarnessStep] = [rows(RIGHT, *around), rows(LEFT, 10)]
    left_first: list[HarnessStep] = [rows(LEFT, 10), rows(RIGHT, *around)]
    for steps in (right_first, left_first):
        assert matches(lower, upper, steps) == [(10, one) for one in expected]


def test_pairs_are_made_once_by_whichever_record_comes_second() -> None:
    steps: list[HarnessStep] = [rows(LEFT, 1, 2), rows(RIGHT, 2, 1), rows(LEFT, 1)]
    found = matches(-5, 5, steps)
    assert found == [(1, 2), (2, 2), (1, 1), (2, 1), (1, 1), (1, 2)]


def test_other_keys_do_not_meet() -> None:
    steps: list[HarnessStep] = [Rows([("a", 1)], [1], LEFT), Rows([("b", 1)], [1], RIGHT)]
    assert run_all_ways(lambda: harness(-5, 5), steps).output.rows == []


def test_records_behind_the_watermark_are_late_and_those_at_it_are_not() -> None:
    steps: list[HarnessStep] = [
        rows(RIGHT, 11),
        WatermarkAt(10),
        rows(LEFT, 9, 10, 11),
        rows(RIGHT, 9, 10),
    ]
    done = run_all_cuts(lambda: harness(0, 2), steps)
    found = [(left[1], right[1]) for left, right, _ in done.output.rows]
    assert found == [(10, 11), (11, 11), (10, 10)]
    assert done.output.side_rows("left") == [("k", 9)]
    assert done.output.side_rows("right") == [("k", 9)]
    assert done.metrics.snapshot() == {"numLateRecordsDiverted": 2}


def test_late_records_without_a_side_output_are_counted() -> None:
    dropping = harness(0, 2, late=(None, "right"))
    for step in (WatermarkAt(10), rows(LEFT, 8, 9), rows(RIGHT, 9)):
        dropping.perform(step)
    assert dropping.metrics.snapshot() == {"numLateRecordsDropped": 2, "numLateRecordsDiverted": 1}
    assert dropping.output.sides.keys() == {"right"}


def _held(one: OperatorHarness) -> tuple[int, int]:
    operator: Any = one.operator
    return operator._backend.key_count("left-buffer"), operator._backend.key_count("right-buffer")


def test_records_are_kept_until_no_partner_can_come() -> None:
    one = harness(-2, 5)
    one.perform(rows(LEFT, 10))
    one.perform(rows(RIGHT, 10))
    one.perform(WatermarkAt(11))
    assert _held(one) == (1, 1)
    one.perform(WatermarkAt(12))
    assert _held(one) == (1, 0)
    one.perform(WatermarkAt(14))
    assert _held(one) == (1, 0)
    one.perform(WatermarkAt(15))
    assert_nothing_is_left(one)


def test_an_interval_in_the_past_or_the_future_keeps_one_side_only_until_its_own_time() -> None:
    for lower, upper, held in ((3, 5, (1, 0)), (-5, -3, (0, 1))):
        one = harness(lower, upper)
        one.perform(rows(LEFT, 10))
        one.perform(rows(RIGHT, 10))
        one.perform(WatermarkAt(10))
        assert _held(one) == held
        one.perform(WatermarkAt(15))
        assert_nothing_is_left(one)


def test_times_near_the_end_of_time_are_cleaned_up_with_the_last_watermark() -> None:
    end = MAX_WATERMARK
    steps: list[HarnessStep] = [rows(LEFT, end - 3, end - 1), rows(RIGHT, end - 2)]
    assert matches(-10, 10, steps) == [(end - 3, end - 2), (end - 1, end - 2)]


def test_a_record_without_a_timestamp_is_refused() -> None:
    with pytest.raises(UserCodeError, match="without a timestamp cannot be joined by interval"):
        harness(0, 1).perform(Rows([("k", 1)], None, LEFT))


class Counting(ProcessJoinFunction[Any, Any, Any]):
    """Numbers the pairs of each key, and gives every second one to a side output."""

    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("pairs", Types.INT()))

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        number = (self._count.value() or 0) + 1
        self._count.update(number)
        yield (OutputTag("side"), number) if number % 2 == 0 else number


def test_the_function_may_keep_state_and_use_side_outputs() -> None:
    steps: list[HarnessStep] = [rows(LEFT, 1, 2, 3), rows(RIGHT, 2, 9)]
    done = run_all_ways(lambda: harness(-1, 1, Counting()), steps)
    assert done.output.rows == [1, 3]
    assert done.output.side_rows("side") == [2]


def test_a_function_that_fails_names_the_operator() -> None:
    class Failing(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
            return 1 // 0

    one = harness(0, 1, Failing())
    one.perform(rows(LEFT, 1))
    with pytest.raises(UserCodeError, match=r"ZeroDivisionError: .*in operator 'operator under te"):
        one.perform(rows(RIGHT, 1))


# -- against the reference


@dataclass
class IntervalReference:
    """Record at a time, all pairs looked at: a record stays until the watermark has reached its last partner's time."""

    lower: int
    upper: int
    watermark: int = -(2**63)
    held: list[tuple[int, Any, int]] = field(default_factory=list[tuple[int, Any, int]])
    late: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])

    def record(self, side: int, value: Any, timestamp: int) -> list[Any]:
        if timestamp < self.watermark:
            self.late.append((side, value))
            return []
        pairs: list[Any] = []
        for other_side, other, other_time in self.held:
            if other_side == side or other[0] != value[0]:
                continue
            left, right = (other_time, timestamp) if side == RIGHT else (timestamp, other_time)
            if self.lower <= right - left <= self.upper:
                values = (other, value) if side == RIGHT else (value, other)
                pairs.append((*values, (left, right, max(left, right))))
        self.held.append((side, value, timestamp))
        return pairs

    def advance(self, watermark: int) -> None:
        self.watermark = watermark
        kept: list[tuple[int, Any, int]] = []
        for side, value, timestamp in self.held:
            ahead = self.upper if side == LEFT else -self.lower
            if timestamp + max(ahead, 0) > watermark:
                kept.append((side, value, timestamp))
        self.held = kept


ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-5, 30)), min_size=1, max_size=6)
STEPS = st.lists(st.one_of(st.tuples(st.integers(0, 1), ROWS), st.integers(1, 9)), max_size=14)
BOUNDS = st.tuples(st.integers(-9, 9), st.integers(0, 9)).map(lambda b: (b[0], b[0] + b[1]))


def as_steps(drawn: list[Any]) -> list[HarnessStep]:
    steps: list[HarnessStep] = []
    watermark = number = 0
    for one in drawn:
        if isinstance(one, int):
            watermark += one
            steps.append(WatermarkAt(watermark))
            continue
        side, records = one
        values = [(key, number + index) for index, (key, _) in enumerate(records)]
        number += len(values)
        steps.append(Rows(values, [timestamp for _, timestamp in records], side))
    return steps


@given(STEPS, BOUNDS)
def test_interval_joins_are_those_of_the_reference(
    drawn: list[Any], bounds: tuple[int, int]
) -> None:
    steps = as_steps(drawn)
    reference = IntervalReference(*bounds)
    wanted: list[Any] = []
    for step in steps:
        if isinstance(step, WatermarkAt):
            reference.advance(step.timestamp_ms)
            continue
        assert isinstance(step, Rows) and step.timestamps is not None
        partner = 1 - step.input_number
        for value, timestamp in zip(step.values, step.timestamps, strict=True):
            # Of one record the pairs come by the partner's time; the sort keeps the order of arrival.
            pairs = reference.record(step.input_number, value, timestamp)
            wanted += sorted(pairs, key=lambda pair: pair[2][partner])
    done = run_all_cuts(lambda: harness(*bounds), steps)
    assert done.output.rows == wanted
    for name, side in (("left", LEFT), ("right", RIGHT)):
        assert done.output.side_rows(name) == [one for of, one in reference.late if of == side]
    assert_nothing_is_left(done)


@given(st.lists(st.tuples(st.integers(0, 1), ROWS), max_size=10), BOUNDS)
def test_with_watermarks_far_enough_behind_it_is_the_full_join(
    drawn: list[Any], bounds: tuple[int, int]
) -> None:
    steps: list[HarnessStep] = []
    for step in as_steps(drawn):
        assert isinstance(step, Rows) and step.timestamps is not None
        # Behind every record by more than the bounds, whose absolute values are at most 18.
        steps += [step, WatermarkAt(-24 + len(steps) // 4)]
    done = run_all_cuts(lambda: harness(*bounds), steps)
    records = [
        (step.input_number, value, timestamp)
        for step in steps
        if isinstance(step, Rows) and step.timestamps is not None
        for value, timestamp in zip(step.values, step.timestamps, strict=True)
    ]
    wanted = [
        (left, right, (left_time, right_time, max(left_time, right_time)))
        for left_side, left, left_time in records
        for right_side, right, right_time in records
        if (left_side, right_side) == (LEFT, RIGHT)
        and left[0] == right[0]
        and bounds[0] <= right_time - left_time <= bounds[1]
    ]
    assert sorted(done.output.rows) == sorted(wanted)
    assert done.metrics.snapshot() == {"numLateRecordsDiverted": 0}


@pytest.mark.slow
@settings(max_examples=15)
@given(STEPS, BOUNDS)
def test_interval_joins_are_the_same_after_failures_and_at_other_parallelisms(
    drawn: list[Any], bounds: tuple[int, int]
) -> None:
    # Only records ahead of the watermark: the timer of one at it lies in the past, and fires when the watermark is
    # sent again after a restart.
    steps: list[HarnessStep] = []
    watermark = -6
    for step in as_steps(drawn):
        if isinstance(step, WatermarkAt):
            watermark = step.timestamp_ms
            steps.append(step)
            continue
        assert isinstance(step, Rows) and step.timestamps is not None
        kept = [
            (value, timestamp)
            for value, timestamp in zip(step.values, step.timestamps, strict=True)
            if timestamp != watermark
        ]
        if kept:
            values, timestamps = zip(*kept, strict=True)
            steps.append(Rows(values, timestamps, step.input_number))
    run_all_ways(lambda: harness(*bounds), steps)

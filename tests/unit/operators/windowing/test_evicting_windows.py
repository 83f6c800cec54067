"""Windows with evictors: what every kind of function sees, and what the window keeps for its next firing."""

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.core.errors import UserCodeError
from headrace.core.types.time_values import Time
from headrace.functions.evictors import CountEvictor, Evictor, TimeEvictor
from headrace.functions.process import (
    AllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headrace.functions.record import AggregateFunction, ReduceFunction
from headrace.functions.windowing.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from headrace.functions.windowing.triggers import CountTrigger, PurgingTrigger
from headrace.testing.operator_harness import (
    PICKLED,
    HarnessStep,
    OperatorHarness,
    Rows,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways
from tests.unit.operators.window_specs import window_spec

KEYS = [lambda value: value[0]]
TUMBLING = TumblingEventTimeWindows(10, 0)


def run(steps: list[HarnessStep], **changes: Any) -> OperatorHarness:
    keys = KEYS if changes.get("is_keyed", True) else []
    assigner = changes.pop("assigner", TUMBLING)
    return run_all_ways(
        lambda: OperatorHarness(
            window_spec(assigner, **changes), keys=keys, side_types={"late": PICKLED}
        ),
        steps,
    )


class Numbers(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield key, [value[1] for value in inputs]


class AllNumbers(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield [value[1] for value in inputs]


class Processed(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield context.window().end, [value[1] for value in elements]


class Joined(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], f"{value1[1]}{value2[1]}"


class Total(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + value[1]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        raise AssertionError("records are kept, so there are no accumulators to merge")


class Elements(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield key, list(inputs)


ROWS = Rows([("a", 1), ("b", 2), ("a", 5), ("a", 7), ("a", 8)], [1, 2, 3, 4, 11])
LAST_TWO = CountEvictor.of(2)


def test_every_kind_of_function_sees_what_the_evictor_left() -> None:
    applied = run([ROWS], evictor=LAST_TWO, window_function=Numbers())
    assert applied.output.timed_rows == [(("a", [5, 7]), 9), (("b", [2]), 9), (("a", [8]), 19)]
    processed = run([ROWS], evictor=LAST_TWO, window_function=Processed())
    assert processed.output.rows == [(10, [5, 7]), (10, [2]), (20, [8])]
    reduced = run([ROWS], evictor=LAST_TWO, incremental=Joined())
    assert reduced.output.rows == [("a", "57"), ("b", 2), ("a", 8)]
    by_callable = run([ROWS], evictor=LAST_TWO, incremental=lambda a, b: (a[0], a[1] * b[1]))
    assert by_callable.output.rows == [("a", 35), ("b", 2), ("a", 8)]
    aggregated = run([ROWS], evictor=LAST_TWO, incremental=Total())
    assert aggregated.output.rows == [12, 2, 8]
    both = run([ROWS], evictor=LAST_TWO, incremental=Total(), window_function=Elements())
    assert both.output.rows == [("a", [12]), ("b", [2]), ("a", [8])]
    whole = run([ROWS], evictor=LAST_TWO, window_function=AllNumbers(), is_keyed=False)
    assert whole.output.rows == [[5, 7], [8]]


def test_where_nothing_is_left_there_is_nothing_to_reduce() -> None:
    none = CountEvictor.of(0)
    assert run([ROWS], evictor=none, incremental=Joined()).output.rows == []
    assert run([ROWS], evictor=none, incremental=Total()).output.rows == [0, 0, 0]
    applied = run([ROWS], evictor=none, window_function=Numbers())
    assert applied.output.rows == [("a", []), ("b", []), ("a", [])]


def _numbers(count: int) -> Rows:
    return Rows([("a", index) for index in range(count)], list(range(count)))


@pytest.mark.parametrize(
    ("evictor", "expected"),
    [
        (CountEvictor.of(3), [[0, 1], [1, 2, 3], [3, 4, 5]]),
        (CountEvictor.of(1, True), [[0, 1], [1, 2, 3], [3, 4, 5]]),
        (TimeEvictor.of(Time.milliseconds(3)), [[0, 1], [1, 2, 3], [3, 4, 5]]),
        (CountEvictor.of(0, True), [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_a_window_keeps_what_the_evictor_left(
    evictor: Evictor[Any, Any], expected: list[Any]
) -> None:
    parts: dict[str, Any] = {"assigner": GlobalWindows(), "trigger": CountTrigger(2)}
    fired = run([_numbers(6)], evictor=evictor, window_function=Numbers(), **parts)
    assert [row[1] for row in fired.output.rows] == expected


def test_sliding_counts_are_made_of_a_trigger_and_an_evictor() -> None:
    parts: dict[str, Any] = {"assigner": GlobalWindows(), "trigger": CountTrigger(2)}
    sliding = run([_numbers(8)], evictor=CountEvictor.of(4), incremental=Total(), **parts)
    assert sliding.output.rows == [0 + 1, 0 + 1 + 2 + 3, 2 + 3 + 4 + 5, 4 + 5 + 6 + 7]


def test_a_reduce_function_may_change_what_it_is_given() -> None:
    def extend(one: Any, other: Any) -> Any:
        one[1].extend(other[1])
        return one

    rows = Rows([("a", [index]) for index in range(4)], [0, 1, 2, 3])
    parts: dict[str, Any] = {"assigner": GlobalWindows(), "trigger": CountTrigger(2)}
    fired = run([rows], evictor=CountEvictor.of(3), incremental=extend, **parts)
    assert fired.output.rows == [("a", [0, 1]), ("a", [1, 2, 3])]


def test_purging_empties_a_window_whatever_the_evictor_left() -> None:
    parts: dict[str, Any] = {"trigger": PurgingTrigger(CountTrigger(2))}
    fired = run([_numbers(4)], evictor=LAST_TWO, window_function=Numbers(), **parts)
    assert [row[1] for row in fired.output.rows] == [[0, 1], [2, 3]]


def test_merged_sessions_are_evicted_as_one() -> None:
    rows = Rows([("a", 1), ("a", 2), ("a", 3)], [0, 8, 4])
    parts: dict[str, Any] = {"assigner": EventTimeSessionWindows(5)}
    fired = run([rows], evictor=LAST_TWO, window_function=Numbers(), **parts)
    assert fired.output.timed_rows == [(("a", [2, 3]), 12)]


def test_late_records_fire_with_what_earlier_firings_left() -> None:
    steps: list[HarnessStep] = [ROWS, WatermarkAt(9), Rows([("a", 9)], [5])]
    fired = run(steps, evictor=LAST_TWO, window_function=Numbers(), allowed_lateness_ms=5)
    assert fired.output.rows == [("a", [5, 7]), ("b", [2]), ("a", [7, 9]), ("a", [8])]


class Watching(Evictor[Any, Any]):
    """Notes the clocks and sizes that it is told, as records of the window."""

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == len(elements)
        clocks = evictor_context.get_current_watermark(), window.end
        elements[:] = [one._replace(value=("a", (clocks, one.timestamp))) for one in elements]

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == len(elements)
        evictor_context.get_metric_group().counter("evicted").inc(size)
        assert evictor_context.get_current_processing_time() == 0
        elements.clear()


def test_own_evictors_are_told_size_window_timestamps_and_clocks() -> None:
    harness = OperatorHarness(
        window_spec(TUMBLING, evictor=Watching(), window_function=Numbers()), keys=KEYS
    )
    harness.perform(ROWS)
    harness.perform(WatermarkAt(9))
    seen = [((9, 10), 1), ((9, 10), 3), ((9, 10), 4)]
    assert harness.output.rows[0] == ("a", seen)
    assert harness.metrics.snapshot()["evicted"] == 4


class Failing(Evictor[Any, Any]):
    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        raise ValueError("too old")

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        raise AssertionError("never reached")


def test_an_evictor_that_fails_names_the_operator() -> None:
    harness = OperatorHarness(
        window_spec(TUMBLING, evictor=Failing(), window_function=Numbers()), keys=KEYS
    )
    harness.perform(ROWS)
    with pytest.raises(UserCodeError, match=r"ValueError: too old \(in operator 'operator under"):
        harness.perform(WatermarkAt(9))

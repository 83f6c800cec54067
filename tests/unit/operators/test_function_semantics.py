"""The finer points of PyFlink's functions that programs rely on: timers, state, results, windows and rows."""

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.type_info import Types
from headrace.functions.process import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
)
from headrace.functions.record import MapFunction
from headrace.functions.specs.operator_specs import (
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    MapSpec,
    ProcessSpec,
)
from headrace.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from headrace.functions.windowing.assigners import (
    EventTimeSessionWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from headrace.testing.operator_harness import (
    PICKLED,
    OperatorHarness,
    Rows,
    TimeAt,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways
from tests.unit.operators.window_specs import window_spec
from tests.unit.state.entries import total_entry_count

FIRST = [lambda value: value[0]]
SIDE = OutputTag("side", Types.STRING())
ROW = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])


class Scheduler(KeyedProcessFunction):
    """Records are (key, command, time); gives each firing with what the timer service says then."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        _, command, time = value
        getattr(ctx.timer_service(), command)(time)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield timestamp, ctx.get_current_key(), ctx.timer_service().current_watermark()


def scheduled(*steps: Any, finishes: bool = False) -> OperatorHarness:
    return run_all_ways(
        lambda: OperatorHarness(KeyedProcessSpec(Scheduler()), keys=FIRST), steps, finishes=finishes
    )


def commands(*values: Any, at: int = 0) -> Rows:
    return Rows(values, [at] * len(values))


SET = "register_event_time_timer"
DROP = "delete_event_time_timer"
SET_CLOCK = "register_processing_time_timer"


def test_a_timer_in_the_past_fires_at_the_next_watermark_and_not_before() -> None:
    harness = scheduled(WatermarkAt(100), commands(("a", SET, 50), at=100), TimeAt(10**6))
    assert harness.output.rows == []
    harness.perform(WatermarkAt(101))
    assert harness.output.main[-2:] == [("row", (50, "a", 101), 50), ("watermark", 101)]


def test_the_same_time_twice_for_a_key_is_one_timer_and_one_deletion_removes_it() -> None:
    harness = scheduled(
        commands(("a", SET, 5), ("a", SET, 5), ("b", SET, 5), ("b", SET, 5), ("b", DROP, 5)),
        commands(("b", DROP, 77)),
        WatermarkAt(9),
    )
    assert harness.output.rows == [(5, "a", 9)]


def test_timers_of_all_keys_fire_in_order_of_time_before_the_watermark_goes_on() -> None:
    harness = scheduled(
        commands(("b", SET, 7), ("a", SET, 3), ("c", SET, 5), ("a", SET, 12)), WatermarkAt(10)
    )
    assert harness.output.main == [
        ("row", (3, "a", 10), 3),
        ("row", (5, "c", 10), 5),
        ("row", (7, "b", 10), 7),
        ("watermark", 10),
    ]


def test_the_end_of_input_fires_event_timers_and_drops_those_of_the_clock() -> None:
    harness = scheduled(commands(("a", SET, 10**15), ("a", SET_CLOCK, 10**15)), finishes=True)
    assert harness.output.rows == [(10**15, "a", MAX_WATERMARK)]


def test_a_timer_that_is_set_by_a_timer_fires_with_it_where_it_is_due() -> None:
    class Chain(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            ctx.timer_service().register_event_time_timer(1)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
            ctx.timer_service().register_event_time_timer(timestamp + 4)
            yield timestamp, ctx.timestamp()

    harness = run_all_ways(
        lambda: OperatorHarness(KeyedProcessSpec(Chain()), keys=FIRST),
        [Rows([("a",)], [0]), WatermarkAt(10), WatermarkAt(13)],
        finishes=False,
    )
    assert harness.output.main == [
        ("row", (1, 1), 1),
        ("row", (5, 5), 5),
        ("row", (9, 9), 9),
        ("watermark", 10),
        ("row", (13, 13), 13),
        ("watermark", 13),
    ]


def test_a_timer_may_delete_another_one_that_is_due() -> None:
    class First(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            ctx.timer_service().register_event_time_timer(1)
            ctx.timer_service().register_event_time_timer(2)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
            ctx.timer_service().delete_event_time_timer(2)
            yield timestamp

    harness = OperatorHarness(KeyedProcessSpec(First()), keys=FIRST)
    harness.perform(Rows([("a",)], [0]))
    harness.perform(WatermarkAt(10))
    assert harness.output.rows == [1]


def test_the_watermark_is_the_smallest_number_before_the_first_one() -> None:
    class Asks(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            return [(ctx.timer_service().current_watermark(), ctx.timestamp())]

    harness = OperatorHarness(ProcessSpec(Asks()))
    harness.perform(Rows([1]))
    harness.perform(WatermarkAt(5))
    harness.perform(Rows([2], [7]))
    assert harness.output.rows == [(MIN_TIMESTAMP, None), (5, 7)]


def test_empty_states_read_as_none_or_as_nothing_and_none_clears_a_value() -> None:
    class States(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.value = runtime_context.get_state(ValueStateDescriptor("v", Types.INT()))
            self.list = runtime_context.get_list_state(ListStateDescriptor("l", Types.INT()))
            self.map = runtime_context.get_map_state(
                MapStateDescriptor("m", Types.INT(), Types.INT())
            )
            self.sum = runtime_context.get_reducing_state(
                ReducingStateDescriptor("r", lambda a, b: a + b, Types.INT())
            )

        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            number = value[1]
            before = (
                self.value.value(), list(self.list.get()), dict(self.map.items()), self.sum.get()
            )  # fmt: skip
            self.value.update(number)
            self.list.update([] if number is None else [number])
            self.map.remove(99)
            if number is None:
                self.map.clear()
                self.sum.clear()
            else:
                self.map[number] = number
                self.sum.add(number)
            yield before

    harness = run_all_ways(
        lambda: OperatorHarness(KeyedProcessSpec(States()), keys=FIRST),
        [Rows([("a", 1), ("b", 5), ("a", 2), ("a", None), ("a", 3), ("b", 6)])],
    )
    empty = (None, [], {}, None)
    assert harness.output.rows == [
        empty,
        empty,
        (1, [1], {1: 1}, 1),
        (2, [2], {1: 1, 2: 2}, 3),
        empty,
        (5, [5], {5: 5}, 5),
    ]


def test_state_may_be_changed_while_it_is_iterated() -> None:
    class Drains(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.map = runtime_context.get_map_state(
                MapStateDescriptor("m", Types.INT(), Types.INT())
            )

        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            for number in range(3):
                self.map.put(number, number)
            for key in self.map:
                self.map.remove(key)
                yield key
            yield "empty" if self.map.is_empty() else "left"

    harness = OperatorHarness(KeyedProcessSpec(Drains()), keys=FIRST)
    harness.perform(Rows([("a",)]))
    assert harness.output.rows == [0, 1, 2, "empty"]


@pytest.mark.parametrize(
    "give",
    [
        lambda: [("main", 1), (SIDE, "aside")],
        lambda: iter([("main", 1), (SIDE, "aside")]),
        lambda: (one for one in [("main", 1), (SIDE, "aside")]),
    ],
    ids=["list", "iterator", "generator"],
)
def test_results_may_be_any_iterable_and_pairs_with_a_tag_go_aside(give: Any) -> None:
    class Gives(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            ctx.timer_service().register_event_time_timer(5)
            return give()

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            return give()

    harness = OperatorHarness(
        KeyedProcessSpec(Gives()), keys=FIRST, side_types={"side": Types.STRING()}
    )
    harness.perform(Rows([("a",)], [1]))
    harness.perform(WatermarkAt(5))
    assert harness.output.timed_rows == [(("main", 1), 1), (("main", 1), 5)]
    assert harness.output.sides["side"] == [("row", "aside", 1), ("row", "aside", 5)]


def test_rows_arrive_with_the_names_of_their_type_and_keep_their_kind() -> None:
    class Renames(MapFunction):
        def map(self, value: Row) -> Row:
            assert value.n == value["n"] == value[1]
            return Row.of_kind(value.get_row_kind(), value.name.upper(), value.n + 1)

    harness = run_all_ways(
        lambda: OperatorHarness(MapSpec(Renames()), input_types=(ROW,), output_type=ROW),
        [Rows([Row(name="a", n=1), Row.of_kind(RowKind.DELETE, name="b", n=2)])],
    )
    assert harness.output.rows == [
        Row(name="A", n=2),
        Row.of_kind(RowKind.DELETE, name="B", n=3),
    ]


def test_an_unnamed_row_type_gives_its_fields_the_names_f0_f1() -> None:
    plain = Types.ROW([Types.INT(), Types.STRING()])
    harness = OperatorHarness(MapSpec(lambda row: row), input_types=(plain,), output_type=plain)
    harness.perform(Rows([Row(1, "hi"), (2, "ho")]))
    assert list(harness.output.rows) == [Row(f0=1, f1="hi"), Row(f0=2, f1="ho")]


class Clears(ProcessWindowFunction[Any, Any, Any, Any]):
    """Tells through a list that it was asked to clear."""

    cleared: list[Any] = []  # noqa: RUF012  # of the test, not of an instance: functions may be copied

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        return [(context.window().start, context.window().end, len(list(elements)))]

    def clear(self, context: Any) -> None:
        Clears.cleared.append((context.window().start, context.window().end))


def test_windows_of_merged_sessions_are_cleared_once_when_they_end() -> None:
    Clears.cleared.clear()
    harness = OperatorHarness(
        window_spec(EventTimeSessionWindows(5), window_function=Clears()), keys=FIRST
    )
    harness.perform(Rows([("a", 0), ("a", 8), ("a", 4)], [0, 8, 4]))
    harness.perform(WatermarkAt(11))
    assert Clears.cleared == []
    harness.perform(WatermarkAt(12))
    assert harness.output.rows == [(0, 13, 3)]
    assert Clears.cleared == [(0, 13)]


def test_late_records_within_the_allowed_lateness_fire_again_with_everything() -> None:
    Clears.cleared.clear()
    harness = OperatorHarness(
        window_spec(
            TumblingEventTimeWindows(5, 0),
            window_function=Clears(),
            allowed_lateness_ms=3,
            late_tag_id="late",
        ),
        keys=FIRST,
        side_types={"late": PICKLED},
    )
    for step in (
        Rows([("a", 1)], [1]),
        WatermarkAt(4),
        Rows([("a", 2), ("a", 3)], [2, 3]),
        WatermarkAt(6),
        Rows([("a", 4)], [4]),
        WatermarkAt(7),
        Rows([("a", 5)], [0]),
    ):
        harness.perform(step)
    assert [row[2] for row in harness.output.rows] == [1, 2, 3, 4]
    assert harness.output.side_rows("late") == [("a", 5)]
    assert Clears.cleared == [(0, 5)]


def test_lateness_is_of_no_concern_to_windows_on_the_clock() -> None:
    harness = OperatorHarness(
        window_spec(
            TumblingProcessingTimeWindows(5, 0), window_function=Clears(), allowed_lateness_ms=100
        ),
        keys=FIRST,
    )
    harness.perform(Rows([("a", 1)]))
    harness.perform(WatermarkAt(10**9))
    harness.perform(Rows([("a", 2)]))
    harness.perform(TimeAt(5))
    assert harness.output.rows == [(0, 5, 2)]
    operator: Any = harness.operator
    assert total_entry_count(operator._backend) == 0


def test_both_sides_of_connected_streams_see_one_state_and_set_one_timer() -> None:
    class Joins(KeyedCoProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.seen = runtime_context.get_list_state(ListStateDescriptor("s", Types.STRING()))

        def process_element1(self, value: Any, ctx: Any) -> None:
            self.seen.add(f"left {value[1]}")
            ctx.timer_service().register_event_time_timer(5)

        def process_element2(self, value: Any, ctx: Any) -> None:
            self.seen.add(f"right {value[1]}")
            ctx.timer_service().register_event_time_timer(5)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
            yield ctx.get_current_key(), list(self.seen.get())

    harness = OperatorHarness(
        KeyedCoProcessSpec(Joins()), input_types=(PICKLED, PICKLED), keys=FIRST * 2
    )
    harness.perform(Rows([("a", 1)], [1], input_number=0))
    harness.perform(Rows([("a", 2), ("b", 3)], [1, 1], input_number=1))
    harness.perform(WatermarkAt(5))
    assert harness.output.rows == [("a", ["left 1", "right 2"]), ("b", ["right 3"])]

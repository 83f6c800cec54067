"""Process functions: contexts, timers, side outputs, times of results; one and two inputs, with and without keys."""

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import UserCodeError
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.process import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    TimeDomain,
)
from headrace.functions.record import CoFlatMapFunction, CoMapFunction
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.specs.operator_specs import (
    CoFlatMapSpec,
    CoMapSpec,
    CoProcessSpec,
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    ProcessSpec,
)
from headrace.functions.state import ValueStateDescriptor
from headrace.state.evolution import StateIncompatibleError
from headrace.testing.operator_harness import (
    PICKLED,
    OperatorHarness,
    Rows,
    TimeAt,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways

LATE = OutputTag("late", Types.INT())
UNREAD = OutputTag("unread")
FIRST = [lambda value: value[0]]


class _Split(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()
        yield LATE, value
        yield UNREAD, value
        yield ("not a tag", value)


def test_results_and_side_results_carry_the_time_of_their_record() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(ProcessSpec(_Split()), side_types={"late": Types.INT()}),
        [Rows([1], [5]), WatermarkAt(4), Rows([2, 3], [6, 7])],
        finishes=False,
    )
    assert harness.output.timed_rows == [
        ((1, 5, MIN_TIMESTAMP), 5),
        (("not a tag", 1), 5),
        ((2, 6, 4), 6),
        (("not a tag", 2), 6),
        ((3, 7, 4), 7),
        (("not a tag", 3), 7),
    ]
    assert harness.output.sides == {"late": [("row", 1, 5), ("row", 2, 6), ("row", 3, 7)]}


def test_records_without_time_have_no_timestamp() -> None:
    harness = OperatorHarness(ProcessSpec(_Split()))
    harness.perform(Rows([1]))
    assert harness.output.timed_rows[0] == ((1, None, MIN_TIMESTAMP), None)


class _Last(KeyedProcessFunction):
    """Keeps the last value, under the type that is declared."""

    def __init__(self, declared: TypeInformation) -> None:
        self._declared = declared

    def open(self, runtime_context: RuntimeContext) -> None:
        self._last = runtime_context.get_state(ValueStateDescriptor("last", self._declared))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self._last.update(value[1])


def test_state_that_a_program_cannot_take_back_is_no_mistake_that_a_restart_mends() -> None:
    before, after = (
        OperatorHarness(KeyedProcessSpec(_Last(declared)), keys=FIRST)
        for declared in (Types.INT(), Types.SHORT())
    )
    before.perform(Rows([("k", 1)]))
    with pytest.raises(StateIncompatibleError, match="'last'") as refused:
        after.restart(before.snapshot())
    assert not refused.value.recoverable
    before.operator.close()


class _FarTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(2**63)


def test_a_timer_beyond_the_end_of_time_is_the_functions_mistake() -> None:
    harness = OperatorHarness(KeyedProcessSpec(_FarTimer()), keys=FIRST)
    with pytest.raises(UserCodeError, match="ValueError: a timer's time must fit into 64 bits"):
        harness.perform(Rows([("k", 1)]))


def test_timers_without_keys_are_refused() -> None:
    class Timer(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> None:
            ctx.timer_service().register_event_time_timer(1)

    with pytest.raises(UserCodeError, match=r"timers need a key"):
        OperatorHarness(ProcessSpec(Timer())).perform(Rows([1]))


class _CountUntil(KeyedProcessFunction):
    """Counts by key; gives the count 10 ms after the first record, by both clocks."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        if self.count.value() is None:
            timestamp = ctx.timestamp()
            assert timestamp is not None
            ctx.timer_service().register_event_time_timer(timestamp + 10)
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), self.count.value(), ctx.timestamp(), ctx.time_domain().name
        yield LATE, timestamp
        self.count.clear()


def test_state_and_event_timers_belong_to_the_key() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(
            KeyedProcessSpec(_CountUntil()), keys=FIRST, side_types={"late": Types.INT()}
        ),
        [
            Rows([("a",), ("b",), ("a",)], [1, 5, 3]),
            WatermarkAt(10),
            WatermarkAt(12),
            Rows([("a",), ("b",)], [20, 14]),
        ],
    )
    assert harness.output.main == [
        ("row", "a", 1),
        ("row", "b", 5),
        ("row", "a", 3),
        ("watermark", 10),
        ("row", ("a", 2, 11, "EVENT_TIME"), 11),
        ("watermark", 12),
        ("row", "a", 20),
        ("row", "b", 14),
        ("row", ("b", 2, 15, "EVENT_TIME"), 15),
        ("row", ("a", 1, 30, "EVENT_TIME"), 30),
        ("watermark", MAX_WATERMARK),
    ]
    assert harness.output.side_rows("late") == [11, 15, 30]


class _Alarm(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        now = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now + value[1])
        ctx.timer_service().register_processing_time_timer(now + value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
        yield timestamp, ctx.get_current_key()


def test_clock_timers_fire_between_batches_and_their_results_have_no_time() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(KeyedProcessSpec(_Alarm()), keys=FIRST, start_ms=1000),
        [Rows([("a", 20), ("b", 10)], [1, 2]), TimeAt(1010), TimeAt(1011), TimeAt(1100)],
        finishes=False,
    )
    assert harness.output.timed_rows == [((1010, "b"), None), ((1020, "a"), None)]
    assert harness.timers.pending_count == 0


def test_many_results_of_timers_leave_in_several_batches() -> None:
    class Explode(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            ctx.timer_service().register_event_time_timer(value[1])

        def on_timer(
            self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
        ) -> Iterable[Any]:
            return range(3000)

    harness = OperatorHarness(KeyedProcessSpec(Explode()), keys=FIRST)
    harness.perform(Rows([("a", index) for index in range(8)], [0] * 8))
    harness.perform(WatermarkAt(10))
    assert [batch.num_rows for batch in harness.output.batches] == [8192, 8192, 7616]


class _Join(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = runtime_context.get_state(ValueStateDescriptor("left", Types.STRING()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self.left.update(value[1])
        ctx.timer_service().register_event_time_timer(3)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield value[0], self.left.value(), value[1]

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        return [(ctx.get_current_key(), timestamp)]


def test_two_keyed_inputs_share_state_and_timers() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(
            KeyedCoProcessSpec(_Join()), input_types=[PICKLED, PICKLED], keys=[FIRST[0], FIRST[0]]
        ),
        [
            Rows([("a", "x"), ("b", "y")], [1, 1]),
            Rows([("a", 1), ("c", 2)], [2, 2], input_number=1),
            WatermarkAt(3),
        ],
        finishes=False,
    )
    assert harness.output.timed_rows == [
        (("a", "x", 1), 2),
        (("c", None, 2), 2),
        (("a", 3), 3),
        (("b", 3), 3),
    ]


class _Both(CoProcessFunction, CoMapFunction, CoFlatMapFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield "1", value, ctx.timestamp()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield "2", value, ctx.timestamp()

    def map1(self, value: Any) -> Any:
        return value + 1

    def map2(self, value: Any) -> Any:
        return value + 2

    def flat_map1(self, value: Any) -> Iterable[Any]:
        return [value] * value

    def flat_map2(self, value: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (CoProcessSpec(_Both()), [(("1", 2, 5), 5), (("2", 3, 6), 6)]),
        (CoMapSpec(_Both()), [(3, 5), (5, 6)]),
        (CoFlatMapSpec(_Both()), [(2, 5), (2, 5)]),
    ],
)
def test_connected_streams_call_the_function_of_their_input(spec: Any, expected: list[Any]) -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(spec, input_types=[PICKLED, PICKLED]),
        [Rows([2], [5]), Rows([3], [6], input_number=1)],
        finishes=False,
    )
    assert harness.output.timed_rows == expected


def test_an_exception_in_on_timer_names_the_operator() -> None:
    class Fails(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            ctx.timer_service().register_event_time_timer(1)

        def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
            raise RuntimeError("too late")

    harness = OperatorHarness(KeyedProcessSpec(Fails()), keys=FIRST, operator_name="Alert")
    harness.perform(Rows([("a",)]))
    with pytest.raises(
        UserCodeError,
        match=r"RuntimeError: too late \(in operator 'Alert', .*test_process.py, line",
    ):
        harness.perform(WatermarkAt(1))


def test_a_process_function_that_returns_no_iterable_is_told_so() -> None:
    class Returns(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
            return value

    harness = OperatorHarness(ProcessSpec(Returns()))
    with pytest.raises(
        UserCodeError, match=r"TypeError: process_element must return an iterable.*int 5"
    ):
        harness.perform(Rows([5]))


def test_many_results_of_one_batch_leave_in_several_batches() -> None:
    class Explode(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
            return [value] * 5000

    harness = OperatorHarness(ProcessSpec(Explode()))
    harness.perform(Rows([1, 2, 3], [1, 2, 3]))
    assert [batch.num_rows for batch in harness.output.batches] == [8192, 6808]
    assert harness.output.timed_rows[9_999:10_001] == [(2, 2), (3, 3)]

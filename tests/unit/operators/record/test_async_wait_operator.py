"""The asynchronous operator with calls that end when the test says: order, capacity, timeouts, snapshots."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import UserCodeError
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.async_io import (
    AsyncFunction,
    AsyncOutputMode,
    AsyncRetryStrategy,
    empty_result_predicate,
    has_exception_predicate,
)
from headrace.operators.record.async_wait_operator import AsyncWaitOperator
from headrace.testing.operator_harness import Idle, Rows, TimeAt, WatermarkAt
from headrace.testing.operator_ways import run_all_ways
from tests.unit.operators.record.async_harness import (
    ORDERED,
    UNORDERED,
    Scripted,
    Twice,
    async_harness,
    finish_call,
)


@pytest.mark.parametrize("mode", AsyncOutputMode)
def test_cuts_of_batches_do_not_show(mode: AsyncOutputMode) -> None:
    harness = run_all_ways(
        lambda: async_harness(Twice(), mode, capacity=3, is_immediate=True)[0],
        [
            Rows(["a", "b", "c", "d", "e"], [1, 2, 3, 4, MIN_TIMESTAMP]),
            WatermarkAt(4),
            Rows(["f"], [6]),
            Idle(True),
        ],
    )
    assert harness.output.main[:2] == [("row", "a", 1), ("row", "a", 1)]
    assert harness.output.main[8:] == [
        ("row", "e", None),
        ("row", "e", None),
        ("watermark", 4),
        ("row", "f", 6),
        ("row", "f", 6),
        ("idle",),
        ("watermark", MAX_WATERMARK),
    ]


def test_ordered_results_wait_for_the_oldest_input() -> None:
    harness, calls = async_harness(Twice())
    harness.perform(Rows([1, 2], [10, 20]))
    harness.perform(WatermarkAt(15))
    finish_call(harness, calls, 1)
    assert harness.output.main == []
    finish_call(harness, calls, 0)
    assert harness.output.main == [
        ("row", 1, 10),
        ("row", 1, 10),
        ("row", 2, 20),
        ("row", 2, 20),
        ("watermark", 15),
    ]


def test_unordered_results_come_as_they_are_done_but_stay_on_their_side_of_a_watermark() -> None:
    harness, calls = async_harness(Twice(), UNORDERED)
    harness.perform(Rows([1, 2], [10, 20]))
    harness.perform(WatermarkAt(15))
    harness.perform(Rows([3], [30]))
    finish_call(harness, calls, 2)
    assert harness.output.main == []
    finish_call(harness, calls, 1)
    assert harness.output.rows == [2, 2]
    finish_call(harness, calls, 0)
    assert harness.output.main[2:] == [
        ("row", 1, 10),
        ("row", 1, 10),
        ("watermark", 15),
        ("row", 3, 30),
        ("row", 3, 30),
    ]


def test_idleness_does_not_overtake_watermarks_that_wait() -> None:
    harness, calls = async_harness(Twice(), UNORDERED)
    harness.perform(Rows([1], [10]))
    harness.perform(WatermarkAt(10))
    harness.perform(Idle(True))
    assert harness.output.main == []
    finish_call(harness, calls, 0)
    assert harness.output.main[2:] == [("watermark", 10), ("idle",)]


def test_the_operators_own_watermark_is_the_one_that_it_has_emitted() -> None:
    harness, calls = async_harness(Twice())
    harness.perform(Rows([1], [10]))
    harness.perform(WatermarkAt(10))
    assert harness.operator.current_watermark == MIN_TIMESTAMP
    finish_call(harness, calls, 0)
    assert harness.operator.current_watermark == 10


@pytest.mark.parametrize("mode", AsyncOutputMode)
def test_no_more_calls_than_the_capacity_are_in_flight(mode: AsyncOutputMode) -> None:
    harness, calls = async_harness(Twice(), mode, capacity=2)
    assert harness.operator.can_take_input
    harness.perform(Rows([1]))
    assert harness.operator.can_take_input
    harness.perform(Rows([2, 3]))
    assert not harness.operator.can_take_input
    assert len(calls.last.running) == 2
    finish_call(harness, calls, 0)
    assert not harness.operator.can_take_input
    assert len(calls.last.running) == 2
    finish_call(harness, calls, 0)
    assert harness.operator.can_take_input
    assert (calls.last.started_count, calls.last.running_max) == (3, 2)


def test_results_that_wait_for_an_older_one_count_too() -> None:
    harness, calls = async_harness(Twice(), capacity=2)
    harness.perform(Rows([1, 2]))
    finish_call(harness, calls, 1)
    assert not harness.operator.can_take_input
    finish_call(harness, calls, 0)
    assert harness.operator.can_take_input


def test_a_call_that_takes_too_long_fails_the_job_unless_the_function_has_a_result_for_it() -> None:
    harness, _ = async_harness(Twice(), timeout_ms=50, operator_name="ask")
    harness.perform(Rows([7]))
    harness.perform(TimeAt(49))
    with pytest.raises(
        UserCodeError,
        match=r"TimeoutError: Async function call has timed out for input: 7 \(in operator 'ask'",
    ):
        harness.perform(TimeAt(50))


class _Patient(Twice):
    def timeout(self, value: Any) -> list[Any]:
        return ["late", value]


def test_after_its_timeout_a_call_is_given_up_and_what_it_would_say_is_ignored() -> None:
    harness, calls = async_harness(_Patient(), timeout_ms=50)
    harness.perform(Rows([1, 2], [10, 20]))
    slow = calls.last.running[0]
    calls.last.finish(0)  # done, but its mail comes after the timer
    harness.timers.advance_to(50)
    harness.settle()
    assert harness.output.rows == ["late", 1, "late", 2]
    assert slow.results == [1, 1]
    assert calls.last.running == []
    harness.finish()
    assert harness.output.rows == ["late", 1, "late", 2]


def test_the_time_of_an_input_begins_when_its_call_does() -> None:
    harness, calls = async_harness(_Patient(), capacity=1, timeout_ms=50)
    harness.perform(Rows([1, 2]))
    harness.perform(TimeAt(40))
    finish_call(harness, calls, 0)
    harness.perform(TimeAt(89))
    assert harness.output.rows == [1, 1]
    harness.perform(TimeAt(90))
    assert harness.output.rows == [1, 1, "late", 2]


def test_one_timer_serves_all_inputs_and_does_nothing_to_those_that_were_answered() -> None:
    harness, calls = async_harness(_Patient(), timeout_ms=50)
    for number in range(20):
        harness.perform(TimeAt(number))
        harness.perform(Rows([number]))
        if number != 7:
            finish_call(harness, calls, len(calls.last.running) - 1)
    assert harness.timers.pending_count == 1
    harness.perform(TimeAt(56))
    assert harness.output.rows == [number for number in range(7) for _ in (0, 1)]
    harness.perform(TimeAt(57))
    assert harness.output.rows[14:16] == ["late", 7]
    assert len(harness.output.rows) == 40
    assert harness.timers.pending_count == 0


def test_a_failed_call_fails_the_job_with_its_text() -> None:
    harness, calls = async_harness(Scripted(a=[OSError("no route")]), operator_name="ask")
    harness.perform(Rows(["a"]))
    with pytest.raises(UserCodeError, match=r"OSError: no route \(in operator 'ask'"):
        finish_call(harness, calls, 0)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_whatever_leaves_a_coroutine_is_an_error_of_its_own(error: BaseException) -> None:
    harness, calls = async_harness(Scripted(a=[error]))
    harness.perform(Rows(["a"]))
    with pytest.raises(UserCodeError, match=type(error).__name__):
        finish_call(harness, calls, 0)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "The result of AsyncFunction cannot be none: return a list"),
        ("text", "The result of AsyncFunction should be of list type, but is str 'text'"),
    ],
)
def test_results_are_lists(result: Any, text: str) -> None:
    harness, calls = async_harness(Scripted(a=[result]))
    harness.perform(Rows(["a"]))
    with pytest.raises(UserCodeError, match=text):
        finish_call(harness, calls, 0)


def test_results_of_a_timeout_are_lists_too() -> None:
    class Nothing(Twice):
        def timeout(self, value: Any) -> Any:
            return None

    harness, _ = async_harness(Nothing(), timeout_ms=50)
    harness.perform(Rows(["a"]))
    with pytest.raises(UserCodeError, match="cannot be none"):
        harness.perform(TimeAt(50))


def test_a_call_may_change_what_it_is_given() -> None:
    class Consume(AsyncFunction[Any, Any]):
        async def async_invoke(self, value: Any) -> list[Any]:
            value.append("seen")
            return [] if len(value) == 2 else ["changed before"]

    strategy = AsyncRetryStrategy.fixed_delay(1, 10, empty_result_predicate, None)
    harness, calls = async_harness(Consume(), retry_strategy=strategy)
    harness.perform(Rows([["a"]]))
    finish_call(harness, calls, 0)
    operator = harness.operator
    assert isinstance(operator, AsyncWaitOperator)
    assert operator.in_flight_inputs() == [(["a"], MIN_TIMESTAMP)]
    harness.perform(TimeAt(10))
    finish_call(harness, calls, 0)
    assert harness.output.rows == []


class Uncopyable:
    def __deepcopy__(self, memo: Any) -> Any:
        raise ValueError("there is only one")


def test_a_record_that_cannot_be_copied_is_told_with_the_operators_name() -> None:
    harness, _ = async_harness(Twice(), operator_name="ask")
    with pytest.raises(UserCodeError, match=r"TypeError: a Uncopyable cannot be .*'ask'"):
        harness.perform(Rows([Uncopyable()]))


@pytest.mark.parametrize("mode", AsyncOutputMode)
def test_a_restored_operator_makes_every_call_again_whose_results_were_not_emitted(
    mode: AsyncOutputMode,
) -> None:
    harness, calls = async_harness(
        Twice(), mode, capacity=2, input_type=Types.ROW_NAMED(["n"], [Types.INT()])
    )
    harness.perform(Rows([Row(n=1), Row(n=2), Row(n=3)], [10, 20, MIN_TIMESTAMP]))
    harness.perform(WatermarkAt(20))
    finish_call(harness, calls, 1)
    emitted = {ORDERED: [], UNORDERED: [Row(n=2)] * 2}[mode]
    assert harness.output.rows == emitted
    snapshot = harness.snapshot()
    harness.restart(snapshot)
    assert len(calls.last.running) == 2
    assert harness.output.rows == emitted
    while calls.last.running:
        finish_call(harness, calls, 0)
    left = [(Row(n=1), 10), (Row(n=2), 20), (Row(n=3), None)]
    if mode is UNORDERED:
        left.pop(1)
    assert harness.output.timed_rows[len(emitted) :] == [pair for pair in left for _ in (0, 1)]
    harness.finish()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.integers(1, 5)),
        st.tuples(st.just("watermark"), st.just(0)),
        st.tuples(st.just("finish"), st.integers(0, 9)),
        st.tuples(st.just("time"), st.integers(1, 60)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=30,
)


class _Flaky(AsyncFunction[Any, Any]):
    """Every third number fails at first; a timeout gives what the call would have given."""

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()

    async def async_invoke(self, value: int) -> list[Any]:
        self.asked[value] += 1
        if value % 3 == 0 and self.asked[value] == 1:
            raise OSError("busy")
        return [value]

    def timeout(self, value: int) -> list[Any]:
        return [value]


@given(st.sampled_from(AsyncOutputMode), STEPS, st.integers(1, 4))
def test_every_input_gives_its_outputs_once_and_watermarks_keep_their_place(
    mode: AsyncOutputMode, steps: list[tuple[str, int]], capacity: int
) -> None:
    strategy = AsyncRetryStrategy.fixed_delay(3, 20, None, has_exception_predicate)
    harness, calls = async_harness(
        _Flaky(), mode, capacity=capacity, timeout_ms=100, retry_strategy=strategy
    )
    inputs: list[Any] = []
    now_ms = 0
    for name, number in steps:
        if name == "rows":
            values = [len(inputs) + n for n in range(number)]
            inputs += [("row", value) for value in values]
            harness.perform(Rows(values, values))
        elif name == "watermark":
            inputs.append(("watermark", len(inputs)))
            harness.perform(WatermarkAt(len(inputs) - 1))
        elif name == "finish" and calls.last.running:
            finish_call(harness, calls, number % len(calls.last.running))
        elif name == "time":
            now_ms += number
            harness.perform(TimeAt(now_ms))
        elif name == "restart":
            harness.restart(harness.snapshot())
        assert len(calls.last.running) <= capacity
    harness.perform(WatermarkAt(MAX_WATERMARK))
    harness.operator.end_input(0, harness.output)
    while not harness.operator.is_drained:
        if calls.last.running:
            finish_call(harness, calls, 0)
        else:
            now_ms += 20
            harness.perform(TimeAt(now_ms))
    committed = [element[:2] for element in harness.output.main]
    rows = [element for element in inputs if element[0] == "row"]
    assert Counter(element for element in committed if element[0] == "row") == Counter(rows)
    if mode is ORDERED:
        assert [element for element in committed if element[0] == "row"] == rows
    if all(name != "restart" for name, _ in steps):
        # Rows have their position as value and as time, and so has a watermark.
        for index, (kind, position) in enumerate(committed[:-1]):
            if kind == "watermark":
                assert all(before < position for _, before in committed[:index])
                assert all(after > position for _, after in committed[index + 1 :])

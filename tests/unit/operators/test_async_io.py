"""The asynchronous operator with calls that end when the test says: order, capacity, timeouts, retries, snapshots."""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import UserCodeError
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.async_io import (
    AsyncFunction,
    AsyncOutputMode,
    AsyncRetryStrategy,
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from headrace.functions.specs import AsyncWaitSpec
from headrace.operators.async_io import AsyncWaitOperator
from headrace.testing.async_calls import ManualCalls
from headrace.testing.operator_harness import (
    PICKLED,
    Idle,
    OperatorHarness,
    Rows,
    TimeAt,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways

ORDERED, UNORDERED = AsyncOutputMode
NO_RETRY = AsyncRetryStrategy.no_restart()


class Twice(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value, value]


class _Scripted(AsyncFunction[Any, Any]):
    """Gives for each value what its script says, call by call: a result, or an exception to raise."""

    def __init__(self, **script: list[Any]) -> None:
        self.script = script

    async def async_invoke(self, value: Any) -> list[Any]:
        outcome = self.script[value].pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class _Calls:
    """The ManualCalls of the operator that was made last."""

    def __init__(self) -> None:
        self.made: list[ManualCalls] = []

    def create(self, spec: AsyncWaitSpec) -> AsyncWaitOperator:
        self.made.append(ManualCalls())
        return AsyncWaitOperator(spec, lambda name: self.made[-1])

    @property
    def last(self) -> ManualCalls:
        return self.made[-1]


def _harness(
    function: AsyncFunction[Any, Any],
    mode: AsyncOutputMode = ORDERED,
    *,
    capacity: int = 100,
    timeout_ms: int = 1000,
    retry_strategy: AsyncRetryStrategy[Any] = NO_RETRY,
    input_type: TypeInformation = PICKLED,
    is_immediate: bool = False,
    **options: Any,
) -> tuple[OperatorHarness, Any]:
    calls = _Calls()
    spec = AsyncWaitSpec(function, timeout_ms, capacity, mode, retry_strategy)
    background = (lambda: calls.last.finish_first()) if is_immediate else (lambda: False)
    harness = OperatorHarness(
        spec, input_types=[input_type], create=calls.create, background=background, **options
    )
    return harness, calls


def _finish_call(harness: OperatorHarness, calls: _Calls, index: int) -> None:
    calls.last.finish(index)
    harness.settle()


@pytest.mark.parametrize("mode", AsyncOutputMode)
def test_cuts_of_batches_do_not_show(mode: AsyncOutputMode) -> None:
    harness = run_all_ways(
        lambda: _harness(Twice(), mode, capacity=3, is_immediate=True)[0],
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
    harness, calls = _harness(Twice())
    harness.perform(Rows([1, 2], [10, 20]))
    harness.perform(WatermarkAt(15))
    _finish_call(harness, calls, 1)
    assert harness.output.main == []
    _finish_call(harness, calls, 0)
    assert harness.output.main == [
        ("row", 1, 10),
        ("row", 1, 10),
        ("row", 2, 20),
        ("row", 2, 20),
        ("watermark", 15),
    ]


def test_unordered_results_come_as_they_are_done_but_stay_on_their_side_of_a_watermark() -> None:
    harness, calls = _harness(Twice(), UNORDERED)
    harness.perform(Rows([1, 2], [10, 20]))
    harness.perform(WatermarkAt(15))
    harness.perform(Rows([3], [30]))
    _finish_call(harness, calls, 2)
    assert harness.output.main == []
    _finish_call(harness, calls, 1)
    assert harness.output.rows == [2, 2]
    _finish_call(harness, calls, 0)
    assert harness.output.main[2:] == [
        ("row", 1, 10),
        ("row", 1, 10),
        ("watermark", 15),
        ("row", 3, 30),
        ("row", 3, 30),
    ]


def test_idleness_does_not_overtake_watermarks_that_wait() -> None:
    harness, calls = _harness(Twice(), UNORDERED)
    harness.perform(Rows([1], [10]))
    harness.perform(WatermarkAt(10))
    harness.perform(Idle(True))
    assert harness.output.main == []
    _finish_call(harness, calls, 0)
    assert harness.output.main[2:] == [("watermark", 10), ("idle",)]


def test_the_operators_own_watermark_is_the_one_that_it_has_emitted() -> None:
    harness, calls = _harness(Twice())
    harness.perform(Rows([1], [10]))
    harness.perform(WatermarkAt(10))
    assert harness.operator.current_watermark == MIN_TIMESTAMP
    _finish_call(harness, calls, 0)
    assert harness.operator.current_watermark == 10


@pytest.mark.parametrize("mode", AsyncOutputMode)
def test_no_more_calls_than_the_capacity_are_in_flight(mode: AsyncOutputMode) -> None:
    harness, calls = _harness(Twice(), mode, capacity=2)
    assert harness.operator.can_take_input
    harness.perform(Rows([1]))
    assert harness.operator.can_take_input
    harness.perform(Rows([2, 3]))
    assert not harness.operator.can_take_input
    assert len(calls.last.running) == 2
    _finish_call(harness, calls, 0)
    assert not harness.operator.can_take_input
    assert len(calls.last.running) == 2
    _finish_call(harness, calls, 0)
    assert harness.operator.can_take_input
    assert (calls.last.started_count, calls.last.running_max) == (3, 2)


def test_results_that_wait_for_an_older_one_count_too() -> None:
    harness, calls = _harness(Twice(), capacity=2)
    harness.perform(Rows([1, 2]))
    _finish_call(harness, calls, 1)
    assert not harness.operator.can_take_input
    _finish_call(harness, calls, 0)
    assert harness.operator.can_take_input


def test_a_call_that_takes_too_long_fails_the_job_unless_the_function_has_a_result_for_it() -> None:
    harness, _ = _harness(Twice(), timeout_ms=50, operator_name="ask")
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
    harness, calls = _harness(_Patient(), timeout_ms=50)
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
    harness, calls = _harness(_Patient(), capacity=1, timeout_ms=50)
    harness.perform(Rows([1, 2]))
    harness.perform(TimeAt(40))
    _finish_call(harness, calls, 0)
    harness.perform(TimeAt(89))
    assert harness.output.rows == [1, 1]
    harness.perform(TimeAt(90))
    assert harness.output.rows == [1, 1, "late", 2]


def test_a_timer_of_an_answered_call_does_nothing() -> None:
    harness, calls = _harness(Twice(), timeout_ms=50)
    harness.perform(Rows([1]))
    _finish_call(harness, calls, 0)
    assert harness.timers.pending_count == 0


def test_a_failed_call_fails_the_job_with_its_text() -> None:
    harness, calls = _harness(_Scripted(a=[OSError("no route")]), operator_name="ask")
    harness.perform(Rows(["a"]))
    with pytest.raises(UserCodeError, match=r"OSError: no route \(in operator 'ask'"):
        _finish_call(harness, calls, 0)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_whatever_leaves_a_coroutine_is_an_error_of_its_own(error: BaseException) -> None:
    harness, calls = _harness(_Scripted(a=[error]))
    harness.perform(Rows(["a"]))
    with pytest.raises(UserCodeError, match=type(error).__name__):
        _finish_call(harness, calls, 0)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "The result of AsyncFunction cannot be none: return a list"),
        ("text", "The result of AsyncFunction should be of list type, but is str 'text'"),
    ],
)
def test_results_are_lists(result: Any, text: str) -> None:
    harness, calls = _harness(_Scripted(a=[result]))
    harness.perform(Rows(["a"]))
    with pytest.raises(UserCodeError, match=text):
        _finish_call(harness, calls, 0)


def test_results_of_a_timeout_are_lists_too() -> None:
    class Nothing(Twice):
        def timeout(self, value: Any) -> Any:
            return None

    harness, _ = _harness(Nothing(), timeout_ms=50)
    harness.perform(Rows(["a"]))
    with pytest.raises(UserCodeError, match="cannot be none"):
        harness.perform(TimeAt(50))


RETRIES = AsyncRetryStrategy.fixed_delay(
    2, 100, empty_result_predicate, partial(exception_type_predicate, expected_error_type=OSError)
)


def test_calls_are_repeated_for_results_and_errors_that_the_strategy_names() -> None:
    function = _Scripted(a=[OSError("busy"), [], ["at last"]])
    harness, calls = _harness(function, retry_strategy=RETRIES, timeout_ms=10_000)
    harness.perform(Rows(["a"], [7]))
    _finish_call(harness, calls, 0)
    harness.perform(TimeAt(99))
    assert calls.last.running == []
    harness.perform(TimeAt(100))
    _finish_call(harness, calls, 0)
    harness.perform(TimeAt(200))
    _finish_call(harness, calls, 0)
    assert harness.output.main == [("row", "at last", 7)]


@pytest.mark.parametrize("outcome", [OSError("busy"), ValueError("wrong")])
def test_repetitions_have_an_end(outcome: Exception) -> None:
    attempts = 3 if isinstance(outcome, OSError) else 1
    harness, calls = _harness(_Scripted(a=[outcome] * 9), retry_strategy=RETRIES, timeout_ms=10_000)
    harness.perform(Rows(["a"]))
    for attempt in range(1, attempts):
        _finish_call(harness, calls, 0)
        harness.perform(TimeAt(attempt * 100))
    with pytest.raises(UserCodeError, match=str(outcome)):
        _finish_call(harness, calls, 0)
    assert calls.last.started_count == attempts


def test_after_the_last_repetition_an_empty_result_is_the_result() -> None:
    harness, calls = _harness(_Scripted(a=[[]] * 9), retry_strategy=RETRIES, timeout_ms=10_000)
    harness.perform(Rows(["a"]))
    for attempt in (1, 2):
        _finish_call(harness, calls, 0)
        harness.perform(TimeAt(attempt * 100))
    _finish_call(harness, calls, 0)
    assert harness.output.rows == []
    assert harness.operator.is_drained


def test_the_timeout_covers_all_repetitions_and_ends_them() -> None:
    class Patient(_Scripted):
        def timeout(self, value: Any) -> list[Any]:
            return ["gave up"]

    harness, calls = _harness(Patient(a=[[]] * 9), retry_strategy=RETRIES, timeout_ms=150)
    harness.perform(Rows(["a"]))
    _finish_call(harness, calls, 0)
    harness.perform(TimeAt(100))
    _finish_call(harness, calls, 0)
    harness.perform(TimeAt(150))
    assert harness.output.rows == ["gave up"]
    assert harness.timers.pending_count == 0


def test_waits_grow_up_to_their_bound() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(9, 10, 50, 2.0, None, has_exception_predicate)
    assert [strategy.get_backoff_time_millis(n) for n in range(1, 6)] == [10, 20, 40, 50, 50]
    assert strategy.get_backoff_time_millis(1) == 10
    assert strategy.get_backoff_time_millis(100_000) == 50
    assert strategy.can_retry(9)
    assert not strategy.can_retry(10)
    predicate = strategy.get_retry_predicate()
    assert predicate.result_predicate() is None
    assert predicate.exception_predicate() is has_exception_predicate


@pytest.mark.parametrize(
    "make",
    [
        lambda: AsyncRetryStrategy.fixed_delay(0, 1, None, None),
        lambda: AsyncRetryStrategy.fixed_delay(1, 0, None, None),
        lambda: AsyncRetryStrategy.exponential_backoff(1, 1, 1, 0, None, None),
    ],
)
def test_strategies_need_positive_numbers(make: Any) -> None:
    with pytest.raises(ValueError, match="should be greater than zero"):
        make()


def test_no_retry_means_none() -> None:
    assert not NO_RETRY.can_retry(1)
    assert NO_RETRY.get_backoff_time_millis(1) == -1
    assert NO_RETRY.get_retry_predicate().exception_predicate() is None


def test_the_end_of_the_input_waits_for_calls_and_makes_waiting_repetitions_at_once() -> None:
    function = _Scripted(a=[[], [], ["a"]], b=[["b"]])
    harness, calls = _harness(function, retry_strategy=RETRIES, timeout_ms=10_000)
    harness.perform(Rows(["a", "b"]))
    _finish_call(harness, calls, 0)
    harness.perform(WatermarkAt(MAX_WATERMARK))
    assert len(calls.last.running) == 1
    harness.operator.end_input(0, harness.output)
    assert len(calls.last.running) == 2
    assert not harness.operator.is_drained
    _finish_call(harness, calls, 1)
    _finish_call(harness, calls, 0)
    harness.perform(TimeAt(100))
    _finish_call(harness, calls, 0)
    assert harness.operator.is_drained
    harness.finish()
    assert harness.output.main == [
        ("row", "a", None),
        ("row", "b", None),
        ("watermark", MAX_WATERMARK),
    ]
    assert calls.last.is_closed


def test_a_call_may_change_what_it_is_given() -> None:
    class Consume(AsyncFunction[Any, Any]):
        async def async_invoke(self, value: Any) -> list[Any]:
            value.append("seen")
            return [] if len(value) == 2 else ["changed before"]

    strategy = AsyncRetryStrategy.fixed_delay(1, 10, empty_result_predicate, None)
    harness, calls = _harness(Consume(), retry_strategy=strategy)
    harness.perform(Rows([["a"]]))
    _finish_call(harness, calls, 0)
    operator = harness.operator
    assert isinstance(operator, AsyncWaitOperator)
    assert operator.in_flight_inputs() == [(["a"], MIN_TIMESTAMP)]
    harness.perform(TimeAt(10))
    _finish_call(harness, calls, 0)
    assert harness.output.rows == []


@pytest.mark.parametrize("mode", AsyncOutputMode)
def test_a_restored_operator_makes_every_call_again_whose_results_were_not_emitted(
    mode: AsyncOutputMode,
) -> None:
    harness, calls = _harness(
        Twice(), mode, capacity=2, input_type=Types.ROW_NAMED(["n"], [Types.INT()])
    )
    harness.perform(Rows([Row(n=1), Row(n=2), Row(n=3)], [10, 20, MIN_TIMESTAMP]))
    harness.perform(WatermarkAt(20))
    _finish_call(harness, calls, 1)
    emitted = {ORDERED: [], UNORDERED: [Row(n=2)] * 2}[mode]
    assert harness.output.rows == emitted
    snapshot = harness.snapshot()
    harness.restart(snapshot)
    assert len(calls.last.running) == 2
    assert harness.output.rows == emitted
    while calls.last.running:
        _finish_call(harness, calls, 0)
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
    harness, calls = _harness(
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
            _finish_call(harness, calls, number % len(calls.last.running))
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
            _finish_call(harness, calls, 0)
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

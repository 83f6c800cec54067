"""Repetitions of asynchronous calls: which, when, how often, and at the end of the input."""

from functools import partial
from typing import Any

import pytest

from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import UserCodeError
from headrace.functions.async_io import (
    AsyncRetryStrategy,
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from headrace.testing.operator_harness import Rows, TimeAt, WatermarkAt
from tests.unit.operators.record.async_harness import (
    NO_RETRY,
    Scripted,
    async_harness,
    finish_call,
)

RETRIES = AsyncRetryStrategy.fixed_delay(
    2, 100, empty_result_predicate, partial(exception_type_predicate, expected_error_type=OSError)
)


def test_calls_are_repeated_for_results_and_errors_that_the_strategy_names() -> None:
    function = Scripted(a=[OSError("busy"), [], ["at last"]])
    harness, calls = async_harness(function, retry_strategy=RETRIES, timeout_ms=10_000)
    harness.perform(Rows(["a"], [7]))
    finish_call(harness, calls, 0)
    harness.perform(TimeAt(99))
    assert calls.last.running == []
    harness.perform(TimeAt(100))
    finish_call(harness, calls, 0)
    harness.perform(TimeAt(200))
    finish_call(harness, calls, 0)
    assert harness.output.main == [("row", "at last", 7)]


@pytest.mark.parametrize("outcome", [OSError("busy"), ValueError("wrong")])
def test_repetitions_have_an_end(outcome: Exception) -> None:
    attempts = 3 if isinstance(outcome, OSError) else 1
    harness, calls = async_harness(
        Scripted(a=[outcome] * 9), retry_strategy=RETRIES, timeout_ms=10_000
    )
    harness.perform(Rows(["a"]))
    for attempt in range(1, attempts):
        finish_call(harness, calls, 0)
        harness.perform(TimeAt(attempt * 100))
    with pytest.raises(UserCodeError, match=str(outcome)):
        finish_call(harness, calls, 0)
    assert calls.last.started_count == attempts


def test_after_the_last_repetition_an_empty_result_is_the_result() -> None:
    harness, calls = async_harness(Scripted(a=[[]] * 9), retry_strategy=RETRIES, timeout_ms=10_000)
    harness.perform(Rows(["a"]))
    for attempt in (1, 2):
        finish_call(harness, calls, 0)
        harness.perform(TimeAt(attempt * 100))
    finish_call(harness, calls, 0)
    assert harness.output.rows == []
    assert harness.operator.is_drained


def test_the_timeout_covers_all_repetitions_and_ends_them() -> None:
    class Patient(Scripted):
        def timeout(self, value: Any) -> list[Any]:
            return ["gave up"]

    harness, calls = async_harness(Patient(a=[[]] * 9), retry_strategy=RETRIES, timeout_ms=150)
    harness.perform(Rows(["a"]))
    finish_call(harness, calls, 0)
    harness.perform(TimeAt(100))
    finish_call(harness, calls, 0)
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
    function = Scripted(a=[[], [], ["a"]], b=[["b"]])
    harness, calls = async_harness(function, retry_strategy=RETRIES, timeout_ms=10_000)
    harness.perform(Rows(["a", "b"]))
    finish_call(harness, calls, 0)
    harness.perform(WatermarkAt(MAX_WATERMARK))
    assert len(calls.last.running) == 1
    harness.operator.end_input(0, harness.output)
    assert len(calls.last.running) == 2
    assert not harness.operator.is_drained
    finish_call(harness, calls, 1)
    finish_call(harness, calls, 0)
    harness.perform(TimeAt(100))
    finish_call(harness, calls, 0)
    assert harness.operator.is_drained
    harness.finish()
    assert harness.output.main == [
        ("row", "a", None),
        ("row", "b", None),
        ("watermark", MAX_WATERMARK),
    ]
    assert calls.last.is_closed

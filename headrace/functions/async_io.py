"""AsyncFunction: keeps many calls to external services in flight; an AsyncRetryStrategy repeats failed calls.

Both are shipped by value.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from headrace.functions.record import Function

IN = TypeVar("IN")
OUT = TypeVar("OUT")

ResultPredicate = Callable[[list[Any]], bool]
ExceptionPredicate = Callable[[Exception], bool]


class AsyncOutputMode(enum.Enum):
    """Order in which results are emitted. Source: Flink AsyncDataStream.OutputMode."""

    ORDERED = "ORDERED"
    UNORDERED = "UNORDERED"


class AsyncFunction(Function, Generic[IN, OUT]):
    """Calls an external service for each record, without waiting for one answer before the next request.

    Coroutines run on an event loop of their own thread: they must not block it, and share nothing with other
    functions of the task. `open`, `close` and `timeout` are called on the task's thread.

    Example:
        >>> class Twice(AsyncFunction[int, int]):
        ...     async def async_invoke(self, value: int) -> list[int]:
        ...         return [2 * value]
        >>> import asyncio
        >>> asyncio.run(Twice().async_invoke(21))
        [42]
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """Return the results for a record. After a failure of the job it may be called again for the same record."""

    def timeout(self, value: IN) -> list[OUT]:
        """Return the results for a record whose answer, with all retries, took too long; or fail the job."""
        raise TimeoutError(f"Async function call has timed out for input: {value}")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Predicates that select the results and exceptions after which a call is repeated."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate | None:
        """Return the predicate on results; None if a call is never repeated for its results."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None:
        """Return the predicate on exceptions; None if a call is never repeated for its exception."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Decides whether and when a call is repeated. Attempts count from 1, the first call."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Return whether another call may follow `current_attempts` calls."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the milliseconds to wait after `current_attempts` calls."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return the predicates that select the calls to repeat."""

    @staticmethod
    def no_restart() -> "AsyncRetryStrategy[Any]":
        """Return a strategy that repeats no call."""
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> "AsyncRetryStrategy[Any]":
        """Return a strategy that repeats a call up to `max_attempts` times, always after the same pause."""
        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> "AsyncRetryStrategy[Any]":
        """Return a strategy that repeats a call up to `max_attempts` times, after growing pauses."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )


class RetryPredicate(AsyncRetryPredicate[OUT]):
    """Holds two predicates, one, or none."""

    def __init__(
        self,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT]):
    """Repeats no call."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return RetryPredicate(None, None)


class FixedDelayRetryStrategy(AsyncRetryStrategy[OUT]):
    """Repeats a call up to `max_attempts` times, each `backoff_time_millis` after the last answer."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        self._max_attempts = _positive("max_attempts", max_attempts)
        self._backoff_time_millis = _positive("backoff_time_millis", backoff_time_millis)
        self._predicate = RetryPredicate[OUT](result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return int(self._backoff_time_millis)

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[OUT]):
    """Repeats a call up to `max_attempts` times; each pause is `multiplier` times the last, up to `max_retry_delay` ms.

    The pause depends only on the number of attempts, because all records of a subtask share the strategy.
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        self._max_attempts = _positive("max_attempts", max_attempts)
        self._initial_delay = _positive("initial_delay", initial_delay)
        self._max_retry_delay = _positive("max_retry_delay", max_retry_delay)
        self._multiplier = float(_positive("multiplier", multiplier))
        self._predicate = RetryPredicate[OUT](result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        if current_attempts <= 1:
            return int(self._initial_delay)
        try:
            delay = self._initial_delay * self._multiplier ** (current_attempts - 1)
        except OverflowError:
            delay = self._max_retry_delay
        return int(min(delay, self._max_retry_delay))

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Return whether a call had no result."""
    return not result


def has_exception_predicate(error: BaseException | None) -> bool:
    """Return whether a call failed."""
    return error is not None


def exception_type_predicate(
    error: BaseException | None, expected_error_type: type[BaseException]
) -> bool:
    """Return whether a call failed with that type of error; bind the second argument with `functools.partial`."""
    return isinstance(error, expected_error_type)


def _positive(name: str, number: float) -> float:
    if number <= 0:
        raise ValueError(f"{name} should be greater than zero, not {number}")
    return number

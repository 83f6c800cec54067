"""Programs with asynchronous functions, on a whole cluster with real event loops."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Time, Types, WatermarkStrategy
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.core.errors import JobExecutionError
from headrace.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    ProcessFunction,
)
from headrace.datastream.async_retry_predicates import (
    empty_result_predicate,
    has_exception_predicate,
)

MINUTE = Time.minutes(1)


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as records:
        return list(records)


class Backwards(AsyncFunction[int, int]):
    """Answers odd numbers only once the next even one has been asked for: a sequential caller would never end."""

    def open(self, runtime_context: Any) -> None:
        self.events: dict[int, asyncio.Event] = {}

    def event(self, number: int) -> asyncio.Event:
        return self.events.setdefault(number, asyncio.Event())

    async def async_invoke(self, value: int) -> list[int]:
        if value % 2:
            await self.event(value + 1).wait()
        self.event(value).set()
        return [value, -value]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_many_records_are_asked_about_at_a_time_and_results_keep_their_order(
    env: StreamExecutionEnvironment, parallelism: int
) -> None:
    env.set_parallelism(1)
    numbers = env.from_collection(range(1, 1001), Types.INT())
    asked = AsyncDataStream.ordered_wait(numbers, Backwards(), MINUTE, 10, Types.INT())
    doubled = asked.map(lambda number: 2 * number, Types.INT()).set_parallelism(parallelism)
    results = collected(doubled)
    wanted = [sign * 2 * number for number in range(1, 1001) for sign in (1, -1)]
    assert results == wanted if parallelism == 1 else Counter(results) == Counter(wanted)


def test_unordered_results_are_all_there(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    numbers = env.from_collection(range(1, 501), Types.INT()).rebalance()
    spread = numbers.map(lambda number: number, Types.INT())

    class Negate(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> list[int]:
            await asyncio.sleep(0)
            return [-value]

    asked = AsyncDataStream.unordered_wait(spread, Negate(), MINUTE, 7, Types.INT())
    assert Counter(collected(asked)) == Counter(range(-500, 0))


class ByItself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value


class WatermarkSeen(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark() < value


def test_no_record_comes_behind_a_watermark_that_it_was_in_front_of(
    env: StreamExecutionEnvironment,
) -> None:
    env.set_parallelism(1)
    env.get_config().set_auto_watermark_interval(1)
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByItself())

    class Uneven(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> list[int]:
            for _ in range(value % 7):
                await asyncio.sleep(0)
            return [value]

    numbers = env.from_collection(range(1, 301), Types.INT())
    timed_numbers = numbers.assign_timestamps_and_watermarks(timed)
    asked = AsyncDataStream.unordered_wait(timed_numbers, Uneven(), MINUTE, 20, Types.INT())
    results = collected(asked.process(WatermarkSeen()))
    assert sorted(results) == [(number, number, True) for number in range(1, 301)]


class Flaky(AsyncFunction[int, int]):
    """Fails or gives nothing twice for each number, and then gives it."""

    def open(self, runtime_context: Any) -> None:
        self.asked: Counter[int] = Counter()

    async def async_invoke(self, value: int) -> list[int]:
        self.asked[value] += 1
        if self.asked[value] > 2:
            return [value]
        if value % 2:
            raise OSError("busy")
        return []


def test_calls_are_repeated_even_when_the_input_has_ended(env: StreamExecutionEnvironment) -> None:
    strategy = AsyncRetryStrategy.fixed_delay(3, 5, empty_result_predicate, has_exception_predicate)
    numbers = env.from_collection([1, 2, 3, 4], Types.INT())
    asked = AsyncDataStream.ordered_wait_with_retry(
        numbers, Flaky(), MINUTE, strategy, 10, Types.INT()
    )
    assert sorted(collected(asked)) == [1, 2, 3, 4]


class Never(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.Event().wait()
        return []


class NeverButPatient(Never):
    def timeout(self, value: int) -> list[int]:
        return [-value]


def test_a_call_without_an_answer_ends_with_its_timeout(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)
    numbers = env.from_collection([1, 2], Types.INT())
    late = AsyncDataStream.ordered_wait(
        numbers, NeverButPatient(), Time.milliseconds(20), 1, Types.INT()
    )
    assert collected(late) == [-1, -2]
    never = AsyncDataStream.ordered_wait(numbers, Never(), Time.milliseconds(20))
    with pytest.raises(
        JobExecutionError, match=r"Async function call has timed out for input: 1 .*async wait"
    ):
        collected(never)


def test_an_error_of_a_call_names_the_function(env: StreamExecutionEnvironment) -> None:
    class Failing(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> list[int]:
            raise ValueError(f"no answer for {value}")

    numbers = env.from_collection([7], Types.INT())
    asked = AsyncDataStream.unordered_wait(numbers, Failing(), MINUTE).name("ask")
    with pytest.raises(
        JobExecutionError,
        match=r"^ValueError: no answer for 7 \(in operator 'ask', .*test_async_programs.py",
    ):
        collected(asked)

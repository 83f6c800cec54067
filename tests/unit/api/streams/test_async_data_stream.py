from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Time, Types
from headrace.core.errors import ProgramError
from headrace.core.types.time_values import Duration
from headrace.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy
from headrace.datastream.async_retry_predicates import empty_result_predicate
from headrace.datastream.async_retry_strategies import FixedDelayRetryStrategy, NoRetryStrategy
from headrace.functions.async_io import AsyncOutputMode
from headrace.functions.specs.operator_specs import AsyncWaitSpec
from tests.unit.api.recording import RecordingExecutor, plan_nodes, spec_of


class Ask(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


def numbers(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection([1, 2], Types.INT())


def test_streams_ask_in_four_ways(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    strategy = AsyncRetryStrategy.fixed_delay(3, 10, empty_result_predicate, None)
    second = Time.seconds(1)
    stream = AsyncDataStream.ordered_wait(numbers(env), Ask(), second, 7, Types.INT()).name("a")
    assert stream.get_type() == Types.INT()
    stream = AsyncDataStream.unordered_wait(stream, Ask(), Duration.of_millis(5)).name("b")
    assert stream.get_type() == Types.PICKLED_BYTE_ARRAY()
    stream = AsyncDataStream.ordered_wait_with_retry(stream, Ask(), second, strategy, 8).name("c")
    stream = AsyncDataStream.unordered_wait_with_retry(stream, Ask(), second, strategy).name("d")
    stream.print()
    env.execute_async()
    specs: list[AsyncWaitSpec] = [spec_of(executor.last, name) for name in "abcd"]
    ordered, unordered = AsyncOutputMode
    assert [spec.mode for spec in specs] == [ordered, unordered, ordered, unordered]
    assert [spec.timeout_ms for spec in specs] == [1000, 5, 1000, 1000]
    assert [spec.capacity for spec in specs] == [7, 100, 8, 100]
    strategies = [type(spec.retry_strategy) for spec in specs]
    assert strategies == [NoRetryStrategy] * 2 + [FixedDelayRetryStrategy] * 2


def test_a_keyed_stream_stays_partitioned_by_key(env: StreamExecutionEnvironment) -> None:
    keyed = numbers(env).key_by(lambda value: value)
    AsyncDataStream.unordered_wait(keyed, Ask(), Time.seconds(1)).print()
    nodes = {node["type"]: node for node in plan_nodes(env.get_execution_plan())}
    node = nodes["async wait operator"]
    assert node["predecessors"][0]["ship_strategy"] == "HASH"


class Blocking(AsyncFunction[Any, Any]):
    def async_invoke(self, value: Any) -> Any:
        return [value]


class Undecided(NoRetryStrategy[Any]):
    def get_retry_predicate(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"async_function": Blocking()}, TypeError, "'Blocking' should be declared as 'async def'"),
        ({"async_function": lambda value: [value]}, TypeError, "must be an AsyncFunction, but is"),
        ({"async_function": Ask}, TypeError, "the class Ask itself; pass an instance"),
        ({"async_retry_strategy": None}, TypeError, "an AsyncRetryStrategy is needed, not None"),
        ({"async_retry_strategy": Undecided()}, TypeError, "Retry predicate of .* 'Undecided'"),
        ({"timeout": Time.seconds(0)}, ProgramError, "timeout .* must be above 0, not 0 ms"),
        (
            {"timeout": Types.INT()},
            TypeError,
            r"ordered_wait\(\) with 'Ask': its timeout is an amount of time such as .*, not Integer; pass the "
            r"result type after timeout and capacity, or by name as output_type=",
        ),
        ({"timeout": None}, TypeError, r"its timeout is an amount of time .*, not None$"),
        ({"timeout": 2.5}, TypeError, r"its timeout is an amount of time .*, not 2.5$"),
        ({"capacity": Types.INT()}, TypeError, "its capacity is a number of calls .* output_type="),
        ({"capacity": True}, TypeError, "its capacity is a number of calls such as 100, not True"),
        ({"capacity": 0}, ProgramError, "capacity must be above 0, not 0"),
        ({"data_stream": [1, 2]}, TypeError, "a DataStream is needed"),
    ],
)
def test_mistakes_are_told_while_the_program_is_built(
    env: StreamExecutionEnvironment, change: dict[str, Any], error: type[Exception], text: str
) -> None:
    arguments: dict[str, Any] = {
        "data_stream": numbers(env),
        "async_function": Ask(),
        "timeout": Time.seconds(1),
        "async_retry_strategy": NoRetryStrategy(),
    }
    with pytest.raises(error, match=text):
        AsyncDataStream.ordered_wait_with_retry(**{**arguments, **change})

"""Nobody sees what a function does to a record after handing it on, unless objects are reused."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import OutputTag, Row, StreamExecutionEnvironment, Types
from headrace.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from headrace.datastream.state import AggregatingStateDescriptor, ValueStateDescriptor
from headrace.datastream.window import CountTumblingWindowAssigner

LISTS = Types.LIST(Types.INT())
NAMED = Types.ROW_NAMED(["n"], [Types.INT()])
TYPES = pytest.mark.parametrize("output_type", [None, LISTS], ids=["untyped", "typed"])


@pytest.fixture(autouse=True)
def in_order(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return list(results)


class GrowingList(KeyedProcessFunction):
    """Yields the very list that is in its state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.held = runtime_context.get_state(ValueStateDescriptor("v", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        grown = self.held.value() or []
        grown.append(value[1])
        self.held.update(grown)
        yield grown


@TYPES
def test_a_state_that_is_yielded_is_seen_as_it_was(
    env: StreamExecutionEnvironment, output_type: Any
) -> None:
    stream = env.from_collection([("a", 1), ("a", 2), ("a", 3)]).key_by(lambda v: v[0])
    assert collected(stream.process(GrowingList(), output_type)) == [[1], [1, 2], [1, 2, 3]]


@TYPES
def test_one_buffer_yielded_many_times_gives_what_it_held(
    env: StreamExecutionEnvironment, output_type: Any
) -> None:
    def fill(value: int) -> Iterator[list[int]]:
        buffer: list[int] = []
        for number in range(value):
            buffer.append(number)
            yield buffer

    stream = env.from_collection([3]).flat_map(fill, output_type)
    assert collected(stream) == [[0], [0, 1], [0, 1, 2]]


@TYPES
def test_one_buffer_returned_many_times_gives_what_it_held(
    env: StreamExecutionEnvironment, output_type: Any
) -> None:
    buffer: list[int] = []

    def fill(value: int) -> list[int]:
        buffer.append(value)
        return buffer

    assert collected(env.from_collection([1, 2]).map(fill, output_type)) == [[1], [1, 2]]


@pytest.mark.parametrize("output_type", [None, NAMED], ids=["untyped", "typed"])
def test_a_row_changed_after_it_was_yielded_stays_as_it_was(
    env: StreamExecutionEnvironment, output_type: Any
) -> None:
    def count(value: int) -> Iterator[Row]:
        row = Row(n=0)
        for number in range(value):
            row["n"] = number
            yield row

    stream = env.from_collection([3]).flat_map(count, output_type)
    assert [row["n"] for row in collected(stream)] == [0, 1, 2]


@pytest.mark.parametrize("has_rows", [True, False], ids=["from a function", "from the source"])
def test_a_branch_does_not_see_what_the_other_does_to_a_record(
    env: StreamExecutionEnvironment, capfd: pytest.CaptureFixture[str], has_rows: bool
) -> None:
    stream = env.from_collection([[1], [2]])
    if has_rows:
        stream = stream.map(lambda x: x)
    stream.map(lambda x: (x.append(9), x)[1]).print("a")
    stream.map(lambda x: x).print("b")
    stream.map(lambda x: (x.append(7), x)[1]).print("c")
    env.execute()
    lines = capfd.readouterr().out.splitlines()
    assert sorted(line for line in lines if line[:2] in ("a>", "b>", "c>")) == [
        "a> [1, 9]",
        "a> [2, 9]",
        "b> [1]",
        "b> [2]",
        "c> [1, 7]",
        "c> [2, 7]",
    ]


def test_a_chained_function_changes_only_its_own_copy(env: StreamExecutionEnvironment) -> None:
    seen: list[list[int]] = []

    def remember(value: int) -> list[int]:
        seen.append([value])
        return seen[-1]

    def spoil(value: list[int]) -> int:
        value.append(9)
        return len(value)

    def tell(value: int) -> Iterator[Any]:
        kept = remember(value)
        yield kept
        if value == 2:
            yield [tuple(one) for one in seen]

    stream = env.from_collection([1, 2]).flat_map(tell).map(lambda v: (spoil(v), v)[1])
    assert collected(stream) == [[1, 9], [2, 9], [(1,), (2,), 9]]


def test_a_filter_keeps_what_it_saw(env: StreamExecutionEnvironment) -> None:
    last: list[Any] = []

    def changed(value: list[int]) -> bool:
        is_new = last != [value]
        last[:] = [value]
        return is_new

    def spoil(value: list[int]) -> int:
        value.append(9)
        return value[0]

    source = env.from_collection([[1]] * 4097)  # more than one batch
    assert collected(source.filter(changed).map(spoil)) == [1]


def test_reduced_records_are_seen_as_they_were(env: StreamExecutionEnvironment) -> None:
    def extend(held: list[Any], value: list[Any]) -> list[Any]:
        held[1].extend(value[1])
        return held

    stream = env.from_collection([["a", [1]], ["a", [2]], ["a", [3]]]).key_by(lambda v: v[0])
    results = collected(stream.reduce(extend))
    assert [result[1] for result in results] == [[1], [1, 2], [1, 2, 3]]


class Gather(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class YieldAccumulator(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = AggregatingStateDescriptor("g", Gather(), Types.PICKLED_BYTE_ARRAY())
        self.held = runtime_context.get_aggregating_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.held.add(value)
        yield self.held.get()


def test_an_accumulator_that_is_yielded_is_seen_as_it_was(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda v: v[0])
    assert collected(stream.process(YieldAccumulator())) == [[1], [1, 2]]


class TwiceTheElements(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        gathered: list[int] = []
        for element in elements:
            gathered.append(element[1])
            yield gathered

    def clear(self, context: Any) -> None:
        pass


def test_what_a_window_yields_is_seen_as_it_was(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda v: v[0])
    windows = stream.window(CountTumblingWindowAssigner.of(2))
    assert collected(windows.process(TwiceTheElements())) == [[1], [1, 2]]


def test_a_record_is_as_it_was_across_a_shuffle(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    stream = env.from_collection([("a", 1), ("a", 2), ("a", 3)]).key_by(lambda v: v[0])
    shuffled = stream.process(GrowingList()).key_by(lambda held: len(held)).map(lambda held: held)
    assert sorted(collected(shuffled)) == [[1], [1, 2], [1, 2, 3]]


@TYPES
def test_a_side_output_is_as_it_was_when_it_was_given(
    env: StreamExecutionEnvironment, output_type: Any
) -> None:
    tag = OutputTag("side", output_type)

    class Split(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
            both = [value]
            yield tag, both
            both.append(9)
            yield both

    main = env.from_collection([1, 2]).process(Split())
    assert collected(main.get_side_output(tag)) == [[1], [2]]


def test_objects_are_shared_where_the_program_reuses_them(env: StreamExecutionEnvironment) -> None:
    env.get_config().enable_object_reuse()

    def fill(value: int) -> Iterator[list[int]]:
        buffer: list[int] = []
        for number in range(value):
            buffer.append(number)
            yield buffer

    assert collected(env.from_collection([2]).flat_map(fill)) == [[0, 1], [0, 1]]

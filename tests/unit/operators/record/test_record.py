"""map, flat_map and filter: values, timestamps, keyed state, types, and what goes wrong in user code."""

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.core.errors import UserCodeError
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.record import FilterFunction, FlatMapFunction, MapFunction
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.specs.operator_specs import FilterSpec, FlatMapSpec, MapSpec
from headrace.functions.state import ValueStateDescriptor
from headrace.testing.operator_harness import (
    OperatorHarness,
    Rows,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways


def test_map_gives_one_result_per_record_and_keeps_its_time() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(MapSpec(lambda value: value * 2)),
        [Rows([1, 2, 3], [10, 20, 30]), WatermarkAt(25), Rows([4], [26])],
        finishes=False,
    )
    assert harness.output.main == [
        ("row", 2, 10),
        ("row", 4, 20),
        ("row", 6, 30),
        ("watermark", 25),
        ("row", 8, 26),
    ]


def test_flat_map_takes_lists_generators_and_none() -> None:
    def repeat(value: int) -> Iterable[int] | None:
        return None if value == 0 else (value for _ in range(value))

    harness = run_all_ways(
        lambda: OperatorHarness(FlatMapSpec(repeat)), [Rows([2, 0, 1], [5, 6, 7])], finishes=False
    )
    assert harness.output.timed_rows == [(2, 5), (2, 5), (1, 7)]


def test_filter_keeps_the_type_and_what_is_true() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(
            FilterSpec(lambda row: row.a > 1),
            input_types=[Types.ROW_NAMED(["a"], [Types.INT()])],
            output_type=Types.ROW_NAMED(["a"], [Types.INT()]),
        ),
        [Rows([Row(a=1), Row(a=2), Row(a=3)], [1, 2, 3])],
        finishes=False,
    )
    assert harness.output.timed_rows == [(Row(a=2), 2), (Row(a=3), 3)]


class _Counting(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def map(self, value: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return value, count


class _FirstOnly(FilterFunction, FlatMapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value: Any) -> bool:
        is_first = self.seen.value() is None
        self.seen.update(True)
        return is_first

    def flat_map(self, value: Any) -> Iterable[Any]:
        if self.filter(value):  # lazily: state is read while the generator runs
            yield value


def test_on_a_keyed_stream_functions_keep_state_by_key() -> None:
    steps = [Rows(["a", "b", "a"]), Rows(["b", "a"])]
    keys = [lambda value: value]
    mapped = run_all_ways(lambda: OperatorHarness(MapSpec(_Counting()), keys=keys), steps)
    assert mapped.output.rows == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)]
    for spec in (FilterSpec(_FirstOnly()), FlatMapSpec(_FirstOnly())):
        kept = run_all_ways(lambda spec=spec: OperatorHarness(spec, keys=keys), steps)
        assert kept.output.rows == ["a", "b"]
        assert not any(batch.is_keyed for batch in kept.output.batches)


def test_keyed_state_without_a_key_says_what_to_do() -> None:
    with pytest.raises(UserCodeError, match=r"'count' is not available.*call key_by first"):
        OperatorHarness(MapSpec(_Counting()))


def test_an_exception_in_user_code_names_cause_operator_and_place() -> None:
    harness = OperatorHarness(MapSpec(lambda value: 1 // value), operator_name="Map")
    with pytest.raises(UserCodeError) as caught:
        harness.perform(Rows([1, 0]))
    first_line = str(caught.value).splitlines()[0]
    assert first_line.startswith(
        "ZeroDivisionError: integer division or modulo by zero (in operator 'Map', "
    )
    assert f"{__file__}, line " in first_line


def test_a_flat_map_that_returns_no_iterable_is_told_so() -> None:
    harness = OperatorHarness(FlatMapSpec(lambda value: value))
    with pytest.raises(UserCodeError, match=r"TypeError: flat_map must return an iterable.*int 5"):
        harness.perform(Rows([5]))


def test_a_result_that_does_not_fit_its_type_is_blamed_on_its_operator() -> None:
    harness = OperatorHarness(
        MapSpec(lambda value: value), output_type=Types.INT(), operator_name="Map"
    )
    with pytest.raises(
        UserCodeError, match=r"record 'x' does not fit its declared type Integer.*operator 'Map'"
    ):
        harness.perform(Rows([1, "x"]))


def test_results_have_their_declared_type_for_whoever_reads_them_next() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(MapSpec(lambda value: value), output_type=Types.FLOAT()),
        [Rows([0.1, 1, None])],
        finishes=False,
    )
    assert harness.output.rows == [0.10000000149011612, 1.0, None]
    rows = run_all_ways(
        lambda: OperatorHarness(
            MapSpec(lambda value: (value, "x")),
            output_type=Types.ROW([Types.INT(), Types.STRING()]),
        ),
        [Rows([1])],
    )
    assert rows.output.rows == [Row(f0=1, f1="x")]


@pytest.mark.parametrize("reads_rows", [True, False])
def test_results_need_no_columns_where_they_are_read_as_rows(reads_rows: bool) -> None:
    harness = OperatorHarness(
        MapSpec(lambda value: (value, "x")), output_type=Types.TUPLE([Types.INT(), Types.STRING()])
    )
    harness.output.reads_rows = reads_rows
    harness.perform(Rows([1, 2]))
    (batch,) = harness.output.batches
    assert batch.is_columnar is not reads_rows
    assert batch.rows() == [(1, "x"), (2, "x")]


def test_functions_are_opened_once_and_closed_once() -> None:
    calls: list[str] = []

    class Watched(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            calls.append(runtime_context.get_task_name_with_subtasks())

        def map(self, value: Any) -> Any:
            return value

        def close(self) -> None:
            calls.append("close")

    harness = OperatorHarness(MapSpec(Watched()), parallelism=4, subtask_index=1)
    harness.finish()
    harness.operator.close()
    assert calls == ["task under test (2/4)#0", "close"]


def test_many_results_of_one_batch_leave_in_several_batches() -> None:
    harness = OperatorHarness(FlatMapSpec(lambda value: [value] * 5000))
    harness.perform(Rows([1, 2, 3], [1, 2, 3]))
    assert [batch.num_rows for batch in harness.output.batches] == [8192, 6808]
    assert harness.output.timed_rows[9_999:10_001] == [(2, 2), (3, 3)]

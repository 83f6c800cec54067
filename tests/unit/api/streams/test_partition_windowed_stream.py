from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.api.streams import stream_results
from headrace.core.errors import ProgramError
from headrace.datastream import DataStream, Order, PartitionWindowedStream
from headrace.datastream.functions import AggregateFunction
from headrace.functions.specs.columnar_specs import (
    FoldPartitionSpec,
    MapPartitionSpec,
    PartitionForm,
    SortPartitionSpec,
)
from headrace.functions.specs.operator_specs import WindowSpec
from headrace.functions.windowing.triggers import EndOfStreamTrigger

ROW = Types.ROW_NAMED(["origin", "delay"], [Types.STRING(), Types.INT()])
LISTS = Types.ROW_NAMED(["values"], [Types.LIST(Types.INT())])


class Total(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value["delay"]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


def flights(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("EWR", 1)], ROW)


def partition(env: StreamExecutionEnvironment) -> PartitionWindowedStream:
    return flights(env).full_window_partition()


def unchanged(rows: Any) -> Any:
    return rows


def test_results_are_typed_by_what_makes_them(env: StreamExecutionEnvironment) -> None:
    full = partition(env)
    assert full.map_partition(unchanged).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert full.map_partition(unchanged, ROW).get_type() == ROW
    assert full.map_arrow(unchanged).get_type() == ROW
    schema = pa.schema([("late", pa.bool_())])
    assert full.map_pandas(unchanged, schema).get_type() == Types.ROW_NAMED(
        ["late"], [Types.BOOLEAN()]
    )
    assert full.sort_partition("delay").get_type() == ROW
    assert full.reduce(lambda a, b: a).get_type() == ROW
    assert full.aggregate(Total(), output_type=Types.INT()).get_type() == Types.INT()
    assert full.aggregate(Total()).get_name() == "PartitionAggregate"


def test_specs_carry_functions_and_fields(env: StreamExecutionEnvironment) -> None:
    full = partition(env)
    full.map_pandas(unchanged).print()
    full.sort_partition(1, Order.DESCENDING).print()
    full.sort_partition(len).print()
    full.reduce(max).print()
    full.aggregate(Total(), Types.INT()).print()
    specs = [node.spec for node in env.get_stream_graph().nodes]
    assert MapPartitionSpec(unchanged, PartitionForm.PANDAS) in specs
    assert SortPartitionSpec("delay", None, is_descending=True) in specs
    assert SortPartitionSpec(None, len, is_descending=False) in specs
    assert FoldPartitionSpec(max, ROW) in specs
    folds = [spec for spec in specs if isinstance(spec, FoldPartitionSpec)]
    assert [spec.folded_type for spec in folds] == [ROW, Types.INT()]


def test_keys_are_folded_by_a_window_that_ends_with_the_input(
    env: StreamExecutionEnvironment,
) -> None:
    flights(env).key_by("origin").full_window_partition().reduce(max).print()
    (spec,) = [
        node.spec for node in env.get_stream_graph().nodes if isinstance(node.spec, WindowSpec)
    ]
    assert spec.is_keyed and spec.incremental is max
    assert isinstance(spec.assigner.default_trigger, EndOfStreamTrigger)


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda full: full.map_partition(3), TypeError, "must be a MapPartitionFunction"),
        (lambda full: full.map_arrow(3), TypeError, "map_arrow needs a callable"),
        (lambda full: full.aggregate(max), TypeError, "must be an AggregateFunction"),
        (lambda full: full.sort_partition(None), TypeError, "key_selector"),
        (lambda full: full.sort_partition("delay", "up"), TypeError, "needs an Order"),
        (lambda full: full.sort_partition("dest"), ProgramError, "no field 'dest'"),
        (lambda full: full.sort_partition(2), ProgramError, "no field 2"),
        (
            lambda full: full.map_arrow(unchanged, Types.PICKLED_BYTE_ARRAY()),
            ProgramError,
            "map_arrow needs",
        ),
    ],
)
def test_mistakes_are_refused_when_the_program_is_built(
    env: StreamExecutionEnvironment,
    use: Callable[[Any], Any],
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        use(partition(env))


def test_streams_without_columns_have_no_tables_and_no_fields(
    env: StreamExecutionEnvironment,
) -> None:
    full = env.from_collection([("EWR", 1)]).full_window_partition()
    with pytest.raises(ProgramError, match="map_arrow needs a stream with columns"):
        full.map_arrow(unchanged)
    with pytest.raises(ProgramError, match="have no field 'delay': pass a function"):
        full.sort_partition("delay")
    lists = env.from_collection([([1],)], LISTS).full_window_partition()
    with pytest.raises(ProgramError, match=r"field 'values' of type list.* have no order"):
        lists.sort_partition("values")


def test_pandas_is_needed_for_its_frames_alone(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        stream_results, "find_spec", lambda name: None if name == "pandas" else find_spec(name)
    )
    with pytest.raises(ProgramError, match=r"map_pandas needs pandas.*or use map_arrow"):
        partition(env).map_pandas(unchanged)
    assert partition(env).map_arrow(unchanged).get_type() == ROW

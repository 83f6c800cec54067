"""PartitionWindowedStream: all records of each subtask, or of each key, as one window that ends with the input."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from headrace.api.columns.expressions import columns_of
from headrace.api.function_checks import check_function, check_key_selector, resolve_type
from headrace.api.streams.data_stream import DataStream, TypeLike
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.api.streams.stream_results import require_library
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import (
    PickledBytesTypeInfo,
    TypeInformation,
)
from headrace.functions.record import (
    AggregateFunction,
    KeySelector,
    MapPartitionFunction,
    Order,
    ReduceFunction,
)
from headrace.functions.specs.columnar_specs import (
    FoldPartitionSpec,
    MapPartitionSpec,
    PartitionForm,
    SortPartitionSpec,
)
from headrace.functions.windowing.assigners import GlobalWindows


class PartitionWindowedStream:
    """All records of each subtask, or of each key of a keyed stream.

    Functions are called when the input ends; in BATCH mode, when the key's records end. Made by
    `full_window_partition()`.

    Example:
        >>> from headrace import StreamExecutionEnvironment, Types
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> numbers = env.from_collection([3, 1, 2], Types.LONG())
        >>> parity = numbers.key_by(lambda number: number % 2)
        >>> parity.full_window_partition().map_partition(lambda values: [sum(values)], Types.LONG()).get_type()
        Long
    """

    def __init__(self, stream: DataStream) -> None:
        self._stream: Final = stream
        self._keyed: Final = stream if isinstance(stream, KeyedStream) else None

    def map_partition(
        self,
        func: Callable[[Iterator[Any]], Iterable[Any] | None] | MapPartitionFunction,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Call `func` with an iterator of the records, which it may read once; it returns or yields the results."""
        check_function(func, MapPartitionFunction)
        return self._then(MapPartitionSpec(func), resolve_type(output_type))

    def map_arrow(
        self,
        func: Callable[[pa.Table], pa.Table | pa.RecordBatch],
        output_type: "TypeLike | pa.Schema" = None,
    ) -> DataStream:
        """Call `func` with the columns of all records as one `pyarrow.Table`; it returns another one.

        `output_type` is the type or the Arrow schema of the result, by default the stream's own. The records of a
        partition or key must fit into memory.
        """
        return self._map_columns("map_arrow", PartitionForm.ARROW, func, output_type)

    def map_pandas(
        self, func: Callable[[Any], Any], output_type: "TypeLike | pa.Schema" = None
    ) -> DataStream:
        """Call `func` as `map_arrow` does, but with DataFrames of pandas, as Spark's `applyInPandas` does."""
        require_library("pandas", "map_pandas", "map_arrow")
        return self._map_columns("map_pandas", PartitionForm.PANDAS, func, output_type)

    def sort_partition(
        self,
        field: int | str | Callable[[Any], Any] | KeySelector,
        order: Order = Order.ASCENDING,
    ) -> DataStream:
        """Sort the records by a field, given by position or name, or by the result of a function of the record.

        The sort is stable. Nulls of a field come last. ProgramError if there is no such field, or if its values have no
        order.
        """
        if not isinstance(order, Order):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"sort_partition needs an Order, not {order!r}")
        column, selector = None, field
        if isinstance(field, int | str):
            column, selector = self._column(field), None
        else:
            check_key_selector(field)
        spec = SortPartitionSpec(column, selector, order is Order.DESCENDING)
        return self._then(spec, self._stream.get_type())

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        """Combine all records, as they arrive, into one result."""
        check_function(func, ReduceFunction)
        if self._keyed is not None:
            return self._keyed.window(_to_the_end()).reduce(func)
        value_type = self._stream.get_type()
        return self._then(FoldPartitionSpec(func, value_type), value_type)

    def aggregate(
        self,
        func: AggregateFunction,
        accumulator_type: TypeLike = None,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Add all records, as they arrive, to an accumulator, and compute one result from it.

        Accumulators are kept as values of `accumulator_type`, or pickled without it.
        """
        check_function(func, AggregateFunction, allow_callable=False)
        if self._keyed is not None:
            return self._keyed.window(_to_the_end()).aggregate(
                func, accumulator_type=accumulator_type, output_type=output_type
            )
        spec = FoldPartitionSpec(func, resolve_type(accumulator_type))
        return self._then(spec, resolve_type(output_type)).name("PartitionAggregate")

    def _map_columns(
        self, method: str, form: PartitionForm, func: Any, output_type: "TypeLike | pa.Schema"
    ) -> DataStream:
        if not callable(func):
            raise TypeError(f"{method} needs a callable, not {func!r}")
        own_type = self._stream.get_type()
        columns_of(own_type, method)
        made_type = resolve_type(output_type, default=own_type)
        columns_of(made_type, method)
        return self._then(MapPartitionSpec(func, form), made_type)

    def _then(self, spec: OperatorSpec, output_type: TypeInformation) -> DataStream:
        environment = self._stream.get_execution_environment()
        operator = environment.add_operator(
            spec, (self._stream.transformation,), BatchType(output_type), is_function=True
        )
        return DataStream(environment, operator)

    def _column(self, field: int | str) -> str:
        own_type = self._stream.get_type()
        if isinstance(own_type, PickledBytesTypeInfo) or isinstance(field, bool):
            raise ProgramError(
                f"sort_partition: records of type {own_type} have no field {field!r}: pass a function of the record"
            )
        schema = columns_of(own_type, "sort_partition")
        if isinstance(field, int) and 0 <= field < len(schema):
            field = schema.names[field]
        if field not in schema.names:
            raise ProgramError(f"sort_partition: there is no field {field!r} in {own_type}")
        column = schema.field(field)
        if pa.types.is_nested(column.type):
            raise ProgramError(
                f"sort_partition: values of field '{column.name}' of type {column.type} have no order: pass a function "
                "of the record"
            )
        return column.name


def _to_the_end() -> Any:
    return GlobalWindows.create_with_end_of_stream_trigger()

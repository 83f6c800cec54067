"""WindowedStream and AllWindowedStream: streams cut into windows, keyed or as a whole."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from headrace.api.columns.aggregates import Aggregate
from headrace.api.columns.columnar_aggregates import AskedWindows, aggregate_columns
from headrace.api.columns.window_rows import ranked_rows, rows_with_extreme
from headrace.api.function_checks import check_function, class_name_of, resolve_type
from headrace.api.streams.data_stream import DataStream, TypeLike
from headrace.api.streams.window_settings import (
    WindowSettings,
    check_tag,
    declare_late_outputs,
    id_of,
)
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import TypeInformation
from headrace.functions.process import (
    AllWindowFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headrace.functions.record import AggregateFunction, ReduceFunction
from headrace.functions.specs.operator_specs import WindowSpec

if TYPE_CHECKING:
    from headrace.api.streams.keyed_stream import KeyedStream


AnyWindowFunction = WindowFunction[Any, Any, Any, Any]
AnyAllWindowFunction = AllWindowFunction[Any, Any, Any]
AnyProcessWindowFunction = ProcessWindowFunction[Any, Any, Any, Any]
AnyProcessAllWindowFunction = ProcessAllWindowFunction[Any, Any, Any]


A = TypeVar("A")
P = TypeVar("P")


class OneStreamWindows(WindowSettings, Generic[A, P]):
    """Base class of windows over one stream, keyed or not.

    `A` and `P` are the classes of functions for whole windows, without and with a context.
    """

    _is_keyed: bool
    _window_functions: ClassVar[tuple[type, type]]
    """Classes of functions for whole windows: the simple one, and the one with a context."""

    def __init__(self, stream: DataStream, window_assigner: Any) -> None:
        super().__init__(stream.get_execution_environment(), window_assigner)
        self._stream = stream
        self._late_tag: OutputTag | None = None

    def get_input_type(self) -> TypeInformation:
        """Return the type of the records in the windows."""
        return self._stream.get_type()

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send records that arrive after the allowed lateness to a side output.

        By default they are dropped and counted.
        """
        self._late_tag = check_tag(output_tag)
        return self

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: A | P | None = None,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Combine records as they arrive; a window function then receives exactly one element."""
        check_function(reduce_function, ReduceFunction)
        _check_window_function(window_function, *self._window_functions)
        default = self.get_input_type() if window_function is None else None
        return self._windowed(reduce_function, window_function, resolve_type(output_type, default))

    def aggregate(
        self,
        aggregate_function: AggregateFunction | Aggregate,
        *more: Any,
        window_function: A | P | None = None,
        accumulator_type: TypeLike = None,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Aggregate records as they arrive.

        With an AggregateFunction, record by record; a window function then receives exactly one element. Accumulators
        are kept as values of `accumulator_type`, or pickled without it. With built-in aggregates
        (`agg.count().alias("flights"), agg.mean("delay")`) on whole batches; result rows have the key columns,
        `window_start`, `window_end` and one column per aggregate. In the window that ends with the input,
        `GlobalWindows.create_with_end_of_stream_trigger()`, rows have neither these two columns nor timestamps. The
        windows of a stream without keys are distributed over the subtasks.
        """
        return self._aggregated(
            aggregate_function,
            more,
            window_function=window_function,
            accumulator_type=accumulator_type,
            output_type=output_type,
        )

    def apply(self, window_function: A, output_type: TypeLike = None) -> DataStream:
        """Call a WindowFunction, or an AllWindowFunction, with all records of a window."""
        _check_window_function(window_function, self._window_functions[0])
        return self._windowed(None, window_function, resolve_type(output_type))

    def process(self, process_window_function: P, output_type: TypeLike = None) -> DataStream:
        """Call a ProcessWindowFunction, or a ProcessAllWindowFunction, with all records of a window."""
        _check_window_function(process_window_function, self._window_functions[1])
        return self._windowed(None, process_window_function, resolve_type(output_type))

    def rows_with_max(self, column: str) -> DataStream:
        """Return the rows of each window with the largest value of `column`, all of them on ties, as columns.

        For tumbling event-time windows, or the one that ends with the input, and a column of integers or timestamps.
        Rows with null are left out.
        """
        return self._rows_with_extreme(column, is_largest=True)

    def rows_with_min(self, column: str) -> DataStream:
        """Return the rows of each window with the smallest value of `column`, all of them on ties.

        Otherwise as `rows_with_max`.
        """
        return self._rows_with_extreme(column, is_largest=False)

    def _rows_with_extreme(self, column: str, *, is_largest: bool) -> DataStream:
        stream, keys = self._stream_of_whole_rows("rows_with_max and rows_with_min")
        return rows_with_extreme(stream, keys, self._assigner, column, is_largest=is_largest)

    def largest_rows(self, count: int, *columns: str) -> DataStream:
        """Return the top `count` rows of each window, largest values of `columns` first, as columns.

        Among equal values the row that arrived first is first; nulls come last. The rows of a key are emitted in this
        order. For tumbling event-time windows, and for the one that ends with the input.
        """
        return self._ranked_rows(count, columns, is_largest=True)

    def smallest_rows(self, count: int, *columns: str) -> DataStream:
        """Return the first `count` rows of each window, smallest values of `columns` first.

        Otherwise as `largest_rows`.
        """
        return self._ranked_rows(count, columns, is_largest=False)

    def _ranked_rows(self, count: int, columns: tuple[str, ...], *, is_largest: bool) -> DataStream:
        stream, keys = self._stream_of_whole_rows("largest_rows and smallest_rows")
        return ranked_rows(stream, keys, self._assigner, count, columns, is_largest=is_largest)

    def _stream_of_whole_rows(self, called: str) -> tuple[DataStream, tuple[str, ...]]:
        """Return the stream without keys, and the key columns; ProgramError if whole rows cannot be selected."""
        if self._trigger or self._evictor or self._late_tag or self._allowed_lateness_ms:
            raise ProgramError(
                f"{called} fire once, when a window ends: they accept no trigger, evictor, "
                "lateness or side output"
            )
        return self._stream_before_keys(called)

    def _asked(self) -> AskedWindows:
        return AskedWindows(
            self._assigner,
            self._trigger,
            self._evictor,
            self._allowed_lateness_ms,
            self._late_tag,
        )

    def _stream_before_keys(self, called: str) -> tuple[DataStream, tuple[str, ...]]:
        """Return the stream without keys, and the key columns."""
        return self._stream.without_keys(), ()

    def _aggregated(
        self,
        aggregate_function: AggregateFunction | Aggregate,
        more: Sequence[Any],
        **keywords: Any,
    ) -> DataStream:
        """Add an aggregation; `more` are further built-in aggregates, or the keywords' values in their order."""
        if isinstance(aggregate_function, Aggregate):
            beside = [name for name, value in keywords.items() if value is not None]
            if beside:
                raise TypeError(
                    f"built-in aggregates accept no {' and no '.join(beside)}: pass an AggregateFunction for that"
                )
            return aggregate_columns(self._stream, self._asked(), (aggregate_function, *more))
        check_function(aggregate_function, AggregateFunction, allow_callable=False)
        given = _function_arguments(more, **keywords)
        _check_window_function(given["window_function"], *self._window_functions)
        return self._windowed(
            aggregate_function,
            given["window_function"],
            resolve_type(given["output_type"]),
            given["accumulator_type"],
        )

    def _windowed(
        self,
        incremental: Any,
        window_function: Any,
        output_type: TypeInformation,
        accumulator_type: TypeLike = None,
    ) -> DataStream:
        functions = [class_name_of(f) for f in (incremental, window_function) if f is not None]
        operator = self.get_execution_environment().add_operator(
            WindowSpec(
                assigner=self._assigner,
                trigger=self._trigger,
                allowed_lateness_ms=self._allowed_lateness_ms,
                late_tag_id=id_of(self._late_tag),
                incremental=incremental,
                window_function=window_function,
                is_keyed=self._is_keyed,
                evictor=self._evictor,
                accumulator_type=None
                if accumulator_type is None
                else resolve_type(accumulator_type),
            ),
            (self._stream.transformation,),
            BatchType(output_type),
            name=type(self._assigner).__name__,
            description=f"Window({self._described(*functions)})",
            is_function=True,
            is_parallel=self._is_keyed,
        )
        declare_late_outputs(operator, self._late_tag)
        return DataStream(self.get_execution_environment(), operator)


class WindowedStream(OneStreamWindows[AnyWindowFunction, AnyProcessWindowFunction]):
    """A keyed stream cut into windows."""

    _is_keyed = True
    _window_functions = (WindowFunction, ProcessWindowFunction)

    def __init__(self, keyed_stream: "KeyedStream", window_assigner: Any) -> None:
        super().__init__(keyed_stream, window_assigner)
        self._keyed_stream = keyed_stream

    def _stream_before_keys(self, called: str) -> tuple[DataStream, tuple[str, ...]]:
        if not self._keyed_stream.key_columns:
            raise ProgramError(
                f"{called} need a stream keyed by the names of its columns: key_by('...')"
            )
        return self._keyed_stream.origin, self._keyed_stream.key_columns


class AllWindowedStream(OneStreamWindows[AnyAllWindowFunction, AnyProcessAllWindowFunction]):
    """A stream cut into windows as a whole, by one non-parallel operator."""

    _is_keyed = False
    _window_functions = (AllWindowFunction, ProcessAllWindowFunction)

    def __init__(self, data_stream: DataStream, window_assigner: Any) -> None:
        super().__init__(data_stream, window_assigner)


def _function_arguments(more: Sequence[Any], **keywords: Any) -> dict[str, Any]:
    """Return the keywords, with the values of `more` for the first of them.

    TypeError if there are more values than keywords.
    """
    if len(more) > len(keywords):
        raise TypeError(
            f"aggregate takes {', '.join(keywords)} after an AggregateFunction, "
            f"but {len(more)} arguments were given"
        )
    placed = dict(zip(keywords, more, strict=False))
    for name in placed:
        if keywords[name] is not None:
            raise TypeError(f"aggregate was given {name} twice, by position and by name")
    return {**keywords, **placed}


def _check_window_function(function: object, *classes: type) -> None:
    if function is not None and not isinstance(function, classes):
        names = " or ".join(one.__name__ for one in classes)
        raise TypeError(f"window_function should be a {names}, not {function!r}")

"""WindowedStream and AllWindowedStream: streams cut into windows, keyed or as a whole."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from headrace.api.aggregates import Aggregate, aggregated_type
from headrace.api.data_stream import DataStream, TypeLike
from headrace.api.function_checks import check_function, class_name_of, resolve_type
from headrace.api.late_tags import check_tag, declare_late_outputs, id_of
from headrace.api.window_settings import WindowSettings
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import TypeInformation
from headrace.functions.process import OutputTag
from headrace.functions.record import AggregateFunction, ReduceFunction
from headrace.functions.time_assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowStagger,
)
from headrace.functions.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headrace.functions.window_specs import WindowAggregateSpec, WindowSpec

if TYPE_CHECKING:
    from headrace.api.keyed_stream import KeyedStream


AnyWindowFunction = WindowFunction[Any, Any, Any, Any]
AnyAllWindowFunction = AllWindowFunction[Any, Any, Any]
AnyProcessWindowFunction = ProcessWindowFunction[Any, Any, Any, Any]
AnyProcessAllWindowFunction = ProcessAllWindowFunction[Any, Any, Any]


class OneStreamWindows(WindowSettings):
    """What keyed and other windows over one stream have in common."""

    _is_keyed: bool

    def __init__(self, stream: DataStream, window_assigner: Any) -> None:
        super().__init__(stream.get_execution_environment(), window_assigner)
        self._stream = stream
        self._late_tag: OutputTag | None = None

    def get_input_type(self) -> TypeInformation:
        """Type of the records that are put into windows."""
        return self._stream.get_type()

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send records that come later than that to a side output, instead of dropping and counting them."""
        self._late_tag = check_tag(output_tag)
        return self

    def _windowed(
        self, incremental: Any, window_function: Any, output_type: TypeInformation
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


class WindowedStream(OneStreamWindows):
    """A keyed stream cut into windows."""

    _is_keyed = True

    def __init__(self, keyed_stream: "KeyedStream", window_assigner: Any) -> None:
        super().__init__(keyed_stream, window_assigner)
        self._keyed_stream = keyed_stream

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: AnyWindowFunction | AnyProcessWindowFunction | None = None,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Combine records as they come; a window function then sees exactly one element."""
        check_function(reduce_function, ReduceFunction)
        _check_window_function(window_function, WindowFunction, ProcessWindowFunction)
        default = self.get_input_type() if window_function is None else None
        return self._windowed(reduce_function, window_function, resolve_type(output_type, default))

    def aggregate(
        self,
        aggregate_function: AggregateFunction | Aggregate,
        *more: Any,
        window_function: AnyWindowFunction | AnyProcessWindowFunction | None = None,
        accumulator_type: TypeLike = None,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Aggregate records as they come.

        With an AggregateFunction, record by record; a window function then sees exactly one element. With built-in
        aggregates (`agg.count().alias("flights"), agg.mean("delay")`) on whole batches: rows of the key columns,
        `window_start`, `window_end` and one column per aggregate.
        """
        if isinstance(aggregate_function, Aggregate):
            return self._aggregate_columns((aggregate_function, *more))
        names = ("window_function", "accumulator_type", "output_type")
        given = {"window_function": window_function, "output_type": output_type}
        given.update(zip(names, more, strict=False))
        check_function(aggregate_function, AggregateFunction, allow_callable=False)
        _check_window_function(given["window_function"], WindowFunction, ProcessWindowFunction)
        return self._windowed(
            aggregate_function, given["window_function"], resolve_type(given["output_type"])
        )

    def apply(self, window_function: AnyWindowFunction, output_type: TypeLike = None) -> DataStream:
        """Call a WindowFunction with all records of a window."""
        _check_window_function(window_function, WindowFunction)
        return self._windowed(None, window_function, resolve_type(output_type))

    def process(
        self, process_window_function: AnyProcessWindowFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Call a ProcessWindowFunction with all records of a window."""
        _check_window_function(process_window_function, ProcessWindowFunction)
        return self._windowed(None, process_window_function, resolve_type(output_type))

    def _aggregate_columns(self, aggregates: tuple[Any, ...]) -> DataStream:
        for one in aggregates:
            if not isinstance(one, Aggregate):
                raise TypeError(f"aggregate takes built-in aggregates (headrace.agg), not {one!r}")
        if not isinstance(self._assigner, TumblingEventTimeWindows | SlidingEventTimeWindows):
            raise ProgramError(
                "built-in aggregates need tumbling or sliding event-time windows, not "
                f"{type(self._assigner).__name__}: pass an AggregateFunction for those"
            )
        if self._trigger is not None:
            raise ProgramError(
                "built-in aggregates fire when a window ends: they take no other trigger"
            )
        if self._evictor is not None:
            raise ProgramError(
                "built-in aggregates keep no records that an evictor could remove: "
                "pass an AggregateFunction"
            )
        if getattr(self._assigner, "stagger", WindowStagger.ALIGNED) is not WindowStagger.ALIGNED:
            raise ProgramError(
                "built-in aggregates need aligned windows, not staggered ones: "
                "pass an AggregateFunction for those"
            )
        key_columns = self._keyed_stream.key_columns
        if not key_columns:
            raise ProgramError(
                "built-in aggregates need a stream keyed by the names of its columns: key_by('...')"
            )
        output_type = aggregated_type(self.get_input_type(), key_columns, aggregates)
        shown = ", ".join(repr(one) for one in aggregates)
        operator = self.get_execution_environment().add_operator(
            WindowAggregateSpec(
                assigner=self._assigner,
                allowed_lateness_ms=self._allowed_lateness_ms,
                late_tag_id=id_of(self._late_tag),
                aggregates=tuple(one.column_aggregate for one in aggregates),
                key_columns=key_columns,
            ),
            (self._stream.transformation,),
            BatchType(output_type),
            name=type(self._assigner).__name__,
            description=f"Window({self._assigner!r}, EventTimeTrigger, {shown})",
            is_function=True,
        )
        declare_late_outputs(operator, self._late_tag)
        return DataStream(self.get_execution_environment(), operator)


class AllWindowedStream(OneStreamWindows):
    """A stream cut into windows as a whole, by one non-parallel operator."""

    _is_keyed = False

    def __init__(self, data_stream: DataStream, window_assigner: Any) -> None:
        super().__init__(data_stream, window_assigner)

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: AnyAllWindowFunction | AnyProcessAllWindowFunction | None = None,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Combine records as they come; a window function then sees exactly one element."""
        check_function(reduce_function, ReduceFunction)
        _check_window_function(window_function, AllWindowFunction, ProcessAllWindowFunction)
        default = self.get_input_type() if window_function is None else None
        return self._windowed(reduce_function, window_function, resolve_type(output_type, default))

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: AnyAllWindowFunction | AnyProcessAllWindowFunction | None = None,
        accumulator_type: TypeLike = None,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Aggregate records as they come; a window function then sees exactly one element."""
        check_function(aggregate_function, AggregateFunction, allow_callable=False)
        _check_window_function(window_function, AllWindowFunction, ProcessAllWindowFunction)
        return self._windowed(aggregate_function, window_function, resolve_type(output_type))

    def apply(
        self, window_function: AnyAllWindowFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Call an AllWindowFunction with all records of a window."""
        _check_window_function(window_function, AllWindowFunction)
        return self._windowed(None, window_function, resolve_type(output_type))

    def process(
        self, process_window_function: AnyProcessAllWindowFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Call a ProcessAllWindowFunction with all records of a window."""
        _check_window_function(process_window_function, ProcessAllWindowFunction)
        return self._windowed(None, process_window_function, resolve_type(output_type))


def _check_window_function(function: object, *classes: type) -> None:
    if function is not None and not isinstance(function, classes):
        names = " or ".join(one.__name__ for one in classes)
        raise TypeError(f"window_function should be a {names}, not {function!r}")

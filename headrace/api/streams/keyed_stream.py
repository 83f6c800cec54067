"""KeyedStream: a stream partitioned by key; state, timers and windows are per key."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headrace.api.columns.expressions import check_columns, columns_of
from headrace.api.function_checks import (
    check_function,
    check_key_selector,
    check_position,
    resolve_type,
)
from headrace.api.streams.data_stream import DataStream, TypeLike
from headrace.api.transformations import (
    OperatorTransformation,
    PartitionTransformation,
    ValuesTransformation,
)
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.core.types.arrow_types import type_info_of_arrow
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    BigDecimalTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from headrace.functions.process import KeyedProcessFunction
from headrace.functions.record import ReduceFunction
from headrace.functions.specs.operator_specs import (
    KeyBySpec,
    KeyedProcessSpec,
    KeyedValuesSpec,
    ReduceSpec,
    RollingAggregationSpec,
)
from headrace.functions.windowing.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
)
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import Partitioning

if TYPE_CHECKING:
    from headrace.api.streams.cached_streams import CachedDataStream
    from headrace.api.streams.data_stream import DataStreamSink
    from headrace.api.streams.joined_streams import IntervalJoin
    from headrace.api.streams.windowed_stream import WindowedStream


_NO_NUMBERS: Final = frozenset(
    {BasicType.STRING, BasicType.CHAR, BasicType.BOOLEAN, BasicType.INSTANT}
)


def key_stream(
    stream: DataStream, selector: Any, columns: Sequence[Any], options: Mapping[str, Any]
) -> "KeyedStream":
    """Make the KeyedStream of a `key_by` call; accepts all forms of its arguments."""
    key_type = options.get("key_type")
    if set(options) - {"key_type"}:
        raise TypeError(f"key_by has no argument '{min(set(options) - {'key_type'})}'")
    if not isinstance(selector, str):
        check_key_selector(selector)
        if columns and key_type is None:
            key_type, *columns = columns
        if columns:
            raise TypeError("key_by takes one key selector, or the names of columns")
        return KeyedStream(stream, selector, (), resolve_type(key_type))
    names = (selector, *columns)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"key_by takes the names of columns, not {columns!r}")
    check_columns(names, stream.get_type(), "key_by")
    schema = columns_of(stream.get_type(), "key_by")
    types = [type_info_of_arrow(schema.field(name).type) for name in names]
    inferred = types[0] if len(names) == 1 else Types.ROW_NAMED(list(names), types)
    return KeyedStream(stream, None, names, resolve_type(key_type, default=inferred))


class KeyedStream(DataStream):
    """A stream partitioned by key.

    The functions of `map`, `flat_map`, `filter`, `process` and `reduce` may use keyed state. The stream has no
    operator of its own: set properties on the operators before and after it.

    Example:
        >>> from headrace import StreamExecutionEnvironment, Types
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> pairs = env.from_collection([(1, 1), (1, 2), (2, 5)], Types.TUPLE([Types.INT(), Types.INT()]))
        >>> sums = pairs.key_by(lambda pair: pair[0], Types.INT()).sum(1)
        >>> sums.get_type()
        TupleTypeInfo(Integer, Integer)
    """

    def __init__(
        self,
        origin: DataStream,
        selector: Any,
        key_columns: tuple[str, ...],
        key_type: TypeInformation,
    ) -> None:
        origin = origin.without_keys()
        environment = origin.get_execution_environment()
        key_by = environment.add_to_producers(
            KeyBySpec(selector, key_columns, key_type),
            origin.transformation,
            BatchType(origin.get_type(), key_type),
            is_function=True,
        )
        hashed = PartitionTransformation(key_by, Partitioning(PartitionerKind.HASH))
        super().__init__(environment, hashed)
        self._origin = origin
        self._key_type = key_type
        self._key_columns = key_columns

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the names of the key's columns; empty if the key is computed by a selector."""
        return self._key_columns

    @property
    def origin(self) -> DataStream:
        """Return the stream before `key_by`."""
        return self._origin

    def get_key_type(self) -> TypeInformation:
        """Return the type of the keys; `PickledByteArrayTypeInfo` if none was declared."""
        return self._key_type

    def process(  # pyright: ignore[reportIncompatibleMethodOverride]  # keyed functions only, as in PyFlink
        self,
        func: KeyedProcessFunction,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Call a KeyedProcessFunction, which has state and timers per key."""
        if not isinstance(func, KeyedProcessFunction):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"KeyedProcessFunction is required for KeyedStream, not {func!r}")
        return self._then(KeyedProcessSpec(func), resolve_type(output_type), is_function=True)

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        """Combine the records of each key; emits the running result for every record."""
        check_function(func, ReduceFunction)
        return self._then(ReduceSpec(func), self.get_type(), is_function=True)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Add up a field, by position or name; 0 also means the record itself if it is a number."""
        return self._aggregate("sum", position_to_sum, "locate the value to sum")

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Return the running minimum of a field; other fields keep the first record's values."""
        return self._aggregate("min", position_to_min, "locate the value to calculate min")

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Return the running maximum of a field; other fields keep the first record's values."""
        return self._aggregate("max", position_to_max, "locate the value to calculate max")

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """Return the whole record with the smallest field so far, the earliest on ties."""
        return self._aggregate("min_by", position_to_min_by, "locate the value to calculate min_by")

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """Return the whole record with the largest field so far, the earliest on ties."""
        return self._aggregate("max_by", position_to_max_by, "locate the value to calculate max_by")

    def window(self, window_assigner: Any) -> "WindowedStream":
        """Cut the records of each key into windows."""
        from headrace.api.streams.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> "WindowedStream":
        """Cut the records of each key into windows of `size` records, a new one every `slide` (0: every `size`)."""
        from headrace.api.streams.windowed_stream import WindowedStream

        if slide == 0:
            return WindowedStream(self, CountTumblingWindowAssigner(size))
        return WindowedStream(self, CountSlidingWindowAssigner(size, slide))

    def interval_join(self, other_stream: "KeyedStream") -> "IntervalJoin":
        """Pair each record with those of `other_stream` with the same key and a close event time."""
        from headrace.api.streams.joined_streams import IntervalJoin

        return IntervalJoin(self, other_stream)

    def join_rows(self, other_stream: "KeyedStream", window: Any = None) -> DataStream:
        """Pair each row with those of `other_stream` with the same key.

        The result has this stream's columns, then the other's. With `window` (tumbling, event time) rows of the same
        window are paired when it has ended; without it, two rows are paired as soon as both have arrived, and both
        streams are kept forever. Key columns with the same name in both streams appear once.
        """
        from headrace.api.columns.row_joins import join_rows

        return join_rows(self, other_stream, window)

    def key_by(self, key_selector: Any, *columns: Any, **options: Any) -> "KeyedStream":
        """Partition the values again by another key."""
        return self._origin.key_by(key_selector, *columns, **options)

    def project(self, *field_indexes: int) -> DataStream:
        return self.without_keys().project(*field_indexes)

    def print(self, sink_identifier: str | None = None) -> "DataStreamSink":
        return self.without_keys().print(sink_identifier)

    def cache(self) -> "CachedDataStream":
        """Make the cluster keep the values for later jobs, as `DataStream.cache` does."""
        # Stored are the subtasks' results of one operator, so here is one whether or not anybody reads it.
        return self._then(KeyedValuesSpec(), self.get_type(), is_function=True).cache()

    def sink_to(self, sink: Any) -> "DataStreamSink":
        return self.without_keys().sink_to(sink)

    def add_sink(self, sink_func: Any) -> "DataStreamSink":
        return self.without_keys().add_sink(sink_func)

    def partition_custom(self, partitioner: Any, key_selector: Any) -> DataStream:
        return self.without_keys().partition_custom(partitioner, key_selector)

    def assign_timestamps_and_watermarks(self, watermark_strategy: Any) -> DataStream:
        return self.without_keys().assign_timestamps_and_watermarks(watermark_strategy)

    def shuffle(self) -> NoReturn:
        _cannot_repartition("shuffle")

    def rescale(self) -> NoReturn:
        _cannot_repartition("rescale")

    def rebalance(self) -> NoReturn:
        _cannot_repartition("rebalance")

    def forward(self) -> NoReturn:
        _cannot_repartition("forward")

    def broadcast(
        self,
        broadcast_state_descriptor: object = None,
        *other_broadcast_state_descriptors: object,
    ) -> NoReturn:
        _cannot_repartition("broadcast")

    def _operator(self) -> OperatorTransformation:
        raise ProgramError(
            "a KeyedStream has no operator of its own: call this on the stream before key_by, or on the result"
        )

    def without_keys(self) -> DataStream:
        values = ValuesTransformation(self.transformation, self._origin.transformation)
        return DataStream(self.get_execution_environment(), values)

    def collected_stream(self) -> DataStream:
        row_type = Types.ROW([self._key_type, self.get_type()])
        return self._then(KeyedValuesSpec(with_keys=True), row_type, is_function=True)

    def _aggregate(self, aggregation: str, position: int | str, purpose: str) -> DataStream:
        check_position(position, purpose)
        _check_field(self.get_type(), aggregation, position)
        return self._then(
            RollingAggregationSpec(aggregation, position),
            self.get_type(),
            is_function=True,
            name=aggregation.capitalize().replace("_", " "),
        )


def require_keys_of_one_type(stream1: KeyedStream, stream2: KeyedStream) -> None:
    """Raise ProgramError if equal keys of the two streams would not meet in one subtask."""
    types = stream1.get_key_type(), stream2.get_key_type()
    if types[0] != types[1]:
        raise ProgramError(
            f"connected streams need keys of one type, but these are {types[0]} and {types[1]}"
        )


def _check_field(stream_type: TypeInformation, aggregation: str, position: int | str) -> None:
    """Raise ProgramError if the declared type has no such field."""
    match stream_type:
        case RowTypeInfo() | TupleTypeInfo():
            names = list(stream_type.field_names)
            if position not in names and not (
                isinstance(position, int) and 0 <= position < len(names)
            ):
                raise ProgramError(
                    f"{aggregation}: there is no field {position!r} in {stream_type}"
                )
            index = position if isinstance(position, int) else names.index(position)
            _check_number(aggregation, stream_type.field_types[index], f"field {position!r}")
        case PickledBytesTypeInfo():
            pass  # records will tell
        case _:
            if position != 0:
                raise ProgramError(
                    f"{aggregation}: records of type {stream_type} have no field {position!r}"
                )
            _check_number(aggregation, stream_type, "the record")


def _check_number(aggregation: str, value_type: TypeInformation, what: str) -> None:
    """Raise ProgramError if values of the type cannot be added up."""
    is_number = isinstance(value_type, BigDecimalTypeInfo | PickledBytesTypeInfo) or (
        isinstance(value_type, BasicTypeInfo) and value_type.basic_type not in _NO_NUMBERS
    )
    if aggregation == "sum" and not is_number:
        raise ProgramError(f"sum: {what} is of type {value_type}, which is not a number")


def _cannot_repartition(method: str) -> NoReturn:
    raise ProgramError(
        f"Cannot override partitioning for KeyedStream: {method}() is not possible after key_by"
    )

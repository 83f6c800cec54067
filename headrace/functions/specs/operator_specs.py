"""Specs of operators: the user's functions and the parameters that were set on the stream.

Each kind has one frozen dataclass; `headrace.operators.registry` has an operator for each. Plain callables are allowed
instead of function classes: the operator adapts them. The specs of vectorised keyed operators are in `columnar_specs`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.core.operator_events import (
    ALIGNED_COORDINATOR,
    AlignedSource,
    encode_aligned_source,
)
from headrace.core.operator_spec import OperatorSpec
from headrace.core.types.type_info import TypeInformation
from headrace.functions.async_io import AsyncOutputMode, AsyncRetryStrategy
from headrace.functions.column_conditions import ColumnCondition
from headrace.functions.state import MapStateDescriptor


@dataclass(frozen=True)
class FunctionSpec(OperatorSpec):
    """Base of operators around one user function."""

    function: Any

    def user_functions(self) -> tuple[object, ...]:
        """Return the one function."""
        return (self.function,)


@dataclass(frozen=True)
class MapSpec(FunctionSpec):
    """`map`: MapFunction or callable."""

    kind: ClassVar[str] = "map"
    default_name: ClassVar[str] = "Map"


@dataclass(frozen=True)
class FlatMapSpec(FunctionSpec):
    """`flat_map`: FlatMapFunction or callable returning an iterable or None."""

    kind: ClassVar[str] = "flat_map"
    default_name: ClassVar[str] = "FlatMap"


@dataclass(frozen=True)
class FilterSpec(FunctionSpec):
    """`filter` with a FilterFunction or callable."""

    kind: ClassVar[str] = "filter"
    default_name: ClassVar[str] = "Filter"


@dataclass(frozen=True)
class MapBatchesSpec(FunctionSpec):
    """`map_batches`: MapBatchesFunction or callable, from a batch of the data columns to one of the output schema.

    Rows keep their timestamps if their number is unchanged; otherwise they lose event time.
    """

    kind: ClassVar[str] = "map_batches"
    default_name: ClassVar[str] = "Map Batches"


@dataclass(frozen=True)
class FilterExpressionSpec(OperatorSpec):
    """`filter(col("x") > 3)`: a pyarrow.compute expression over the data columns.

    `implied`: a condition for the source before it that holds wherever the expression does, or None.
    `is_implied_whole`: True if the expression also holds wherever `implied` does.
    """

    expression: Any
    implied: ColumnCondition | None = None
    is_implied_whole: bool = False
    kind: ClassVar[str] = "filter_expression"
    default_name: ClassVar[str] = "Filter"


@dataclass(frozen=True)
class SelectExpressionsSpec(OperatorSpec):
    """`select(...)`: output columns as (name, expression) pairs over the data columns."""

    expressions: tuple[tuple[str, Any], ...]
    kind: ClassVar[str] = "select_expressions"
    default_name: ClassVar[str] = "Select"


@dataclass(frozen=True)
class ProjectSpec(OperatorSpec):
    """`project`: tuple fields by position."""

    field_indexes: tuple[int, ...]
    kind: ClassVar[str] = "project"
    default_name: ClassVar[str] = "Projection"


@dataclass(frozen=True)
class CacheSpec(OperatorSpec):
    """`cache`: follows a cached stream, and forwards its rows, in the first job and in later ones."""

    kind: ClassVar[str] = "cache"
    default_name: ClassVar[str] = "Cache"


@dataclass(frozen=True)
class KeyBySpec(OperatorSpec):
    """`key_by`: adds key and key hash to each row.

    Either `selector` (KeySelector or callable) or `columns` (names of data columns) is set.
    """

    selector: Any
    columns: tuple[str, ...]
    key_type: TypeInformation
    kind: ClassVar[str] = "key_by"
    default_name: ClassVar[str] = "_stream_key_by_map_operator"

    def user_functions(self) -> tuple[object, ...]:
        """Return the key selector, if any."""
        return () if self.selector is None else (self.selector,)


@dataclass(frozen=True)
class KeyedValuesSpec(OperatorSpec):
    """Turns a keyed stream into a plain one; `with_keys` into rows (key, value)."""

    with_keys: bool = False
    kind: ClassVar[str] = "keyed_values"
    default_name: ClassVar[str] = "_keyed_stream_values_operator"


@dataclass(frozen=True)
class TimestampsAndWatermarksSpec(OperatorSpec):
    """`assign_timestamps_and_watermarks`: a WatermarkStrategy. `is_bounded`: all its sources have an end."""

    strategy: Any
    is_bounded: bool = False
    kind: ClassVar[str] = "timestamps_and_watermarks"
    default_name: ClassVar[str] = "Timestamps/Watermarks"

    def user_functions(self) -> tuple[object, ...]:
        """Return the strategy, which holds the user's timestamp assigner."""
        return (self.strategy,)


@dataclass(frozen=True)
class ProcessSpec(FunctionSpec):
    """`process` on a plain stream: ProcessFunction."""

    kind: ClassVar[str] = "process"
    default_name: ClassVar[str] = "PROCESS"


@dataclass(frozen=True)
class KeyedProcessSpec(FunctionSpec):
    """`process` on a keyed stream: KeyedProcessFunction."""

    kind: ClassVar[str] = "keyed_process"
    default_name: ClassVar[str] = "KEYED PROCESS"


@dataclass(frozen=True)
class CoMapSpec(FunctionSpec):
    """`connect(...).map`: CoMapFunction. Two inputs."""

    kind: ClassVar[str] = "co_map"
    default_name: ClassVar[str] = "Co-Map"


@dataclass(frozen=True)
class CoFlatMapSpec(FunctionSpec):
    """`connect(...).flat_map`: CoFlatMapFunction. Two inputs."""

    kind: ClassVar[str] = "co_flat_map"
    default_name: ClassVar[str] = "Co-Flat Map"


@dataclass(frozen=True)
class CoProcessSpec(FunctionSpec):
    """`connect(...).process`: CoProcessFunction. Two inputs."""

    kind: ClassVar[str] = "co_process"
    default_name: ClassVar[str] = "Co-Process"


@dataclass(frozen=True)
class KeyedCoProcessSpec(FunctionSpec):
    """`connect(...).key_by(...).process`: KeyedCoProcessFunction. Two keyed inputs."""

    kind: ClassVar[str] = "keyed_co_process"
    default_name: ClassVar[str] = "Keyed Co-Process"


@dataclass(frozen=True)
class BroadcastProcessSpec(FunctionSpec):
    """`connect(broadcast stream).process`: BroadcastProcessFunction. Input 1 is the broadcast one.

    `descriptors` are those of the states that the broadcast stream feeds.
    """

    descriptors: tuple[MapStateDescriptor, ...]
    kind: ClassVar[str] = "broadcast_process"
    default_name: ClassVar[str] = "Co-Process-Broadcast"


@dataclass(frozen=True)
class KeyedBroadcastProcessSpec(FunctionSpec):
    """`connect(broadcast stream).process` on a keyed stream: KeyedBroadcastProcessFunction."""

    descriptors: tuple[MapStateDescriptor, ...]
    kind: ClassVar[str] = "keyed_broadcast_process"
    default_name: ClassVar[str] = "Keyed-Co-Process-Broadcast"


@dataclass(frozen=True)
class AsyncWaitSpec(FunctionSpec):
    """`AsyncDataStream.ordered_wait` and its relatives: AsyncFunction.

    At most `capacity` inputs are in flight; `timeout_ms` is the time for one input with all its retries.
    """

    timeout_ms: int
    capacity: int
    mode: AsyncOutputMode
    retry_strategy: AsyncRetryStrategy[Any]
    kind: ClassVar[str] = "async_wait"
    default_name: ClassVar[str] = "async wait operator"

    def user_functions(self) -> tuple[object, ...]:
        """Return the function, and the strategy that holds the user's predicates."""
        return (self.function, self.retry_strategy)


@dataclass(frozen=True)
class ReduceSpec(FunctionSpec):
    """`reduce` on a keyed stream: running reduce."""

    kind: ClassVar[str] = "reduce"
    default_name: ClassVar[str] = "Reduce"


@dataclass(frozen=True)
class RollingAggregationSpec(OperatorSpec):
    """`sum`, `min`, `max`, `min_by`, `max_by` on a keyed stream, of a field by position or name."""

    aggregation: str
    position: int | str
    kind: ClassVar[str] = "rolling_aggregation"
    default_name: ClassVar[str] = "Aggregation"


@dataclass(frozen=True)
class SourceSpec(OperatorSpec):
    """`from_source` and its relatives: a Source and its WatermarkStrategy (None: no watermarks)."""

    source: Any
    strategy: Any
    kind: ClassVar[str] = "source"
    default_name: ClassVar[str] = "Source"

    def user_functions(self) -> tuple[object, ...]:
        """Return the source, and the strategy that holds the user's timestamp assigner."""
        return (self.source,) if self.strategy is None else (self.source, self.strategy)

    def coordinator(self) -> tuple[str, bytes] | None:
        """Return the source's coordinator; wrapped in that for watermark alignment, if its strategy aligns."""
        own = self.source.coordinator()
        alignment = None if self.strategy is None else self.strategy.alignment
        if alignment is None:
            return own
        aligned = AlignedSource(alignment.group, alignment.max_drift_ms, own)
        return ALIGNED_COORDINATOR, encode_aligned_source(aligned)


@dataclass(frozen=True)
class SinkSpec(OperatorSpec):
    """`sink_to`: a Sink."""

    sink: Any
    kind: ClassVar[str] = "sink"
    default_name: ClassVar[str] = "Sink"

    def user_functions(self) -> tuple[object, ...]:
        """Return the sink."""
        return (self.sink,)

    def coordinator(self) -> tuple[str, bytes] | None:
        """Return the sink's coordinator, or None."""
        return self.sink.coordinator()

    def committer(self) -> tuple[str, bytes] | None:
        """Return the sink's committer, or None."""
        return self.sink.committer()


@dataclass(frozen=True)
class PrintSinkSpec(OperatorSpec):
    """`print`: one line per record on the TaskManager's standard output."""

    identifier: str | None
    kind: ClassVar[str] = "print"
    default_name: ClassVar[str] = "Print to Std. Out"


@dataclass(frozen=True)
class CollectSinkSpec(OperatorSpec):
    """`execute_and_collect`: sends records to the client through the JobMaster, as operator events.

    `limit`: the largest number of records that the client takes; None: all.
    """

    limit: int | None = None
    kind: ClassVar[str] = "collect"
    default_name: ClassVar[str] = "Collect"

    def coordinator(self) -> tuple[str, bytes] | None:
        """Return the coordinator that keeps collected records for the client."""
        return ("collect", b"")


@dataclass(frozen=True)
class WindowSpec(OperatorSpec):
    """A window with a user function.

    `incremental` is the ReduceFunction or AggregateFunction (or callable, for reduce) that folds records as they
    arrive, or None; `window_function` a (Process)(All)WindowFunction or None. At least one of them is set. `is_keyed`
    is False for `window_all`. `trigger` None means the assigner's default. `late_tag_id` None drops late records
    (counted). With an `evictor` records are kept unchanged, and folded when the window fires. `accumulator_type`: type
    of an AggregateFunction's accumulators, which are pickled without it.
    """

    assigner: Any
    trigger: Any
    allowed_lateness_ms: int
    late_tag_id: str | None
    incremental: Any
    window_function: Any
    is_keyed: bool
    evictor: Any = None
    accumulator_type: TypeInformation | None = None
    kind: ClassVar[str] = "window"
    default_name: ClassVar[str] = "Window"

    def user_functions(self) -> tuple[object, ...]:
        """Return the functions that are set."""
        return tuple(f for f in (self.incremental, self.window_function) if f is not None)


@dataclass(frozen=True)
class TwoStreamWindowSpec(OperatorSpec):
    """A window over two keyed streams. Two inputs.

    `function` receives the records of both for a key and window; `trigger` and the tags of late records of either
    stream as in WindowSpec. Triggers and evictors see TaggedUnions.
    """

    assigner: Any
    trigger: Any
    evictor: Any
    allowed_lateness_ms: int
    late_tag_ids: tuple[str | None, str | None]
    function: Any

    def user_functions(self) -> tuple[object, ...]:
        """Return the one function."""
        return (self.function,)


@dataclass(frozen=True)
class CoGroupSpec(TwoStreamWindowSpec):
    """`co_group`: a CoGroupFunction or callable that gets both sides of a window. Two keyed inputs."""

    kind: ClassVar[str] = "co_group"
    default_name: ClassVar[str] = "CoGroup"


@dataclass(frozen=True)
class WindowJoinSpec(TwoStreamWindowSpec):
    """`join`: a JoinFunction, FlatJoinFunction or callable for each pair in a window. Two keyed inputs."""

    kind: ClassVar[str] = "window_join"
    default_name: ClassVar[str] = "Join"


@dataclass(frozen=True)
class IntervalJoinSpec(FunctionSpec):
    """`interval_join`: a ProcessJoinFunction for each pair that is close in event time. Two keyed inputs.

    A pair is close if right - left is in [`lower_bound_ms`, `upper_bound_ms`]. `late_tag_ids`: tags for the left and
    the right stream; None drops late records (counted).
    """

    lower_bound_ms: int
    upper_bound_ms: int
    late_tag_ids: tuple[str | None, str | None]
    kind: ClassVar[str] = "interval_join"
    default_name: ClassVar[str] = "Interval Join"


@dataclass(frozen=True)
class ColumnAggregate:
    """One built-in aggregate of a window: `function` over `column`, into `output_name`.

    `function`: count, count_distinct, sum, mean, min, max, quantile (with `parameter` in [0, 1]), first, last. count of
    column None counts rows.
    """

    function: str
    column: str | None
    output_name: str
    parameter: float | None = None


@dataclass(frozen=True)
class WindowAggregateSpec(OperatorSpec):
    """Built-in aggregates on tumbling or sliding event-time windows: the vectorised path.

    Output columns: key columns, `window_start` and `window_end` (timestamp[ms]), then one per aggregate.
    """

    assigner: Any
    allowed_lateness_ms: int
    late_tag_id: str | None
    aggregates: tuple[ColumnAggregate, ...]
    key_columns: tuple[str, ...]
    kind: ClassVar[str] = "window_aggregate"
    default_name: ClassVar[str] = "Window Aggregate"

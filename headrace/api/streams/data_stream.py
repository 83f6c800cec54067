"""DataStream: a stream of records; each transformation returns a new stream.

DataStreamSink is the end of a pipeline. Read on in `keyed_stream`, `connected_streams` and `windowed_stream`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from headrace.api.client.collected_records import CloseableIterator
from headrace.api.columns.expressions import (
    Expression,
    as_named_expressions,
    check_predicate,
    selected_type,
)
from headrace.api.function_checks import (
    call_site,
    check_function,
    check_key_selector,
    check_partitioner,
    resolve_type,
)
from headrace.api.streams.stream_properties import OperatorProperties, StreamProperties
from headrace.api.streams.stream_results import (
    RESULT_MEMORY_BYTES,
    StreamPreview,
    collect_arrow,
    collect_pandas,
    collect_polars,
    dataframe_output,
    preview,
    spark_dataframe,
    stream_html,
)
from headrace.api.transformations import (
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    Transformation,
    batch_type_of,
    is_bounded,
    operator_behind,
    united,
    upstreams_of,
)
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
from headrace.core.pyflink_refusals import NO_SINK_FUNCTIONS
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import TupleTypeInfo, TypeInformation
from headrace.functions.process import OutputTag, ProcessFunction
from headrace.functions.record import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapBatchesFunction,
    MapFunction,
    Partitioner,
)
from headrace.functions.sink import Sink, SupportsPreprocessing
from headrace.functions.specs.operator_specs import (
    FilterExpressionSpec,
    FilterSpec,
    FlatMapSpec,
    MapBatchesSpec,
    MapSpec,
    PrintSinkSpec,
    ProcessSpec,
    ProjectSpec,
    SelectExpressionsSpec,
    SinkSpec,
    TimestampsAndWatermarksSpec,
)
from headrace.functions.state import MapStateDescriptor
from headrace.functions.watermarks import WatermarkStrategy
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.stream_graph import NodeRole, Partitioning

if TYPE_CHECKING:
    from headrace.api.environment import StreamExecutionEnvironment
    from headrace.api.settings.execution_config import ExecutionConfig
    from headrace.api.streams.cached_streams import CachedDataStream
    from headrace.api.streams.connected_streams import (
        BroadcastConnectedStream,
        BroadcastStream,
        ConnectedStreams,
    )
    from headrace.api.streams.joined_streams import CoGroupedStreams, JoinedStreams
    from headrace.api.streams.keyed_stream import KeyedStream
    from headrace.api.streams.partition_windowed_stream import PartitionWindowedStream
    from headrace.api.streams.windowed_stream import AllWindowedStream


class DataStreamSink(OperatorProperties):
    """A sink operator, whose name and other properties can still be set."""

    def __init__(self, operator: OperatorTransformation) -> None:
        self._sink_operator = operator

    def _operator(self) -> OperatorTransformation:
        return self._sink_operator

    def __repr__(self) -> str:
        return f"DataStreamSink('{self._sink_operator.name}')"


TypeLike = TypeInformation | Sequence[TypeInformation] | None


class DataStream(StreamProperties):
    """A stream of records.

    Example:
        >>> from headrace import StreamExecutionEnvironment, Types
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_collection(["to", "be", "or"], Types.STRING())
        >>> lengths = words.map(len, Types.INT()).name("lengths")
        >>> lengths.get_name(), lengths.get_type()
        ('lengths', Integer)
    """

    def __init__(
        self, environment: "StreamExecutionEnvironment", transformation: Transformation
    ) -> None:
        self._environment = environment
        self.transformation = transformation

    def get_type(self) -> TypeInformation:
        """Return the type of the records; `PickledByteArrayTypeInfo` if none was declared."""
        return batch_type_of(self.transformation).value_type

    def get_execution_environment(self) -> "StreamExecutionEnvironment":
        return self._environment

    def get_execution_config(self) -> "ExecutionConfig":
        return self._environment.get_config()

    def map(
        self, func: Callable[[Any], Any] | MapFunction, output_type: TypeLike = None
    ) -> "DataStream":
        """Turn every record into one result."""
        check_function(func, MapFunction)
        return self._then(MapSpec(func), resolve_type(output_type), is_function=True)

    def flat_map(
        self, func: Callable[[Any], Any] | FlatMapFunction, output_type: TypeLike = None
    ) -> "DataStream":
        """Turn every record into any number of results: `func` returns an iterable, None, or is a generator."""
        check_function(func, FlatMapFunction)
        return self._then(FlatMapSpec(func), resolve_type(output_type), is_function=True)

    def filter(self, func: "Callable[[Any], bool] | FilterFunction | Expression") -> "DataStream":
        """Keep the records for which `func` is true: a function of a record, or an expression over columns.

        An expression (`col("dep_delay") > 15`) needs a typed stream and runs on whole batches; rows for which it is
        null are dropped.
        """
        if isinstance(func, Expression):
            check_predicate(func, self.get_type(), "filter")
            spec = FilterExpressionSpec(func.to_arrow(), func.implied, func.is_implied_whole)
            return self._then(spec, self.get_type(), is_function=True)
        check_function(func, FilterFunction)
        return self._then(FilterSpec(func), self.get_type(), is_function=True)

    def process(self, func: ProcessFunction, output_type: TypeLike = None) -> "DataStream":
        """Call a ProcessFunction, which sees timestamps and may write to side outputs."""
        check_function(func, ProcessFunction, allow_callable=False)
        return self._then(ProcessSpec(func), resolve_type(output_type), is_function=True)

    def project(self, *field_indexes: int) -> "DataStream":
        """Keep the tuple fields at these positions, in that order."""
        own_type = self.get_type()
        if not isinstance(own_type, TupleTypeInfo):
            raise TypeError("Only Tuple DataStreams can be projected.")
        types = own_type.get_field_types()
        if not field_indexes or not all(0 <= index < len(types) for index in field_indexes):
            raise ValueError(
                f"project needs positions within 0..{len(types) - 1}, not {field_indexes}"
            )
        kept = TupleTypeInfo([types[index] for index in field_indexes])
        return self._then(ProjectSpec(tuple(field_indexes)), kept, is_function=True)

    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy
    ) -> "DataStream":
        """Assign event time to the records and generate watermarks."""
        if not isinstance(watermark_strategy, WatermarkStrategy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a WatermarkStrategy is needed, not {watermark_strategy!r}")
        if watermark_strategy.alignment is not None:
            raise ProgramError(
                "watermark alignment pauses sources: pass a strategy with alignment to from_source"
            )
        spec = TimestampsAndWatermarksSpec(watermark_strategy, is_bounded(self.transformation))
        return self._then(spec, self.get_type(), is_function=True)

    def map_batches(
        self,
        func: Callable[[pa.RecordBatch], pa.RecordBatch] | MapBatchesFunction,
        output_type: "TypeLike | pa.Schema" = None,
    ) -> "DataStream":
        """Turn every `pyarrow.RecordBatch` of the stream's columns into another one.

        `output_type` is the type or the Arrow schema of the result; by default the stream's own. Results must not
        depend on the number of rows in a batch. Event time is kept if `func` keeps the number of rows.
        """
        check_function(func, MapBatchesFunction)
        return self._then(
            MapBatchesSpec(func),
            resolve_type(output_type, default=self.get_type()),
            is_function=True,
        )

    def select(self, *columns: "str | Expression", **named: "Expression") -> "DataStream":
        """Make rows of the given columns and expressions.

        Example:
            >>> from headrace import StreamExecutionEnvironment, Types, col
            >>> env = StreamExecutionEnvironment.get_execution_environment()
            >>> flights = env.from_collection([("EWR", 12)], Types.ROW_NAMED(
            ...     ["origin", "delay"], [Types.STRING(), Types.INT()]))
            >>> flights.select("origin", late=col("delay") > 10).get_type()
            RowTypeInfo(origin: String, late: Boolean)
        """
        expressions = as_named_expressions(columns, named)
        output_type = selected_type(expressions, self.get_type())
        pairs = tuple((name, expression.to_arrow()) for name, expression in expressions)
        return self._then(SelectExpressionsSpec(pairs), output_type, is_function=True)

    @overload
    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector,
        key_type: TypeInformation | None = None,
    ) -> "KeyedStream": ...
    @overload
    def key_by(self, key_selector: str, *columns: str) -> "KeyedStream": ...
    def key_by(self, key_selector: Any, *columns: Any, **options: Any) -> "KeyedStream":
        """Partition by key: by a selector, or by the names of columns of a typed stream.

        Without `key_type`, the key of a selector is pickled, and named columns keep their own types. Named columns
        are hashed in one go per batch, which is much faster than a selector.
        """
        from headrace.api.streams.keyed_stream import key_stream

        return key_stream(self, key_selector, columns, options)

    def union(self, *streams: "DataStream") -> "DataStream":
        """Merge with streams of the same type; a stream merged with itself gives every record twice.

        ProgramError unless all streams have one type and one environment.
        """
        for other in streams:
            if not isinstance(other, DataStream):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"union needs DataStreams, not {other!r}")
            if other.get_type() != self.get_type():
                raise ProgramError(
                    f"union needs streams of one type, but these are of {self.get_type()} and {other.get_type()}"
                )
        require_one_environment("union", self, *streams)
        inputs = [one.without_keys() for one in (self, *streams)]
        if len(inputs) == 1:
            return inputs[0]
        return DataStream(self._environment, united([one.transformation for one in inputs]))

    @overload
    def connect(self, ds: "DataStream") -> "ConnectedStreams": ...
    @overload
    def connect(self, ds: "BroadcastStream") -> "BroadcastConnectedStream": ...
    def connect(
        self, ds: "DataStream | BroadcastStream"
    ) -> "ConnectedStreams | BroadcastConnectedStream":
        """Connect with a stream of any type, or with a BroadcastStream, to share one operator and its state."""
        from headrace.api.streams.connected_streams import (
            BroadcastConnectedStream,
            BroadcastStream,
            ConnectedStreams,
        )

        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def join(self, other_stream: "DataStream") -> "JoinedStreams":
        """Pair the records of two streams that have the same key and lie in the same window."""
        from headrace.api.streams.joined_streams import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: "DataStream") -> "CoGroupedStreams":
        """Group the records of two streams that have the same key and lie in the same window."""
        from headrace.api.streams.joined_streams import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def window_all(self, window_assigner: Any) -> "AllWindowedStream":
        """Put all records into windows of one non-parallel operator."""
        from headrace.api.streams.windowed_stream import AllWindowedStream

        return AllWindowedStream(self.without_keys(), window_assigner)

    def full_window_partition(self) -> "PartitionWindowedStream":
        """Collect all records of each subtask, or of each key of a keyed stream, until the input ends."""
        from headrace.api.streams.partition_windowed_stream import PartitionWindowedStream

        return PartitionWindowedStream(self)

    def shuffle(self) -> "DataStream":
        """Send each record to a random subtask."""
        return self._partitioned(Partitioning(PartitionerKind.SHUFFLE))

    def rescale(self) -> "DataStream":
        """Distribute records round robin within groups of neighbouring subtasks."""
        return self._partitioned(Partitioning(PartitionerKind.RESCALE))

    def rebalance(self) -> "DataStream":
        """Distribute records round robin over all subtasks."""
        return self._partitioned(Partitioning(PartitionerKind.REBALANCE))

    def forward(self) -> "DataStream":
        """Send to the subtask of the same index; needs equal parallelism."""
        return self._partitioned(Partitioning(PartitionerKind.FORWARD))

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector,
    ) -> "DataStream":
        """Send each record to the subtask that `partitioner(key, num_partitions)` returns.

        An index out of range fails the job.
        """
        check_partitioner(partitioner)
        check_key_selector(key_selector)
        return self._partitioned(Partitioning(PartitionerKind.CUSTOM, (partitioner, key_selector)))

    @overload
    def broadcast(self) -> "DataStream": ...
    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> "BroadcastStream": ...
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> "DataStream | BroadcastStream":
        """Send every record to every subtask; with descriptors, make a BroadcastStream that feeds broadcast states."""
        from headrace.api.streams.connected_streams import BroadcastStream

        if broadcast_state_descriptor is not None:
            descriptors = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
            return BroadcastStream(self, descriptors)
        return self._partitioned(Partitioning(PartitionerKind.BROADCAST))

    def get_side_output(self, output_tag: OutputTag) -> "DataStream":
        """Return the records that the operator of this stream sent to the tag."""
        if not isinstance(output_tag, OutputTag):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"get_side_output needs an OutputTag, not {output_tag!r}")
        operator = self._operator()
        side_type = BatchType(output_tag.type_info)
        operator.declare_side_output(output_tag.tag_id, side_type)
        side_output = SideOutputTransformation(operator, output_tag.tag_id, side_type)
        return DataStream(self._environment, side_output)

    def cache(self) -> "CachedDataStream":
        """Make the cluster keep the records for later jobs of this environment, which then do not compute them again.

        The first job that reaches the stream stores them on its TaskManagers, until `invalidate()`, `env.close()` or
        the end of the program. If they are lost, the next job computes them again. ProgramError if a source has no end.
        """
        return self._environment.cache_stream(self)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Write every record as a line to the standard output of its TaskManager."""
        return self._end(PrintSinkSpec(sink_identifier), PrintSinkSpec.default_name)

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """End the stream in a connector's Sink."""
        if not isinstance(sink, Sink):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"sink_to needs a Sink, not {sink!r}")
        return _sink_input(self, sink)._end(SinkSpec(sink), type(sink).__name__)

    def add_sink(self, sink_func: Sink) -> DataStreamSink:
        """End the stream in a Sink; older name of `sink_to`, which PyFlink still uses for sinks such as JdbcSink."""
        if not isinstance(sink_func, Sink):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"add_sink needs a Sink, not {sink_func!r}: {NO_SINK_FUNCTIONS}")
        return self.sink_to(sink_func)

    def foreach_batch(
        self, function: Callable[[Any, Any], None], *, staging_path: str | None = None
    ) -> DataStreamSink:
        """Call `function(df, checkpoint_id)` in the driver with the records of each checkpoint, as a Spark DataFrame.

        Like Spark's `foreachBatch`, this reaches every system to which Spark can write. Ids grow, with gaps; a
        checkpoint without records makes no call, and the last call comes before the job has FINISHED. After a failure
        the function may be called again with the same id and the same records, never with others: write so that a
        repetition changes nothing. The id's attribute `lineage` stays the same if the job is continued, and is new if
        it begins without state. An error of the function fails the job, unless the error's attribute `recoverable` is
        True: then the function is called again. A job without checkpoints calls it once, with id 1, when all its tasks
        have finished.

        `staging_path`: a folder shared by driver and TaskManagers for records that wait for their checkpoint; by
        default one below `execution.checkpointing.dir`. ProgramError if the records have no declared type.

        Example:
            >>> from headrace import StreamExecutionEnvironment, Types
            >>> env = StreamExecutionEnvironment.get_execution_environment()
            >>> def write(df, checkpoint_id):
            ...     df.write.mode("overwrite").parquet(f"out/checkpoint={checkpoint_id}")
            >>> sink = env.from_collection([1, 2], Types.LONG()).foreach_batch(write).name("results")
        """
        return self.sink_to(dataframe_output("foreach-batch")(function, staging_path or ""))

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None) -> CloseableIterator: ...
    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[Any]: ...
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the job and return this stream's records as Python values of its type.

        The result is an iterator and a context manager; closing it ends the job. With `limit` it is a list of at most
        that many records.
        """
        iterator = self._environment.execute_and_collect_stream(self, job_execution_name, limit)
        if limit is None:
            return iterator
        with iterator:
            return iterator.take(limit)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Run the job and return this stream's records as a table with the columns of the stream's type.

        At most `limit` records, after which the job is cancelled; a stream without an end needs one. In BATCH mode the
        job runs to its end, and `limit` bounds what is brought to the driver. ProgramError if the records have no
        declared type.
        """
        return collect_arrow(self, limit)

    def to_pandas(self, limit: int | None = None) -> Any:
        """Run the job and return this stream's records as a pandas DataFrame; otherwise as `to_arrow`. Needs pandas."""
        return collect_pandas(self, limit)

    def to_polars(self, limit: int | None = None) -> Any:
        """Run the job and return this stream's records as a polars DataFrame; otherwise as `to_arrow`. Needs polars."""
        return collect_polars(self, limit)

    def to_dataframe(
        self,
        *,
        streaming: bool = False,
        path: str | None = None,
        memory_bytes: int = RESULT_MEMORY_BYTES,
    ) -> Any:
        """Run the job and return this stream's records as a DataFrame of the program's Spark session.

        For a bounded program this is an ordinary DataFrame: the job has FINISHED, the program's other sinks have
        received their rows, and no action on the DataFrame runs a function again. Records up to `memory_bytes` are
        passed in memory, more of them in Parquet files that are deleted when the program ends. In BATCH mode Spark's
        tasks write such files themselves, whatever their size, and no row comes through the driver.

        `streaming`: the job runs on, and the DataFrame streams what its checkpoints commit, each record once; queries
        start it with `writeStream`. `path`: the folder of the log of batches, from which a restarted program takes the
        batches that its query has not processed yet; by default a folder that is deleted with the program. ProgramError
        if the records have no declared type, or if they have no end and `streaming` is false.
        """
        return spark_dataframe(self, streaming, path, memory_bytes)

    def preview(self, n: int = 10, timeout_s: float = 30) -> StreamPreview:
        """Run the producers of this stream until it has given `n` records, return these and cancel the job.

        No other sink of the program runs, and the program is not changed. If `timeout_s` passes first, the records that
        have arrived until then are returned. The preview always runs in STREAMING mode, without a savepoint and without
        checkpoints, so it does not affect what the program will read.
        """
        return preview(self, n, timeout_s)

    def _operator(self) -> OperatorTransformation:
        operator = operator_behind(self.transformation)
        if operator is None or operator is not self.transformation:
            raise ProgramError(
                "this stream has no operator of its own (it is a partitioned or united stream or a side output): "
                "call this on the stream that an operator returned"
            )
        return operator

    def without_keys(self) -> "DataStream":
        """Return the stream without keys."""
        return self

    def collected_stream(self) -> "DataStream":
        """Return the stream whose records `execute_and_collect` returns."""
        return self

    def _partitioned(self, partitioning: Partitioning) -> "DataStream":
        return DataStream(
            self._environment, PartitionTransformation(self.transformation, partitioning)
        )

    def _then(
        self, spec: OperatorSpec, output_type: TypeInformation, **properties: Any
    ) -> "DataStream":
        """Add a one-input operator."""
        operator = self._environment.add_operator(
            spec, (self.transformation,), BatchType(output_type), **properties
        )
        return DataStream(self._environment, operator)

    def _end(self, spec: OperatorSpec, name: str) -> DataStreamSink:
        operator = self._environment.add_operator(
            spec,
            (self.transformation,),
            batch_type_of(self.transformation),
            name=name,
            role=NodeRole.SINK,
        )
        return DataStreamSink(operator)

    def _repr_html_(self) -> str:
        return stream_html(self)

    def __repr__(self) -> str:
        operator = operator_behind(self.transformation)
        made_by = "" if operator is None else f"'{operator.name}', "
        return f"{type(self).__name__}({made_by}{self.get_type()})"


def require_one_environment(method: str, *streams: DataStream) -> None:
    """Raise ProgramError, which says where the streams were made, if they belong to different environments.

    `method` is the name of the call that combines the streams. Each environment numbers its own operators, so the
    numbers of two would collide.
    """
    first, *others = streams
    for other in others:
        if other.get_execution_environment() is not first.get_execution_environment():
            raise ProgramError(
                f"{method} needs streams of one environment, but {_made_at(first)} and {_made_at(other)} belong to "
                "two: make both streams from one get_execution_environment()"
            )


def _made_at(stream: DataStream) -> str:
    operator = next(upstreams_of(stream.transformation)).operator
    return f"the stream of '{operator.name}' ({operator.location})"


def _sink_input(stream: DataStream, sink: Sink) -> DataStream:
    """Return the stream that the sink writes.

    ProgramError, naming the stream's operator, if the sink cannot write its records.
    """
    transformer = sink.get_transformer() if isinstance(sink, SupportsPreprocessing) else None
    written = stream if transformer is None else transformer.apply(stream)
    if not isinstance(written, DataStream):
        raise TypeError(f"{transformer!r} must give a DataStream to {sink!r}, not {written!r}")
    written = written.without_keys()
    try:
        sink.check_input(written.get_type())
    except ProgramError as error:
        made_by = operator_behind(written.transformation)
        source = "a union" if made_by is None else f"operator '{made_by.name}'"
        raise ProgramError(f"{error} (the stream of {source}, {call_site()})") from None
    return written

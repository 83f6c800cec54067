"""StreamExecutionEnvironment: entry point of a program. It makes streams, keeps settings and runs the job."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast

import msgspec

from headrace.api.client import program_end
from headrace.api.client.collected_records import CloseableIterator
from headrace.api.client.job_client import (
    DetachedJobExecutionResult,
    JobClient,
    JobExecutionResult,
)
from headrace.api.executors import (
    ATTACHED,
    PREVIEW_SETTINGS,
    PipelineExecutor,
    executor_for,
    job_finished,
    job_planned,
    job_submitted,
    known_parallelism,
    refuse_dataframe_elsewhere,
)
from headrace.api.function_checks import call_site, check_collection, check_name, resolve_type
from headrace.api.settings.checkpoint_config import check_checkpoints
from headrace.api.settings.environment_settings import EnvironmentSettings
from headrace.api.settings.job_artifacts import job_artifacts
from headrace.api.stream_graph_generator import GraphDefaults, generate_stream_graph
from headrace.api.streams.cached_streams import CachedDataStream, CachedStreams, cache_stream
from headrace.api.streams.data_stream import DataStream
from headrace.api.transformations import (
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    Transformation,
    UnionTransformation,
    ValuesTransformation,
    batch_type_of,
    operator_behind,
    producers_of,
    united,
    upstreams_of,
)
from headrace.core.config import Settings
from headrace.core.entry_points import entry_point_names, load_entry_point
from headrace.core.errors import (
    CachedStreamLostError,
    HeadraceError,
    JobCancelledError,
    JobExecutionError,
    ProgramError,
    RecordTypeError,
)
from headrace.core.ids import ClusterDataSetId, JobId
from headrace.core.operator_spec import OperatorSpec
from headrace.core.pyflink_refusals import NO_INPUT_FORMATS, NO_SOURCE_FUNCTIONS, no_jvm
from headrace.core.randomness import system_random
from headrace.core.record_batch import BatchType
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import TypeInformation
from headrace.functions.source import Boundedness, Source
from headrace.functions.sources.arrow_source import read_arrow
from headrace.functions.sources.collection_source import CollectionSource
from headrace.functions.specs.operator_specs import (
    CacheSpec,
    CollectSinkSpec,
    KeyedValuesSpec,
    SinkSpec,
    SourceSpec,
)
from headrace.functions.watermarks import WatermarkStrategy
from headrace.graph.execution_plan import explain, plan_json
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import (
    check_program,
    check_stream_graph,
    generate_job_graph,
)
from headrace.graph.operator_ids import operator_ids
from headrace.graph.pipeline_options import (
    DEFAULT_JOB_NAME,
    PIPELINE_NAME,
    runs_in_batch,
)
from headrace.graph.stream_graph import NodeRole, StreamGraph

_LOG: Final = logging.getLogger(__name__)
SOURCES: Final = "headrace.sources"
"""Entry points of connectors for which the environment has a method."""
_DATAFRAME_BRIDGES: Final = "headrace.dataframe_bridges"
"""Entry points of libraries whose DataFrames become sources."""

_FORGOTTEN: Final = (
    "The last execute() started no job, and like every execute() it removed the sinks from the environment: add the "
    "sinks again before the next execute()."
)


class StreamExecutionEnvironment(EnvironmentSettings):
    """Makes streams and runs them as one job.

    Example:
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.set_parallelism(2)
        >>> _ = env.from_collection([1, 2, 3]).map(lambda n: n * n).print()
        >>> print(env.explain().splitlines()[0])
        JobGraph 'Flink Streaming Job': 2 vertices, 1 edge
    """

    def __init__(self, configuration: object = None) -> None:
        super().__init__(configuration)
        self._operators: list[OperatorTransformation] = []
        self._has_forgotten = False
        """True after an execute() that failed before there was a job: its sinks are gone, as the next error says."""
        self._last_id = 0
        self._cached_streams: Final = CachedStreams(self._executor)

    @staticmethod
    def get_execution_environment(configuration: object = None) -> "StreamExecutionEnvironment":
        """Make an environment.

        A Configuration (or a mapping) gives settings, which those of the command line override.
        """
        return StreamExecutionEnvironment(configuration)

    def from_collection(
        self, collection: Sequence[Any], type_info: TypeInformation | None = None
    ) -> DataStream:
        """Make a bounded stream of the values of a list, in order.

        Without a type the values travel pickled and come out equal to what went in; with one they are converted
        to it, and a value that does not fit raises RecordTypeError here. A DataFrame or a dict raises TypeError,
        because iterating them gives column names or keys.
        """
        check_collection(collection)
        resolved = resolve_type(type_info)
        try:
            source = CollectionSource(list(collection), resolved)
        except RecordTypeError as error:
            place = f"element {error.row_index} of the collection, {call_site()}"
            raise error.at(place) from None
        return self._add_source(source, None, "Collection Source", resolved, is_parallel=False)

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Make a stream of a connector's source; `type_info` is used if the source does not know its type."""
        if not isinstance(source, Source):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"from_source needs a Source, not {source!r}")
        if not isinstance(watermark_strategy, WatermarkStrategy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"from_source needs a WatermarkStrategy, not {watermark_strategy!r}")
        produced = resolve_type(type_info, default=source.produced_type)
        return self._add_source(
            source, watermark_strategy, check_name(source_name, "a source name"), produced
        )

    def add_source(
        self,
        source_func: object,
        source_name: str = "Custom Source",
        type_info: TypeInformation | None = None,
    ) -> NoReturn:
        """Raise ProgramError: SourceFunctions are Java classes."""
        raise no_jvm("add_source", NO_SOURCE_FUNCTIONS)

    def create_input(
        self, input_format: Source, type_info: TypeInformation | None = None
    ) -> DataStream:
        """Make a bounded stream of a Source, without watermarks.

        ProgramError for InputFormats, which are Java classes.
        """
        if not isinstance(input_format, Source):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise no_jvm("create_input", NO_INPUT_FORMATS)
        if input_format.boundedness is not Boundedness.BOUNDED:
            raise ProgramError(
                "create_input needs a bounded source: pass an unbounded one to from_source"
            )
        no_watermarks = WatermarkStrategy.no_watermarks()
        return self.from_source(input_format, no_watermarks, "Custom Source", type_info)

    def socket_text_stream(
        self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0
    ) -> DataStream:
        """Make an endless stream of the lines that a server sends; for trying things out.

        **At most once**: a failure loses the lines that had not passed through the whole job, and those sent while the
        job restarts; checkpoints do not change that. `max_retry`: how many times to connect again when there is no
        connection; 0 ends the stream when the server closes, below 0 never gives up.
        """
        source: Source = load_entry_point(SOURCES, "socket")(hostname, port, delimiter, max_retry)
        lines = resolve_type(None, default=source.produced_type)
        return self._add_source(source, None, "Socket Stream", lines, is_parallel=False)

    def from_dataframe(
        self,
        df: Any,
        *,
        event_time: str | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
        name: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        checkpoint_location: str | None = None,
    ) -> DataStream:
        """Make a stream of a DataFrame's rows, typed by its columns; also `from_arrow`, for pandas and polars.

        The stream is bounded, or endless for a streaming DataFrame.

        `event_time` names the column whose time is each row's timestamp. Without a watermark strategy event time
        advances only at the end of the stream. A streaming DataFrame that has `withWatermark` gives both its column and
        its delay.

        For streaming DataFrames: `trigger` as in PySpark's `writeStream.trigger`, such as {"availableNow": True};
        `checkpoint_location` of the query, by default a folder next to the job's checkpoints.
        """
        more = {"trigger": trigger, "checkpoint_location": checkpoint_location}
        options = {key: value for key, value in more.items() if value is not None}
        source, type_info, delay_ms = _dataframe_source(df, event_time, options)
        if watermark_strategy is None and delay_ms is not None:
            delay = Duration.of_millis(delay_ms)
            watermark_strategy = WatermarkStrategy.for_bounded_out_of_orderness(delay)
        return self._add_source(source, watermark_strategy, name or "DataFrame", type_info)

    def from_arrow(
        self,
        data: Any,
        *,
        event_time: str | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Make a bounded stream of the rows of anything with Arrow's stream interface (`__arrow_c_stream__`).

        Examples are tables and readers of pyarrow, DataFrames of pandas and polars, and results of DuckDB. The rows are
        read here, at most 1 GiB, and travel with the job in columns. Times must be whole microseconds. `event_time` and
        `watermark_strategy` are as in `from_dataframe`.

        Example:
            >>> import pyarrow as pa
            >>> env = StreamExecutionEnvironment.get_execution_environment()
            >>> env.from_arrow(pa.table({"airport": ["EWR", "JFK"], "delay": [2.0, 31.0]})).get_type()
            RowTypeInfo(airport: String, delay: Double)
        """
        source = read_arrow(data, event_time)
        return self._add_source(source, watermark_strategy, name or "Arrow", source.produced_type)

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program as a job and wait until it ends. A failed job raises JobExecutionError.

        The streams made so far are forgotten, so the environment can be used for another job. Ctrl-C cancels the
        job; the process of a function that does not return is ended after two seconds, or at a second Ctrl-C.

        If a cached stream that the job reads is lost, the job runs once more and computes the stream again.
        """
        said = list(self._operators)
        try:
            return self._execute(job_name)
        except CachedStreamLostError as error:
            _LOG.warning("%s", error)
            self._cached_streams.lost(error.data_set, self._executor())
            self._operators = said
            return self._execute(job_name)

    def _execute(self, job_name: str | None) -> JobExecutionResult:
        client, _ = self._execute_async(job_name)
        if client.outlives_program and not self._settings.get(ATTACHED):
            return DetachedJobExecutionResult(client.get_job_id())
        try:
            result = client.get_job_execution_result().result()
        except (JobExecutionError, JobCancelledError):
            self._cached_streams.ended_without_result(client.get_job_id())
            raise
        except KeyboardInterrupt:
            program_end.leave_interrupted_job(client)
            raise
        job_finished(result)
        return result

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Submit the program as a job and return its client; `get_job_execution_result().result()` waits for its end.

        A job that is not waited for is cancelled when the program ends, with an error: the cluster ends with it. On a
        cluster in another process (`execution.target: remote`) the job goes on.

        The environment loses its sinks whether or not this succeeds: in a notebook, a cell that is corrected and run
        again must not find the wrong sink of its last run as well. Its streams can still be used.
        """
        client, graph = self._execute_async(job_name)
        program_end.remember_job(client, graph.job_name)
        return client

    def _execute_async(self, job_name: str | None) -> tuple[JobClient, StreamGraph]:
        """Submit the program; return its client and its graph, which names the cached streams that the job reads."""
        had_operators = bool(self._operators)
        if not had_operators and self._has_forgotten:
            raise ProgramError(f"No operators defined in streaming topology. {_FORGOTTEN}")
        try:
            client_and_graph = self._submit(job_name)
        except Exception as error:
            self._has_forgotten = had_operators
            if had_operators:
                _LOG.info(_FORGOTTEN)
            if had_operators and isinstance(error, HeadraceError):
                # Neither a note on the error nor a warning: the cause must be the first and the last line.
                error.aftermath = _FORGOTTEN
            raise
        finally:
            self._operators.clear()
        self._has_forgotten = False
        return client_and_graph

    def _submit(
        self,
        job_name: str | None,
        leaves: Sequence[OperatorTransformation] | None = None,
        changes: Mapping[str, str] | None = None,
    ) -> tuple[JobClient, StreamGraph]:
        executor, graph, job_graph = self._job_graph(job_name, leaves, changes)
        client = executor.submit(job_graph)
        job_submitted(client)
        self._cached_streams.submitted(job_graph, graph, client)
        return client, graph

    def _job_graph(
        self,
        job_name: str | None,
        leaves: Sequence[OperatorTransformation] | None,
        changes: Mapping[str, str] | None = None,
    ) -> tuple[PipelineExecutor, StreamGraph, JobGraph]:
        """Plan the job of `leaves`; `changes` are settings that override the program's."""
        settings = self._settings.to_settings().with_values(changes or {})
        said = self._stream_graph(job_name, known_parallelism(settings), leaves)
        check_program(said, settings)
        _check_targets(said)
        executor = self._executor()
        _tell_of_no_sink(said)
        self._cached_streams.look(executor)
        graph = self._stream_graph(job_name, executor.default_parallelism(), leaves)
        job_planned(graph, settings)
        job_graph = generate_job_graph(graph, JobId.generate(system_random()), settings)
        check_checkpoints(job_graph, settings)
        artifacts = job_artifacts(settings)
        if artifacts:
            job_graph = msgspec.structs.replace(job_graph, artifacts=artifacts)
        return executor, graph, job_graph

    def _executor(self) -> PipelineExecutor:
        return executor_for(self._settings.to_settings())

    def list_completed_cluster_datasets(self) -> set[ClusterDataSetId]:
        """Return the complete cached streams that the cluster keeps, of this environment and others."""
        return {info.data_set for info in self._executor().list_data_sets() if info.is_complete}

    def invalidate_cluster_dataset(self, dataset_id: ClusterDataSetId) -> None:
        """Delete a cached stream of this environment in the cluster; ValueError if it has no such stream."""
        self._cached_streams.invalidate_data_set(dataset_id)

    def execute_and_collect_stream(
        self, stream: DataStream, job_name: str | None, limit: int | None = None
    ) -> CloseableIterator:
        """Run the program with a collect sink at `stream`; called by `DataStream.execute_and_collect`.

        `limit`: the largest number of records that will be taken.
        """
        collected = stream.collected_stream()
        batch_type = batch_type_of(collected.transformation)
        sink = self.add_operator(
            CollectSinkSpec(limit), (collected.transformation,), batch_type, role=NodeRole.SINK
        )
        sink.set_parallelism(1)
        client, program = self._execute_async(job_name)
        sink_id = operator_ids(program)[sink.transformation_id]
        return CloseableIterator(client, sink_id, batch_type)

    def job_settings(self) -> Settings:
        """Return the settings that a job would have if it were submitted now."""
        return self._settings.to_settings()

    def execute_in_background(self, job_name: str | None = None) -> JobClient:
        """Submit the program as a job that ends at the latest with the program; it need not be awaited."""
        client, _ = self._execute_async(job_name)
        return client

    def preview_stream(self, stream: DataStream) -> CloseableIterator:
        """Run the producers of `stream`, and no other sink; called by `DataStream.preview`. The program is not changed.

        The job runs in STREAMING mode, from no snapshot and without checkpoints.
        """
        sink = self._collect_sink_beside(stream)
        client, program = self._submit(f"Preview of {stream!r}", (sink,), PREVIEW_SETTINGS)
        sink_id = operator_ids(program)[sink.transformation_id]
        return CloseableIterator(client, sink_id, batch_type_of(sink))

    def batch_dataframe_of(self, stream: DataStream) -> Any:
        """Return a stream of a program in BATCH mode as a lazy DataFrame of Spark; called by `DataStream.to_dataframe`.

        The plan has the producers of the stream and no other sink; the program is not changed. None in STREAMING mode.
        """
        sink = self._collect_sink_beside(stream)
        executor, _, job_graph = self._job_graph(f"DataFrame of {stream!r}", (sink,))
        if not runs_in_batch(Settings(job_graph.settings)):
            return None
        refuse_dataframe_elsewhere(job_graph, executor)
        return cast(Any, executor).batch_dataframe(job_graph)

    def _collect_sink_beside(self, stream: DataStream) -> OperatorTransformation:
        """Return a collect sink at `stream` that does not belong to the program."""
        collected = stream.collected_stream().transformation
        sink = self._make_reader(
            CollectSinkSpec(), (collected,), batch_type_of(collected), role=NodeRole.SINK
        )
        sink.set_parallelism(1)
        return sink

    def cache_stream(self, stream: DataStream) -> CachedDataStream:
        """Keep a stream for later jobs; called by `DataStream.cache`."""
        return cache_stream(stream, self._cached_streams)

    def get_stream_graph(self, job_name: str | None = None) -> StreamGraph:
        """Return the frozen graph of the program so far, as it would run now; the environment keeps the program."""
        if self._operators and self._cached_streams.has_made_any:
            self._cached_streams.look(self._executor())
        return self._stream_graph(job_name, known_parallelism(self._settings.to_settings()))

    def _stream_graph(
        self,
        job_name: str | None,
        executors_parallelism: int | None,
        leaves: Sequence[OperatorTransformation] | None = None,
    ) -> StreamGraph:
        """Make the graph of `leaves`, by default the whole program.

        Operators that were made before a parallelism was set get that of the executor.
        """
        if leaves is None:
            program_end.plan_made()
            leaves = self._operators
        max_parallelism = self.get_max_parallelism()
        defaults = GraphDefaults(
            job_name=job_name or self._settings.get(PIPELINE_NAME) or DEFAULT_JOB_NAME,
            parallelism=executors_parallelism or self.get_default_local_parallelism(),
            max_parallelism=max_parallelism if max_parallelism > 0 else None,
            buffer_timeout_ms=self.get_buffer_timeout(),
            settings=self._settings.to_settings(),
            is_assumed=executors_parallelism is None,
            slot_resources=self._slot_resources,
        )
        return generate_stream_graph(leaves, defaults)

    def get_execution_plan(self) -> str:
        """Return the plan as JSON: operators, their parallelism and how rows travel between them.

        Before a cluster has started, the number of its slots may be assumed to be that of the machine's processors;
        `explain` says so.
        """
        graph = self.get_stream_graph()
        check_stream_graph(graph, self._settings.to_settings())
        return plan_json(graph, self._settings.to_settings())

    def explain(self) -> str:
        """Describe the job in plain text: vertices, chains, ids, and why chains end where they do.

        This is the job that `execute` would submit now. The second line says if the parallelism depends on the slots of
        a cluster that has not started yet.
        """
        return explain(self.get_stream_graph(), self._settings.to_settings())

    def explain_stream(self, stream: DataStream) -> str:
        """Describe, as `explain` does, the producers of `stream` alone; starts no cluster."""
        settings = self._settings.to_settings()
        leaves = [upstream.operator for upstream in upstreams_of(stream.transformation)]
        return explain(self._stream_graph(None, known_parallelism(settings), leaves), settings)

    def close(self) -> None:
        """Forget the streams made so far, and delete the cached ones.

        The executor is shared and ends with the process.
        """
        self._operators.clear()
        self._cached_streams.close()

    def add_operator(
        self,
        spec: OperatorSpec,
        inputs: tuple[Transformation, ...],
        output_type: BatchType,
        *,
        name: str | None = None,
        **properties: Any,
    ) -> OperatorTransformation:
        """Add an operator to the program; called by the methods of streams."""
        operator = self._make_reader(spec, inputs, output_type, name=name, **properties)
        # Sources have no visible effect, so they run only if their output is read.
        if inputs:
            self._operators.append(operator)
            program_end.operator_added(operator)
        return operator

    def add_to_producers(
        self,
        spec: OperatorSpec,
        stream: Transformation,
        output_type: BatchType,
        **properties: Any,
    ) -> Transformation:
        """Add an operator, chained and with equal parallelism, after each operator that makes the stream.

        It runs only if its output is read. A partitioning before it has no effect, because the last of several counts.
        """
        return united(
            [
                self._make_operator(
                    spec,
                    (producer,),
                    output_type,
                    parallelism_like=operator_behind(producer),
                    **properties,
                )
                for producer in producers_of(stream)
            ]
        )

    def _read(
        self, stream: Transformation, key_removers: list[OperatorTransformation]
    ) -> Transformation:
        """Return the input of an operator that reads `stream`; an operator that removes keys is added to the list."""
        match stream:
            case PartitionTransformation():
                return PartitionTransformation(
                    united(producers_of(stream.input)), stream.partitioning
                )
            case UnionTransformation():
                return united([self._read(one, key_removers) for one in stream.inputs])
            case ValuesTransformation():
                key_remover = self._make_operator(
                    KeyedValuesSpec(), (stream.keyed,), batch_type_of(stream), is_function=True
                )
                # The reader decides.
                key_remover.parallelism = None
                key_removers.append(key_remover)
                return key_remover
            case OperatorTransformation() | SideOutputTransformation():
                return stream

    def _make_reader(
        self,
        spec: OperatorSpec,
        inputs: tuple[Transformation, ...],
        output_type: BatchType,
        **properties: Any,
    ) -> OperatorTransformation:
        """Make an operator that reads `inputs`, without adding it to the program."""
        key_removers: list[OperatorTransformation] = []
        read = tuple(self._read(one, key_removers) for one in inputs)
        operator = self._make_operator(spec, read, output_type, **properties)
        for one in key_removers:
            one.parallelism_like = operator
        return operator

    def _make_operator(
        self,
        spec: OperatorSpec,
        inputs: tuple[Transformation, ...],
        output_type: BatchType,
        *,
        name: str | None = None,
        **properties: Any,
    ) -> OperatorTransformation:
        self._last_id += 1
        follows = properties.get("parallelism_like") is not None
        is_parallel = properties.get("is_parallel", True)
        parallelism = None if follows else self._parallelism_set()
        return OperatorTransformation(
            transformation_id=self._last_id,
            name=name or spec.default_name,
            spec=spec,
            inputs=inputs,
            output_type=output_type,
            parallelism=parallelism if is_parallel else 1,
            location=call_site(),
            **properties,
        )

    def _add_source(
        self,
        source: Source,
        strategy: WatermarkStrategy | None,
        name: str,
        type_info: TypeInformation,
        is_parallel: bool = True,
    ) -> DataStream:
        operator = self.add_operator(
            SourceSpec(source, strategy),
            (),
            BatchType(type_info),
            name=name,
            role=NodeRole.SOURCE,
            is_parallel=is_parallel,
            is_bounded=source.boundedness is Boundedness.BOUNDED,
        )
        return DataStream(self, operator)


def _tell_of_no_sink(graph: StreamGraph) -> None:
    if all(
        node.role is not NodeRole.SINK and not isinstance(node.spec, CacheSpec)
        for node in graph.nodes
    ):
        last = graph.nodes[-1]
        _LOG.warning(
            "job '%s' has no sink: the results of '%s' (%s) are discarded; add print() or sink_to(...)",
            graph.job_name,
            last.name,
            last.location,
        )


def _check_targets(graph: StreamGraph) -> None:
    for node in graph.nodes:
        if isinstance(node.spec, SinkSpec):
            try:
                node.spec.sink.check_target()
            except ProgramError as error:
                raise ProgramError(f"{error} ('{node.display_name}', {node.location})") from None


def _dataframe_source(
    df: Any, event_time_column: str | None, options: Mapping[str, Any]
) -> tuple[Source, TypeInformation, int | None]:
    """Return the source that a bridge makes of a DataFrame; ProgramError for DataFrames of an unknown library.

    Bridges from DataFrames are found through entry points, so that programs need not import their host.
    """
    library = type(df).__module__.partition(".")[0]
    names = entry_point_names(_DATAFRAME_BRIDGES)
    # A bridge is named after the library whose DataFrames it takes; Spark's library is called pyspark.
    name = next((each for each in (library, library.removeprefix("py")) if each in names), None)
    if name is None and hasattr(df, "__arrow_c_stream__"):
        if options:
            raise ProgramError(
                f"{' and '.join(options)} can be given only for streaming DataFrames of Spark"
            )
        source = read_arrow(df, event_time_column)
        return source, source.produced_type, None
    if name is None:
        known = ", ".join(names) or "none"
        raise ProgramError(
            f"from_dataframe does not know DataFrames of type {type(df).__module__}.{type(df).__qualname__}; "
            f"bridges are installed for: {known}; others need Arrow's stream interface (__arrow_c_stream__)"
        )
    bridge = load_entry_point(_DATAFRAME_BRIDGES, name)
    return bridge(df, event_time_column=event_time_column, **options)

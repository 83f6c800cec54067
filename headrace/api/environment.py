"""StreamExecutionEnvironment: where a program begins. It makes streams, keeps settings and runs the job."""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from headrace.api import python_dependencies
from headrace.api.checkpoint_config import SAVEPOINT_DIRECTORY, CheckpointConfig, CheckpointingMode
from headrace.api.collected_records import CloseableIterator
from headrace.api.data_stream import DataStream
from headrace.api.dataframe_bridges import dataframe_source
from headrace.api.execution_config import ExecutionConfig
from headrace.api.executors import active_executor, default_settings, executor_for
from headrace.api.function_checks import check_name, resolve_type
from headrace.api.job_client import JobClient
from headrace.api.job_execution_result import JobExecutionResult
from headrace.api.program_settings import ProgramSettings, configuration_values
from headrace.api.stream_graph_generator import GraphDefaults, generate_stream_graph
from headrace.api.transformations import (
    OperatorTransformation,
    PartitionTransformation,
    Transformation,
    batch_type_of,
    operator_behind,
)
from headrace.core.errors import ProgramError
from headrace.core.ids import JobId
from headrace.core.operator_spec import OperatorSpec
from headrace.core.randomness import system_random
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import TypeInformation
from headrace.functions.collection_source import CollectionSource
from headrace.functions.source import Boundedness, Source
from headrace.functions.specs import CollectSinkSpec, SourceSpec
from headrace.functions.watermarks import WatermarkStrategy
from headrace.graph.chaining import CHAIN_DIFFERENT_MAX_PARALLELISM, OPERATOR_CHAINING
from headrace.graph.job_graph_generator import (
    RUNTIME_MODE,
    RuntimeExecutionMode,
    check_program,
    check_stream_graph,
    generate_job_graph,
)
from headrace.graph.operator_ids import operator_ids
from headrace.graph.pipeline_options import (
    BUFFER_TIMEOUT,
    BUFFER_TIMEOUT_ENABLED,
    DEFAULT_JOB_NAME,
    MAX_PARALLELISM,
    PARALLELISM,
    PIPELINE_NAME,
)
from headrace.graph.plan_json import plan_json
from headrace.graph.stream_graph import NodeRole, StreamGraph

_CANCEL_TIMEOUT_S = 10.0


class StreamExecutionEnvironment:
    """Makes streams and runs them as one job.

    Example:
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.set_parallelism(2)
        >>> _ = env.from_collection([1, 2, 3]).map(lambda n: n * n).print()
        >>> print(env.explain().splitlines()[0])
        JobGraph 'Flink Streaming Job': 2 vertices, 1 edge
    """

    _default_local_parallelism: ClassVar[int | None] = None

    def __init__(self, configuration: object = None) -> None:
        given = {} if configuration is None else configuration_values(configuration)
        self._settings = ProgramSettings(given, command_line=default_settings())
        self._operators: list[OperatorTransformation] = []
        self._last_id = 0

    @staticmethod
    def get_execution_environment(configuration: object = None) -> "StreamExecutionEnvironment":
        """Make an environment; a Configuration (or a mapping) gives settings, the command line's win."""
        return StreamExecutionEnvironment(configuration)

    # -- settings

    def get_config(self) -> ExecutionConfig:
        """Return a live view of the execution settings."""
        return ExecutionConfig(self._settings)

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return a live view of the checkpoint settings."""
        return CheckpointConfig(self._settings)

    def configure(self, configuration: object) -> None:
        """Take over the settings of a Configuration or a mapping."""
        self._settings.merge(configuration_values(configuration))

    def set_parallelism(self, parallelism: int) -> "StreamExecutionEnvironment":
        """Set the parallelism of operators that are made from now on and set none themselves."""
        self.get_config().set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """That value, or what the executor offers where none was set."""
        return self._parallelism_set() or self._default_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> "StreamExecutionEnvironment":
        """Set the number of key groups, 1..32768: the upper bound for rescaling."""
        self.get_config().set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """-1 where it is derived from the parallelism."""
        return self._settings.get(MAX_PARALLELISM)

    def set_runtime_mode(
        self, execution_mode: RuntimeExecutionMode
    ) -> "StreamExecutionEnvironment":
        """Choose STREAMING, BATCH or AUTOMATIC."""
        self._settings.set(RUNTIME_MODE, execution_mode.name)
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> "StreamExecutionEnvironment":
        """Bound the wait before partly filled buffers are sent; 0: after every record, -1: only full ones."""
        if timeout_millis < -1:
            raise ValueError(
                f"a buffer timeout must be -1, 0 or more milliseconds, not {timeout_millis}"
            )
        self._settings.set(BUFFER_TIMEOUT, timedelta(milliseconds=timeout_millis))
        return self

    def get_buffer_timeout(self) -> int:
        """Milliseconds; -1 where only full buffers are sent."""
        if not self._settings.get(BUFFER_TIMEOUT_ENABLED):
            return -1
        return self._settings.get(BUFFER_TIMEOUT) // timedelta(milliseconds=1)

    def disable_operator_chaining(self) -> "StreamExecutionEnvironment":
        """Make every operator a vertex of its own."""
        self._settings.set(OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        return self._settings.get(OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        return self._settings.get(CHAIN_DIFFERENT_MAX_PARALLELISM)

    def enable_checkpointing(
        self, interval: int, mode: CheckpointingMode | None = None
    ) -> "StreamExecutionEnvironment":
        """Keep the settings; a job that asks for checkpoints is refused, because they are not there yet."""
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        config.set_checkpointing_mode(mode or CheckpointingMode.EXACTLY_ONCE)
        return self

    def get_checkpoint_interval(self) -> int:
        """Milliseconds, -1 where checkpointing is off."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """AT_LEAST_ONCE while checkpointing is off, as in Flink."""
        config = self.get_checkpoint_config()
        if not config.is_checkpointing_enabled():
            return CheckpointingMode.AT_LEAST_ONCE
        return config.get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Newer name of `get_checkpointing_mode`."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self, directory: str) -> "StreamExecutionEnvironment":
        self._settings.set(SAVEPOINT_DIRECTORY, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        return self._settings.get(SAVEPOINT_DIRECTORY) or None

    def get_default_local_parallelism(self) -> int:
        """The machine's CPU count until set."""
        return StreamExecutionEnvironment._default_local_parallelism or os.cpu_count() or 1

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """For environments that no executor has told its number of slots."""
        StreamExecutionEnvironment._default_local_parallelism = parallelism

    def add_python_file(self, file_path: str) -> None:
        """Put a module, a package folder or an archive on the import path here and on the workers."""
        python_dependencies.add_python_file(self._settings, file_path)

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Name a requirements file for the workers, with a folder of packages for installing offline."""
        python_dependencies.set_python_requirements(
            self._settings, requirements_file_path, requirements_cache_dir
        )

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Add an archive that is unpacked into the workers' working folder."""
        python_dependencies.add_python_archive(self._settings, archive_path, target_dir)

    def set_python_executable(self, python_exec: str) -> None:
        """Choose the workers' interpreter."""
        from headrace.graph.pipeline_options import PYTHON_EXECUTABLE

        self._settings.set(PYTHON_EXECUTABLE, python_exec)

    # -- sources

    def from_collection(
        self, collection: Sequence[Any], type_info: TypeInformation | None = None
    ) -> DataStream:
        """Make a bounded stream of the values of a list, in order.

        Without a type the values travel pickled and come out equal to what went in; with one they are converted
        to it, and a value that does not fit raises here.
        """
        source = CollectionSource(list(collection), type_info)
        return self._add_source(
            source, None, "Collection Source", resolve_type(type_info), is_parallel=False
        )

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Make a stream of a connector's source; `type_info` fills in where the source does not know its type."""
        if not isinstance(source, Source):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"from_source needs a Source, not {source!r}")
        if not isinstance(watermark_strategy, WatermarkStrategy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"from_source needs a WatermarkStrategy, not {watermark_strategy!r}")
        produced = resolve_type(type_info, default=source.produced_type)
        return self._add_source(
            source, watermark_strategy, check_name(source_name, "a source name"), produced
        )

    def from_dataframe(
        self,
        df: Any,
        *,
        event_time: str | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Make a bounded stream of a DataFrame's rows, typed by its columns.

        `event_time` names the column whose time is each row's timestamp. Without a watermark strategy event time
        passes when the stream ends.
        """
        source, type_info = dataframe_source(df, event_time)
        return self._add_source(source, watermark_strategy, name or "DataFrame", type_info)

    # -- running

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program as a job and wait until it ends. A failed job raises JobExecutionError.

        The streams made so far are forgotten, so the environment can be used for another job. Ctrl-C cancels the job.
        """
        client = self.execute_async(job_name)
        try:
            return client.get_job_execution_result().result()
        except KeyboardInterrupt:
            self._cancel(client)
            raise

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Submit the program as a job and return its handle."""
        settings = self._submittable_settings()
        check_program(self.get_stream_graph(job_name), settings)
        executor = executor_for(settings)
        graph = self.get_stream_graph(job_name, executor.default_parallelism())
        job_graph = generate_job_graph(graph, JobId.generate(system_random()), settings)
        client = executor.submit(job_graph)
        self._operators.clear()
        return client

    def execute_and_collect_stream(
        self, stream: DataStream, job_name: str | None
    ) -> CloseableIterator:
        """Run the program with a collect sink at `stream`; called by `DataStream.execute_and_collect`."""
        collected = stream.collected_stream()
        batch_type = batch_type_of(collected.transformation)
        sink = self.add_operator(
            CollectSinkSpec(), (collected.transformation,), batch_type, role=NodeRole.SINK
        )
        sink.set_parallelism(1)
        try:
            sink_id = operator_ids(self.get_stream_graph(job_name))[sink.transformation_id]
            client = self.execute_async(job_name)
        finally:
            # A submission that failed must leave no collect sink behind for the next one.
            if sink in self._operators:
                self._operators.remove(sink)
        return CloseableIterator(client, sink_id, batch_type)

    def get_stream_graph(
        self, job_name: str | None = None, default_parallelism: int | None = None
    ) -> StreamGraph:
        """Return the frozen graph of what was said so far; the environment keeps it."""
        max_parallelism = self.get_max_parallelism()
        defaults = GraphDefaults(
            job_name=job_name or self._settings.get(PIPELINE_NAME) or DEFAULT_JOB_NAME,
            parallelism=default_parallelism or self._default_parallelism(),
            max_parallelism=max_parallelism if max_parallelism > 0 else None,
            buffer_timeout_ms=self.get_buffer_timeout(),
            settings=self._settings.to_settings(),
        )
        return generate_stream_graph(self._operators, defaults)

    def get_execution_plan(self) -> str:
        """Return the plan as JSON: operators, their parallelism and how rows travel between them."""
        graph = self.get_stream_graph()
        check_stream_graph(graph, self._settings.to_settings())
        return plan_json(graph, self._settings.to_settings())

    def explain(self) -> str:
        """Say in plain text what the job will be: vertices, chains, ids, and why chains end where they do."""
        from headrace.graph.explain import explain

        return explain(self.get_stream_graph(), self._settings.to_settings())

    def close(self) -> None:
        """Forget the streams made so far. The executor is shared and ends with the process."""
        self._operators.clear()

    # -- for streams

    def add_operator(
        self,
        spec: OperatorSpec,
        inputs: tuple[Transformation, ...],
        output_type: BatchType,
        *,
        name: str | None = None,
        like: Transformation | None = None,
        **properties: Any,
    ) -> OperatorTransformation:
        """Add an operator to the program; called by the methods of streams.

        `like` names the stream whose operator decides the parallelism, so that the two can be chained.
        """
        if like is not None:
            # The last of several partitionings holds, so one that comes before key_by has no effect.
            while isinstance(like, PartitionTransformation):
                like = like.input
            inputs = (like,)
            properties["parallelism_like"] = operator_behind(like)
        self._last_id += 1
        is_parallel = properties.get("is_parallel", True)
        operator = OperatorTransformation(
            transformation_id=self._last_id,
            name=name or spec.default_name,
            spec=spec,
            inputs=inputs,
            output_type=output_type,
            parallelism=(None if like is not None else self._parallelism_set())
            if is_parallel
            else 1,
            **properties,
        )
        if inputs:
            self._operators.append(operator)
        return operator

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

    def _submittable_settings(self) -> Any:
        if self.get_checkpoint_config().is_checkpointing_enabled():
            raise ProgramError(
                "checkpointing is enabled (execution.checkpointing.interval), but checkpoints are not there yet: "
                "run this job without them"
            )
        return self._settings.to_settings()

    def _parallelism_set(self) -> int | None:
        parallelism = self._settings.get(PARALLELISM)
        return parallelism if parallelism > 0 else None

    def _default_parallelism(self) -> int:
        parallelism = self._parallelism_set()
        if parallelism is not None:
            return parallelism
        executor = active_executor()
        if executor is not None:
            return executor.default_parallelism()
        return self.get_default_local_parallelism()

    def _cancel(self, client: JobClient) -> None:
        """Cancel after Ctrl-C and wait a bounded time, so that nothing is left running."""
        client.cancel().result(_CANCEL_TIMEOUT_S)
        try:
            client.get_job_execution_result().result(_CANCEL_TIMEOUT_S)
        except Exception:  # whichever way it ended, it has ended
            return

"""BatchJob: a bounded job as one Spark query, whose stages are the vertices and whose shuffles are the edges.

    vertex            mapInArrow with the chain of the vertex; a source has one partition per subtask to start with
    edge              repartitionById on the consumer's subtask, which each row carries: partition i is subtask i;
                      a row is a packet of many records
    keyed input       packets sorted by place within the partition, and records by key hash and time where they are read
    several readers   the stage's rows are kept on disk, so that its functions run once

Nothing here loads a function of the program. Only if Spark itself reads or writes rows, which only the program's own
application does, types are loaded, as Spark must know the columns.
Source: Flink's batch execution mode (FLIP-134, FLIP-140).
"""

import contextlib
import logging
import weakref
from collections.abc import Iterator, Mapping
from functools import partial, reduce
from typing import Any, Final, cast

import msgspec
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.checkpoint.options import INTERVAL as CHECKPOINTING_INTERVAL
from headrace.checkpoint.options import STATE_BACKEND_TYPE
from headrace.connectors.dataframe.messages import (
    LOG_COORDINATOR,
    SINK_COMMITTER,
    CommitPayload,
)
from headrace.core.config import Settings
from headrace.core.ids import JobId, JobVertexId, OperatorId
from headrace.functions.source import SPLIT_COORDINATOR
from headrace.graph.job_graph import (
    ChainedOperator,
    JobEdge,
    JobGraph,
    JobVertex,
    PartitionerKind,
    VertexPayloads,
)
from headrace.spark.batch.batch_commits import BatchCommits, CommitTurn, await_tasks_of
from headrace.spark.batch.batch_support import COLLECT_COORDINATOR
from headrace.spark.batch.dataframe_borders import (
    DataFrameOutput,
    cut_outputs,
    in_session,
    output_frame,
    reads_dataframe,
    source_frame,
    source_splits,
)
from headrace.spark.batch.spark_aggregates import SparkAggregates
from headrace.spark.batch.split_assignment import assigned_splits
from headrace.spark.batch.stage_body import failure_in, run_stage
from headrace.spark.batch.stage_files import StageFiles
from headrace.spark.batch.stage_memory import memory_settings
from headrace.spark.batch.stage_resources import StageResources
from headrace.spark.batch.subtask_reports import ReportSender
from headrace.spark.dataframes.sink_coordinator import (
    SinkCommitError,
    call_batch_function,
    scope_of_job,
)
from headrace.spark.options import AGGREGATES_IN_SPARK
from headrace.spark.session.jvm import named_workers
from headrace.spark.session.spark_errors import root_message
from headrace.task.batch.stage_rows import (
    EDGE,
    HASH,
    PLACE,
    RECEIVER,
    REPORT,
    REPORT_COLUMN,
    START_ROW,
    SUBTASK_ROW,
    StageReport,
    edge_numbers,
    row_column,
    stage_schema,
)
from headrace.task.batch.stage_task import COMMIT_ID, StageEdge, StageSpec, edge_forms
from headrace.task.user_payloads import load_types

_LOG: Final = logging.getLogger(__name__)
_SHOWN_NAME_MAX: Final = 100
_CONF: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    # One value may hold many rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    # Names in backticks are names.
    "spark.sql.parser.quotedRegexColumnNames": "false",
}


_ADAPTIVE: Final = "spark.sql.adaptive"


class BatchJob:
    """Plans, runs and commits one job, on the thread that calls `run`.

    `resources`: resources that Spark reserves for each subtask. `files`: the files that travel with the job.
    `worker_name`: name of the Python workers that import exactly these files; empty: any workers. `cluster_settings`:
    defaults below the job's settings, for the driver's part. `turn`: decides whether output is committed. The caller's
    thread belongs to the job's `job_group_of`.
    """

    def __init__(
        self,
        spark: SparkSession,
        graph: JobGraph,
        output_pipe: str,
        resources: StageResources,
        sender: ReportSender | None = None,
        files: StageFiles | None = None,
        worker_name: str = "",
        cluster_settings: Settings | None = None,
        turn: CommitTurn | None = None,
    ) -> None:
        self._program_spark: Final = spark
        self._spark: Final = _cloned(spark)
        self._graph, self._outputs = cut_outputs(graph, writes_dataframe)
        self._output_pipe: Final = output_pipe
        self._resources: Final = resources
        self._sender: Final = sender
        self._files: Final = files
        self._turn: Final = turn or CommitTurn()
        self._worker_name: Final = worker_name
        settings = dict(graph.settings)
        settings.pop(CHECKPOINTING_INTERVAL.key, None)
        # State of a few keys at a time needs no files.
        settings[STATE_BACKEND_TYPE.key] = "hashmap"
        settings |= memory_settings(cluster_settings or Settings({}))
        self._settings: Final = settings
        of_cluster = {} if cluster_settings is None else cluster_settings.to_dict()
        of_cluster.pop(CHECKPOINTING_INTERVAL.key, None)
        self._driver_settings: Final = Settings({**of_cluster, **settings})
        self._aggregates: SparkAggregates | None = None
        self._kept: list[DataFrame] = []
        self._starts: Final[dict[int, DataFrame]] = {}

    def run(self) -> Iterator[StageReport]:
        """Run all stages and commit the output, then yield the rows of collect sinks."""
        await_tasks = partial(
            await_tasks_of, self._spark.sparkContext, job_group_of(self._graph.job_id)
        )
        with BatchCommits(self._graph, self._driver_settings, self._turn, await_tasks) as commits:
            reports = self._run_stages()
            commits.commit(reports)
        return (report for report in reports if report.collected)

    def _run_stages(self) -> list[StageReport]:
        try:
            frames, told = self._planned()
            rows = reduce(DataFrame.unionByName, told).collect() if told else []
            reports = [self._report(row[0]) for row in rows]
            for output in self._outputs:
                self._write(output, self._output_frame(output, frames))
        except BaseException:
            # Adaptive execution ends exchanges alone: what fills a stage with several readers would go on.
            with contextlib.suppress(
                Py4JError, OSError, AttributeError
            ):  # the application may have ended
                self._spark.sparkContext.cancelJobGroup(job_group_of(self._graph.job_id))
            raise
        finally:
            for kept in self._kept:
                kept.unpersist()
        for vertex in self._graph.vertices:
            _LOG.debug("'%s' has finished", vertex.name)
        return reports

    def dataframe(self) -> DataFrame:
        """Return the rows of the graph's one collect sink as a DataFrame of the program's session.

        Nothing runs until Spark computes the DataFrame; Spark computes it each time that its rows are requested.
        """
        self._graph, (output,) = cut_outputs(
            self._graph, lambda one: one.coordinator == COLLECT_COORDINATOR
        )
        frames, _ = self._planned()
        made = in_session(self._program_spark, self._output_frame(output, frames))
        # Rows of stages with several readers are kept for as long as somebody holds the DataFrame itself.
        weakref.finalize(made, _let_go, self._kept)
        return made

    def _output_frame(
        self, output: DataFrameOutput, frames: Mapping[JobVertexId, DataFrame]
    ) -> DataFrame:
        return output_frame(
            output,
            self._graph.vertex,
            lambda edge: self._rows_of(edge, frames[edge.source_vertex_id]),
        )

    def _write(self, output: DataFrameOutput, df: DataFrame) -> None:
        """Write the rows of a sink through Spark, or pass them to its function."""
        payload = msgspec.msgpack.decode(output.operator.committer_payload, type=CommitPayload)
        if payload.function is not None:
            operator, function = output.operator, payload.function
            scope = scope_of_job(self._graph.job_id, operator.operator_id)
            # The job's settings make the rows, once; a view that the function makes is one of the program's session.
            self._kept.append(df.persist(StorageLevel.DISK_ONLY))
            given = in_session(self._program_spark, df)
            call_batch_function(operator.name, function.function_id, given, scope, COMMIT_ID)
            return
        try:
            writer = df.write.format(payload.format).mode(payload.mode)
            writer.options(**payload.options).save(payload.path)
        except PySparkException as error:
            if failure_in(str(error)) is not None:
                raise  # of a function of the job
            reason = root_message(error)
            raise SinkCommitError(output.operator.name, payload.path, reason) from error

    @staticmethod
    def _report(content: bytearray) -> StageReport:
        return msgspec.msgpack.decode(bytes(content), type=StageReport)

    def _planned(self) -> tuple[dict[JobVertexId, DataFrame], list[DataFrame]]:
        """Return the rows of all stages, and the reports of stages that have some, whose collection runs the job."""
        for key, value in (_CONF | self._adaptive_settings()).items():
            self._spark.conf.set(key, value)
        if self._driver_settings.get_option(AGGREGATES_IN_SPARK):
            self._aggregates = SparkAggregates(self._spark, self._graph)
        frames: dict[JobVertexId, DataFrame] = {}
        reports: list[DataFrame] = []
        telling = [vertex for vertex in self._graph.vertices if self._tells(vertex)]
        for vertex in self._graph.vertices:
            out = self._graph.edges_out_of(vertex.vertex_id)
            tells = self._tells(vertex)
            frame = self._stage(vertex, out, frames, tells)
            if len(out) + tells > 1:
                frame = frame.persist(StorageLevel.DISK_ONLY)
                self._kept.append(frame)
            frames[vertex.vertex_id] = frame
            if tells:
                told = frame.where(f"{EDGE} = {REPORT}") if out else frame
                told = told.select(REPORT_COLUMN)
                # What is read together is one stage of Spark's, which has one profile.
                is_apart = self._resources.stands_alone(self._graph, vertex, telling)
                reports.append(told.repartition(1) if is_apart else told)
        return frames, reports

    def _adaptive_settings(self) -> dict[str, str]:
        """Return the settings of Spark's adaptive execution: on for queries of the program's DataFrames if it was on.

        Headrace's exchanges stay as they are: Spark keeps the number of partitions if it is given explicitly.
        Source: Spark, ShuffleOrigin, REPARTITION_BY_NUM.
        """
        readers = [one.parallelism for one in self._graph.vertices if reads_dataframe(one)]
        if not readers:
            # Planning again after each stage would only take time.
            return {f"{_ADAPTIVE}.enabled": "false"}
        # Partitions are merged for as many subtasks as there are, and not for one where their rows are small.
        count, least = f"{_ADAPTIVE}.coalescePartitions.minPartitionNum", str(max(readers))
        return {count: least, f"{_ADAPTIVE}.coalescePartitions.minPartitionSize": "1b"}

    def _tells(self, vertex: JobVertex) -> bool:
        """Return whether the driver reads the reports of a vertex."""
        return not self._graph.edges_out_of(vertex.vertex_id) or any(
            operator.committer or operator.coordinator == COLLECT_COORDINATOR
            for operator in vertex.operators
        )

    def _stage(
        self,
        vertex: JobVertex,
        out: tuple[JobEdge, ...],
        frames: Mapping[JobVertexId, DataFrame],
        tells: bool,
    ) -> DataFrame:
        into = self._graph.edges_into(vertex.vertex_id)
        number = self._graph.vertices.index(vertex)
        made = None if self._aggregates is None else self._aggregates.aggregated(vertex)
        vertex, source = made or (vertex, None)
        is_keyed = any(edge.partitioner.kind is PartitionerKind.HASH for edge in into)
        spec = StageSpec(
            job_id=self._graph.job_id,
            job_name=self._graph.name,
            vertex=vertex,
            settings=self._settings | self._resources.settings_of(self._graph, vertex),
            edges=tuple(self._stage_edge(edge) for edge in out),
            is_keyed=is_keyed,
            splits=self._splits(vertex),
            collects=_collects(vertex),
            reports=tells,
            as_columns=frozenset(one.data_set_id for one in out if self._is_output(one)),
            reads_dataframe=reads_dataframe(vertex),
            vertex_number=number,
        )
        # Columns of packets are the same for all types, which stay bytes here: the job may be another user's.
        types = load_types(vertex, VertexPayloads.of(vertex, out)) if spec.as_columns else []
        schema = stage_schema(edge_forms(vertex, types, out, spec.as_columns))
        if source is None:
            source = self._input(vertex, into, frames, is_keyed)
        stage = cast(Any, partial(run_stage, spec, self._output_pipe, self._sender, self._files))
        # Spark's pages distinguish the nodes of queries by this name.
        stage.__name__ = vertex.name[:_SHOWN_NAME_MAX]
        with named_workers(
            self._spark.sparkContext, self._worker_name, self._graph.python_executable
        ):
            profile = self._resources.profile_of(self._graph, vertex)
            return source.mapInArrow(stage, _spark_schema(schema), profile=profile)

    def _input(
        self,
        vertex: JobVertex,
        into: tuple[JobEdge, ...],
        frames: Mapping[JobVertexId, DataFrame],
        is_keyed: bool,
    ) -> DataFrame:
        count = vertex.parallelism
        if reads_dataframe(vertex):
            return source_frame(self._spark, vertex, self._graph.edges_out_of(vertex.vertex_id))
        if not into:
            return self._spark.range(0, count, 1, count)
        parts = [self._starts_of(count)]
        parts += [self._rows_of(edge, frames[edge.source_vertex_id]) for edge in into]
        rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
        dealt = rows.repartitionById(count, RECEIVER)
        if is_keyed:
            # Packets without keys, of a broadcast side, have no hash and come first; others have all the same.
            return dealt.sortWithinPartitions(HASH, EDGE, PLACE)
        if len({edge.input_number for edge in into}) > 1:
            return dealt.sortWithinPartitions(*_order_of_inputs(into))
        if self._graph.edges_out_of(vertex.vertex_id):
            # Packets come in the order in which executors answer. A subtask that runs again because its output was
            # lost must deal its records as before: some of those who read it may have ended.
            return dealt.sortWithinPartitions(EDGE, PLACE)
        return dealt

    def _starts_of(self, count: int) -> DataFrame:
        """Return one row for each subtask of a consumer, with the subtask's index."""
        # Texts of SQL: a method of a Column makes about ten calls of the JVM, most of them to tell the line it is in.
        if count not in self._starts:
            self._starts[count] = self._spark.range(0, count, 1, 1).selectExpr(
                f"{SUBTASK_ROW} AS {EDGE}",
                f"CAST({START_ROW} AS INT) AS {RECEIVER}",
                f"CAST(NULL AS INT) AS {HASH}",
                f"CAST(NULL AS BIGINT) AS {PLACE}",
            )
        return self._starts[count]

    def _rows_of(self, edge: JobEdge, frame: DataFrame) -> DataFrame:
        """Return the rows of one edge as its consumer reads them."""
        out = self._graph.edges_out_of(edge.source_vertex_id)
        numbers = zip(out, edge_numbers(out), strict=True)
        number = next(number for one, number in numbers if one.data_set_id == edge.data_set_id)
        vertex = self._graph.vertex(edge.source_vertex_id)
        # Each step has Spark analyse the plan again, which in a short job takes longer than its records.
        if len(out) > 1 or self._tells(vertex):
            frame = frame.where(f"{EDGE} = {number}")
        into = self._graph.edges_into(edge.target_vertex_id)
        read = (self._graph.vertex(one.source_vertex_id) for one in into)
        if self._resources.stands_alone(self._graph, vertex, read):
            frame = frame.repartition(vertex.parallelism, RECEIVER)
        if len(out) == 1:
            return frame
        return frame.selectExpr(
            f"{edge.input_number} AS {EDGE}",
            RECEIVER,
            HASH,
            PLACE,
            f"{row_column(number)} AS {row_column(edge.input_number)}",
        )

    def _stage_edge(self, edge: JobEdge) -> StageEdge:
        is_output = self._is_output(edge)
        consumer = self._graph.vertex(edge.source_vertex_id if is_output else edge.target_vertex_id)
        return StageEdge(edge, consumer.parallelism, consumer.max_parallelism)

    def _is_output(self, edge: JobEdge) -> bool:
        """Return whether an edge leads out of the graph, to a DataFrame."""
        return all(vertex.vertex_id != edge.target_vertex_id for vertex in self._graph.vertices)

    def _splits(self, vertex: JobVertex) -> tuple[tuple[bytes, ...], ...]:
        if reads_dataframe(vertex):
            return source_splits(vertex)
        if vertex.operators[0].coordinator != SPLIT_COORDINATOR:
            return ()
        return assigned_splits(self._graph.job_id, vertex, self._driver_settings)


def job_group_of(job_id: JobId) -> str:
    """Return the name of the Spark job group of a job's stages."""
    return job_id.hex()


def writes_dataframe(operator: ChainedOperator) -> bool:
    """Return whether a sink's rows become a DataFrame. A log's rows do not: its subtasks stage files."""
    return operator.committer == SINK_COMMITTER and operator.coordinator != LOG_COORDINATOR


def _cloned(spark: SparkSession) -> SparkSession:
    """Return a session with a copy of the program's settings, so that changes do not affect the program."""
    java_session: Any = getattr(spark, "_jsparkSession")  # noqa: B009
    return SparkSession(spark.sparkContext, java_session.cloneSession())


def _let_go(kept: list[DataFrame]) -> None:
    for frame in kept:
        # The session may have ended before.
        with contextlib.suppress(Py4JError, OSError):
            frame.unpersist()


def _collects(vertex: JobVertex) -> frozenset[OperatorId]:
    return frozenset(
        operator.operator_id
        for operator in vertex.operators
        if operator.coordinator == COLLECT_COORDINATOR
    )


def _order_of_inputs(into: tuple[JobEdge, ...]) -> list[Any]:
    """Return the order in which inputs are read: broadcast inputs come first."""
    is_second_broadcast = any(
        edge.input_number == 1 and edge.partitioner.kind is PartitionerKind.BROADCAST
        for edge in into
    )
    return [F.col(EDGE).desc() if is_second_broadcast else F.col(EDGE), F.col(PLACE)]


def _spark_schema(schema: Any) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)

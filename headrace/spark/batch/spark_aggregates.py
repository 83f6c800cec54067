"""Lets Spark compute aggregates of a DataFrame in BATCH mode itself if the results are the same.

A two-phase aggregation makes partial results before the exchange; these merge to the same aggregates however rows
were cut. If only comparisons and column selections lie between a DataFrame and that first phase, the phase becomes a
Spark `groupBy(...).agg(...)`: no row comes to Python before it is aggregated. The phase after the exchange stays:
windows fire with the same timestamps and in the same order.

`planned_aggregate` decides, without Spark; `SparkAggregates` makes the DataFrames.
"""

import logging
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.connectors.dataframe.source import DataFrameSource
from headrace.core.operator_spec import OperatorTypes
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.pickles import pickle_code
from headrace.functions.column_conditions import And, ColumnCondition, Comparison, Or
from headrace.functions.specs.columnar_specs import (
    HALF_BITS,
    TIME_LIMIT_MS,
    EventTimeWindows,
    LocalAggregateSpec,
    SlicedAggregation,
)
from headrace.functions.specs.operator_specs import (
    FilterExpressionSpec,
    SelectExpressionsSpec,
    SourceSpec,
    TimestampsAndWatermarksSpec,
)
from headrace.functions.watermarks import ColumnTimestampAssigner, WatermarkStrategy
from headrace.graph.job_graph import JobEdge, JobGraph, JobVertex, VertexPayloads
from headrace.spark.batch.dataframe_borders import (
    INTEGERS,
    dataframe_id_of,
    dataframe_of,
    for_subtasks,
    in_session,
    reads_dataframe,
    spark_condition,
)
from headrace.task.batch.dataframe_rows import dataframe_column
from headrace.task.user_payloads import load_specs, load_types

_LOG: Final = logging.getLogger(__name__)
_ANSI: Final = "spark.sql.ansi.enabled"
_TIME_ZONE: Final = "spark.sql.session.timeZone"
_DAY_MS: Final = 86_400_000
_TIMES: Final = (T.TimestampType, T.TimestampNTZType, T.DateType, *INTEGERS)
_OF_INTEGERS: Final = frozenset({"sum", "mean", "min", "max"})
_ZERO_OF_SPARK: Final = "CAST(spark_partition_id() AS BIGINT) * 0L"
"""Zero by an expression that Spark pushes to no connector, so that Spark groups and aggregates, not a database.

A database might add integers in 32 bits, and take a literal after GROUP BY for the position of a column.
"""
_CONNECTORS_SCAN: Final = re.compile(r"\bScan (?!ExistingRDD|OneRowRelation)|\bBatchScan\b")


@dataclass(frozen=True)
class AggregatePlan:
    """Partial results that Spark computes from the rows of a DataFrame.

    `conditions`: conditions on which a row is kept, each with a map from its names to the DataFrame's columns. `time`:
    name of the event time column, and its column in the DataFrame; or None. `columns`: map from the names in
    `aggregation` to the DataFrame's columns.
    """

    conditions: tuple[tuple[ColumnCondition, Mapping[str, str]], ...]
    time: tuple[str, str] | None
    columns: Mapping[str, str]
    aggregation: SlicedAggregation


def planned_aggregate(
    vertex: JobVertex,
    out: Sequence[JobEdge],
    fields: Sequence[T.StructField],
    *,
    are_texts_bytes: bool = True,
) -> AggregatePlan | None:
    """Return the plan by which Spark may replace a vertex; None if a result could differ, or if that is unknown.

    `fields`: columns of the DataFrame that the vertex reads, in their order. `are_texts_bytes`: False if a database
    may compare the texts by a collation. UserCodeError if a spec cannot be loaded.
    """
    place = _place_of_half(vertex)
    if place is None or not _is_line(vertex, out, place):
        return None
    # Functions behind the half are loaded where they run.
    vertex = msgspec.structs.replace(vertex, operators=vertex.operators[: place + 1])
    payloads = VertexPayloads.of(vertex, ())
    source, *between, half = load_specs(vertex, payloads)
    names = data_schema(load_types(vertex, payloads)[0].output.value_type).names
    walk = _Walk(dict(zip(names, fields, strict=True)), are_texts_bytes=are_texts_bytes)
    if (
        walk.passes_source(source)
        and all(walk.passes(spec) for spec in between)
        and walk.takes(half.aggregation)
    ):
        return AggregatePlan(tuple(walk.conditions), walk.time, walk.columns, half.aggregation)
    return None


def _place_of_half(vertex: JobVertex) -> int | None:
    """Return the position of the operator that makes partial results; None unless the vertex has exactly one."""
    kinds = [one.kind for one in vertex.operators]
    count = kinds.count(LocalAggregateSpec.kind)
    return kinds.index(LocalAggregateSpec.kind) if count == 1 else None


def _is_line(vertex: JobVertex, out: Sequence[JobEdge], last: int) -> bool:
    """Return whether each operator before the one at `last` is read only by the next one."""
    ids = [one.operator_id for one in vertex.operators]
    before = set(ids[:last])
    inside = [
        (one.source_id, one.target_id, one.side_output_tag)
        for one in vertex.chain_edges
        if one.source_id in before
    ]
    return inside == [(*pair, None) for pair in pairwise(ids[: last + 1])] and not any(
        edge.source_operator_id in before for edge in out
    )


class _Walk:
    """Follows rows from a DataFrame to the aggregation: the origin of their columns, and the conditions passed.

    `known`: the DataFrame's columns by their names in the stream. `are_texts_bytes`: see planned_aggregate.
    """

    def __init__(self, known: Mapping[str, T.StructField], *, are_texts_bytes: bool) -> None:
        self._are_texts_bytes: Final = are_texts_bytes
        self._fields: Final = {field.name: field for field in known.values()}
        self.columns: Mapping[str, str] = {name: field.name for name, field in known.items()}
        self.conditions: Final[list[tuple[ColumnCondition, Mapping[str, str]]]] = []
        self.time: tuple[str, str] | None = None

    def passes_source(self, spec: SourceSpec) -> bool:
        """Follow rows out of the source; return whether Spark assigns them the same event time."""
        column = spec.source.event_time_column
        return (column is None or self._takes_time(column)) and self._passes_times(spec.strategy)

    def passes(self, spec: Any) -> bool:
        """Follow rows through an operator; return whether Spark can do the same."""
        match spec:
            case FilterExpressionSpec(implied=ColumnCondition() as implied, is_implied_whole=True):
                self.conditions.append((implied, self.columns))
                return self._compares_alike(implied)
            case SelectExpressionsSpec():
                self.columns = {
                    name: self.columns[one]
                    for name, expression in spec.expressions
                    for one in self.columns
                    if expression.equals(pc.field(one))
                }
                return len(self.columns) == len(spec.expressions)
            case TimestampsAndWatermarksSpec():
                return self._passes_times(spec.strategy)
            case _:
                return False

    def takes(self, aggregation: SlicedAggregation) -> bool:
        """Return whether Spark groups and aggregates these columns as the operator does."""
        return (
            (self.time is not None or aggregation.windows.is_until_end_of_input)
            and all(self._groups_alike(self._field(name)) for name in aggregation.key_columns)
            and all(
                one.function == "count"
                or (
                    one.function in _OF_INTEGERS
                    and isinstance(self._field(one.column or "").dataType, INTEGERS)
                )
                for one in aggregation.aggregates
            )
        )

    def _field(self, name: str) -> T.StructField:
        return self._fields[self.columns[name]]

    def _passes_times(self, strategy: WatermarkStrategy | None) -> bool:
        """Follow a watermark strategy; its watermarks have no effect in BATCH mode."""
        if strategy is None:
            return True
        assigner = strategy.timestamp_assigner
        if isinstance(assigner, ColumnTimestampAssigner):
            return self._takes_time(assigner.column)
        return assigner is None and strategy.generator_supplier is None

    def _takes_time(self, column: str) -> bool:
        """Return whether a column gives the event time in Spark too.

        False for a second one, as a null in the first column must fail the job.
        """
        if self.time is not None or column not in self.columns:
            return False
        self.time = column, self.columns[column]
        return isinstance(self._field(column).dataType, _TIMES)

    def _compares_alike(self, condition: ColumnCondition) -> bool:
        match condition:
            case Comparison(column, _, value):
                kind = self._field(column).dataType
                if isinstance(kind, INTEGERS):
                    return type(value) is int and -(2**63) <= value < 2**63
                if isinstance(kind, T.BooleanType):
                    return type(value) is bool
                return self._groups_alike(self._field(column)) and type(value) is str
            case And(conditions) | Or(conditions):
                return all(map(self._compares_alike, conditions))
            case _:
                return False

    def _groups_alike(self, field: T.StructField) -> bool:
        """Return whether equal values are equal bytes in Spark too; padded and collated texts are not."""
        kind = field.dataType
        is_plain_text = kind == T.StringType() and not field.metadata and self._are_texts_bytes
        return is_plain_text or isinstance(kind, (*INTEGERS, T.BooleanType))


class SparkAggregates:
    """Aggregates of one job. Plans each DataFrame once, as planning may take longer than a short job's records."""

    def __init__(self, spark: SparkSession, graph: JobGraph) -> None:
        self._spark: Final = spark
        self._graph: Final = graph
        self._plans: Final[dict[str, str]] = {}
        self._has_partition_count = False

    def aggregated(self, vertex: JobVertex) -> tuple[JobVertex, DataFrame] | None:
        """Return a vertex that reads partial results instead of rows, and these results as `source_frame` returns rows.

        None if Spark cannot compute them, or if the vertex reads no DataFrame.
        """
        place = _place_of_half(vertex)
        if place is None or not reads_dataframe(vertex):
            return None
        head, half, *behind = vertex.operators[0], *vertex.operators[place:]
        df = dataframe_of(vertex)
        is_of_connector = makes_connectors_scan(self._physical_plan(vertex))
        plan = planned_aggregate(
            vertex,
            self._graph.edges_out_of(vertex.vertex_id),
            df.schema.fields,
            are_texts_bytes=not is_of_connector,
        )
        if plan is None:
            return None
        zero = _ZERO_OF_SPARK if is_of_connector else "0L"
        made = _partial_results(in_session(self._spark, df), plan, half.name, zero)
        partial_type = load_types(vertex, VertexPayloads.of(vertex, ()))[place].output
        self._set_partition_count()
        # The rows come from Spark's plan, and not by the name of a DataFrame.
        source = DataFrameSource("", partial_type.value_type)
        reader = msgspec.structs.replace(
            head,
            operator_id=half.operator_id,
            payload=pickle_code(SourceSpec(source, None)),
            types_payload=pickle_code(OperatorTypes((), partial_type)),
        )
        skipped = {one.operator_id for one in vertex.operators[:place]}
        edges = tuple(one for one in vertex.chain_edges if one.source_id not in skipped)
        _LOG.info("Spark aggregates the rows of '%s' itself, instead of '%s'", head.name, half.name)
        reading = msgspec.structs.replace(vertex, operators=(reader, *behind), chain_edges=edges)
        return reading, for_subtasks(made, vertex.parallelism)

    def _set_partition_count(self) -> None:
        """Have Spark shuffle partial results to as many tasks as the vertex with most subtasks has.

        No effect if a DataFrame of the job has shuffles of its own. Set once, as all vertices give the same answer.
        """
        if self._has_partition_count:
            return
        self._has_partition_count = True
        readers = [one for one in self._graph.vertices if reads_dataframe(one)]
        if not any("Exchange" in self._physical_plan(one) for one in readers):
            count = max(one.parallelism for one in readers)
            self._spark.conf.set("spark.sql.shuffle.partitions", str(count))

    def _physical_plan(self, vertex: JobVertex) -> str:
        """Return the plan of the DataFrame that a vertex reads."""
        dataframe_id = dataframe_id_of(vertex)
        if dataframe_id not in self._plans:
            self._plans[dataframe_id] = physical_plan(self._spark, dataframe_of(vertex))
        return self._plans[dataframe_id]


def _partial_results(
    frame: DataFrame, plan: AggregatePlan, operator_name: str, zero: str
) -> DataFrame:
    """Return the columns of `SlicedAggregation.partial_schema`, in their order, under the names of a stage's input.

    `zero`: Spark SQL expression for the one slice of rows without an event time.
    """
    aggregation = plan.aggregation
    fields = {field.name: field for field in frame.schema.fields}
    begin = zero
    if plan.time is not None:
        name, column = plan.time
        place = f"operator '{operator_name}', column '{name}'"
        begin = _slice(fields[column], aggregation.windows, place)
    for condition, columns in plan.conditions:
        of_names = {name: fields[column] for name, column in columns.items()}
        kept = spark_condition(condition, columns, of_names)
        assert kept is not None, f"{condition} was planned"
        frame = frame.where(kept)
    keys = {f"k{index}": name for index, name in enumerate(aggregation.key_columns)}
    used = sorted({one.column for one in aggregation.aggregates if one.column is not None})
    values = {name: f"v{index}" for index, name in enumerate(used)}
    picked = [(name, alias) for alias, name in keys.items()] + list(values.items())
    texts = [f"`{plan.columns[name]}` AS {alias}" for name, alias in picked]
    # Texts of SQL: a method of a Column makes about ten calls of the JVM.
    # A timestamp without a zone is one of UTC, as in Arrow, wherever the session is.
    with _analysed_with(frame.sparkSession, _TIME_ZONE, "UTC"):
        rows = frame.selectExpr(*texts, f"{begin} AS s")
    # Sums wrap beyond 64 bits, as ours do: in ANSI mode they fail the job.
    with _analysed_with(frame.sparkSession, _ANSI, "false"):
        grouped = rows.groupBy(*keys, "s").agg(*map(F.expr, _aggregates(aggregation, values)))
    return grouped.toDF(*map(dataframe_column, range(len(grouped.columns))))


def _aggregates(aggregation: SlicedAggregation, values: Mapping[str, str]) -> Iterator[str]:
    yield "count(1)"
    for one in aggregation.aggregates:
        if one.column is None:
            continue
        value = values[one.column]
        if one.function != "mean":
            yield f"{one.function}({value})"
            continue
        yield f"sum({value})"
        yield f"sum(shiftright(CAST({value} AS BIGINT), {HALF_BITS}))"
        yield f"count({value})"


def _slice(field: T.StructField, windows: EventTimeWindows, place: str) -> str:
    """Return the beginning of a row's slice, epoch ms; a row with an event time out of range fails the job."""
    time = _milliseconds(f"`{field.name}`", field.dataType)
    fits, begin, reason = f"{time} IS NOT NULL", "0L", "is null"
    if not windows.is_until_end_of_input:
        limit = TIME_LIMIT_MS - windows.size
        fits = f"{time} BETWEEN -{limit}L AND {limit}L"
        begin = f"{time} - pmod({time} - {windows.offset}L, {windows.slice_ms}L)"
        reason = f"is null or too far from 1970 for windows of {windows.size} ms"
    # A text in digits, as settings of the session decide what a backslash means.
    text = f"{place}: the event time {reason}: ".encode().hex()
    shown = f"concat(CAST(X'{text}' AS STRING), coalesce(CAST({time} AS STRING), 'null'))"
    return f"CASE WHEN {fits} THEN {begin} ELSE CAST(raise_error({shown}) AS BIGINT) END"


def _milliseconds(column: str, kind: T.DataType) -> str:
    """Return a column as epoch ms. Microseconds are truncated towards 1970, as in Arrow."""
    if isinstance(kind, T.DateType):
        return f"(CAST(unix_date({column}) AS BIGINT) * {_DAY_MS}L)"
    if isinstance(kind, INTEGERS):
        return f"CAST({column} AS BIGINT)"
    return f"(unix_micros(CAST({column} AS TIMESTAMP)) DIV 1000L)"


def makes_connectors_scan(plan: str) -> bool:
    """Return whether a physical plan reads through a connector that may filter and group itself, as a database does."""
    return _CONNECTORS_SCAN.search(plan) is not None


def physical_plan(spark: SparkSession, df: DataFrame) -> str:
    """Return the physical plan of a DataFrame in a session, as text."""
    java_frame: Any = getattr(in_session(spark, df), "_jdf")  # noqa: B009
    return java_frame.queryExecution().executedPlan().toString()


@contextmanager
def _analysed_with(spark: SparkSession, key: str, value: str) -> Generator[None]:
    """Set a Spark setting for expressions created within the block, which keep it; other sessions are not affected."""
    before = spark.conf.get(key)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        assert before is not None, f"setting {key} must have a default"
        spark.conf.set(key, before)

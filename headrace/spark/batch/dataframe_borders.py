"""Connects a BATCH job with DataFrames: its sources, which Spark plans as a whole, and its results.

A DataFrame source is the leaf of its stage's plan. Catalyst sees the columns that the chain reads, and conditions that
its filter expressions imply, and reads no more than needed. The filters stay in the chain, as they also decide on
nulls. The rows of a DataFrame sink leave the stage before it by an outgoing edge, and become columns again; the sink
itself is removed from the graph. In both directions no row passes through files of Headrace.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, cast

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.api.columns.expressions import missing_column
from headrace.connectors.dataframe.messages import (
    SOURCE_COORDINATOR,
    PartitionsAnnounced,
    SourcePayload,
)
from headrace.core.errors import ProgramError
from headrace.core.ids import IntermediateDataSetId, JobVertexId, OperatorId
from headrace.core.record_batch import BatchType
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.core.types.arrow_types import data_schema
from headrace.functions.column_conditions import And, ColumnCondition, Comparison, Or
from headrace.functions.specs.operator_specs import (
    FilterExpressionSpec,
    SelectExpressionsSpec,
    SourceSpec,
)
from headrace.functions.watermarks import ColumnTimestampAssigner
from headrace.graph.job_graph import (
    ChainedOperator,
    JobEdge,
    JobGraph,
    JobVertex,
    PartitionerKind,
    PartitionerSpec,
    VertexPayloads,
)
from headrace.spark.dataframes.dataframes import dataframe_named
from headrace.task.batch.dataframe_rows import dataframe_column
from headrace.task.batch.edge_rows import EdgeRows
from headrace.task.batch.stage_rows import RECEIVER, row_column
from headrace.task.user_payloads import load_specs, load_types

_FORWARD: Final = PartitionerSpec(PartitionerKind.FORWARD)
INTEGERS: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_EXACT_INTEGERS: Final = 2**53
_LONG_MAX: Final = 2**63
_OPERATORS: Final[Mapping[str, Callable[[Column, Any], Any]]] = {
    "==": lambda column, value: column == value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}


def in_session(spark: SparkSession, df: DataFrame) -> DataFrame:
    """Return the same DataFrame in another session, so that its plan is made and run with that session's settings."""
    jvm: Any = getattr(spark, "_jvm")  # noqa: B009
    java_frame = jvm.org.apache.spark.sql.classic.Dataset.ofRows(
        getattr(spark, "_jsparkSession"),  # noqa: B009
        getattr(df, "_jdf").logicalPlan(),  # noqa: B009
    )
    return DataFrame(java_frame, spark)


def reads_dataframe(vertex: JobVertex) -> bool:
    """Return whether the head of a vertex reads a DataFrame."""
    return vertex.operators[0].coordinator == SOURCE_COORDINATOR


def dataframe_id_of(vertex: JobVertex) -> str:
    """Return the name of the DataFrame that a vertex reads."""
    payload = vertex.operators[0].coordinator_payload
    return msgspec.msgpack.decode(payload, type=SourcePayload).dataframe_id


def dataframe_of(vertex: JobVertex) -> DataFrame:
    """Return the DataFrame that a vertex reads; HostError if this driver does not have it."""
    return dataframe_named(dataframe_id_of(vertex), f"operator '{vertex.operators[0].name}'")


def source_frame(spark: SparkSession, vertex: JobVertex, out: Sequence[JobEdge]) -> DataFrame:
    """Return the rows of the vertex's DataFrame as its stage reads them; HostError if this driver does not have it.

    Its partitions are merged, without a shuffle, until there are at most as many as subtasks. Each row has the number
    of its subtask, and the columns that the chain reads.
    """
    head = vertex.operators[0]
    df = dataframe_of(vertex)
    (types,) = load_types(_alone(vertex, head), _payloads_of(head))
    schema = data_schema(types.output.value_type)
    use = _ChainedUse(vertex, out, schema)
    frame = in_session(spark, df)
    columns = dict(zip(schema.names, frame.columns, strict=True))
    fields = dict(zip(schema.names, frame.schema.fields, strict=True))
    for condition in use.conditions:
        implied = spark_condition(condition, columns, fields)
        if implied is not None:
            frame = frame.where(implied)
    read = [
        _column(columns[name]).alias(dataframe_column(index))
        for index, name in enumerate(schema.names)
        if use.columns is None or name in use.columns
    ]
    return for_subtasks(frame.select(*read), vertex.parallelism)


def for_subtasks(frame: DataFrame, parallelism: int) -> DataFrame:
    """Return rows with their subtask's number; merges partitions to at most `parallelism`, without a shuffle."""
    united = frame.coalesce(parallelism)
    return united.select(F.spark_partition_id().alias(RECEIVER), *united.columns)


def source_splits(vertex: JobVertex) -> tuple[tuple[bytes, ...], ...]:
    """Return for each subtask the event that assigns its one partition to its reader."""
    return tuple(
        (msgspec.msgpack.encode(PartitionsAnnounced((index,))),)
        for index in range(vertex.parallelism)
    )


class _ChainedUse:
    """Columns that the chain of a DataFrame source reads, and conditions that every row it keeps fulfils.

    `columns`: the columns that it reads, None for all. `conditions`: true for each row that is not dropped at once.
    """

    def __init__(self, vertex: JobVertex, out: Sequence[JobEdge], schema: pa.Schema) -> None:
        self._vertex: Final = vertex
        self._out: Final = out
        self._schema: Final = schema
        self._operators: Final = {one.operator_id: one for one in vertex.operators}
        self.conditions: Final[list[ColumnCondition]] = []
        head = vertex.operators[0]
        self.columns: set[str] | None = self._read_by_source(self._load(head))
        self._follow(head.operator_id, holds_for_all=True)

    def _read_by_source(self, spec: SourceSpec) -> set[str] | None:
        strategy = spec.strategy
        columns: set[str] = set()
        if spec.source.event_time_column is not None:
            columns.add(spec.source.event_time_column)
        if strategy is None:
            return columns
        assigner = strategy.timestamp_assigner
        if isinstance(assigner, ColumnTimestampAssigner):
            columns.add(assigner.column)
        elif assigner is not None or strategy.generator_supplier is not None:
            return None
        return columns

    def _follow(self, operator_id: OperatorId, *, holds_for_all: bool) -> None:
        """Record what the readers of an operator's output use, where the output has the source's columns."""
        edges = [one for one in self._vertex.chain_edges if one.source_id == operator_id]
        if any(edge.source_operator_id == operator_id for edge in self._out):
            self.columns = None
            return
        holds_for_all = holds_for_all and len(edges) == 1
        for edge in edges:
            operator = self._operators[edge.target_id]
            if operator.kind == FilterExpressionSpec.kind:
                spec = self._load(operator)
                self._reads(spec.expression)
                if spec.implied is not None and holds_for_all:
                    self.conditions.append(spec.implied)
                self._follow(operator.operator_id, holds_for_all=holds_for_all)
            elif operator.kind == SelectExpressionsSpec.kind:
                for _, expression in self._load(operator).expressions:
                    self._reads(expression)
            else:
                self.columns = None

    def _reads(self, expression: Any) -> None:
        if self.columns is None:
            return
        found = _fields_of(expression, self._schema)
        self.columns = None if found is None else self.columns | found

    def _load(self, operator: ChainedOperator) -> Any:
        (spec,) = load_specs(_alone(self._vertex, operator), _payloads_of(operator))
        return spec


def _alone(vertex: JobVertex, operator: ChainedOperator) -> JobVertex:
    return msgspec.structs.replace(vertex, operators=(operator,))


def _payloads_of(operator: ChainedOperator) -> VertexPayloads:
    return VertexPayloads((operator.payload,), (operator.types_payload,), ())


def _fields_of(expression: Any, schema: pa.Schema) -> set[str] | None:
    """Return the columns that an Arrow expression reads; None if they are unknown.

    Arrow only names the first missing column when it binds the expression to a schema.
    """
    # Imported here, because it imports pandas where there is one.
    import pyarrow.dataset as pads

    found: set[str] = set()
    while True:
        part = pa.schema([field for field in schema if field.name in found])
        try:
            pads.dataset(part.empty_table()).scanner(columns={"value": expression})
        except (pa.ArrowException, KeyError) as error:
            missing = missing_column(str(error))
            if missing is None or missing in found or missing not in schema.names:
                return None
            found.add(missing)
        else:
            return found


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def spark_condition(
    condition: ColumnCondition, columns: Mapping[str, str], fields: Mapping[str, T.StructField]
) -> Column | None:
    """Return a Spark condition that is true wherever the given one is; None if there is none."""
    match condition:
        case Comparison(column, operator, value):
            literal = _literal(fields[column], value)
            if literal is None:
                return None
            return cast(Column, _OPERATORS[operator](_column(columns[column]), literal))
        case And(conditions):
            known = [spark_condition(one, columns, fields) for one in conditions]
            parts = [one for one in known if one is not None]
            return reduce(lambda a, b: a & b, parts) if parts else None
        case Or(conditions):
            known = [spark_condition(one, columns, fields) for one in conditions]
            parts = [one for one in known if one is not None]
            return (
                reduce(lambda a, b: a | b, parts, F.lit(False))
                if len(parts) == len(known)
                else None
            )
        case _:
            return None


def _literal(field: T.StructField, value: Any) -> Column | None:
    """Return a value that Spark compares with the column as Arrow does; None if the two may differ."""
    kind = field.dataType
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(kind, INTEGERS) and is_number:
        fits = isinstance(value, int) and -_LONG_MAX <= value < _LONG_MAX
        return F.lit(value) if fits else None
    if isinstance(kind, T.DoubleType) and is_number:
        is_exact = isinstance(value, float) or abs(value) <= _EXACT_INTEGERS
        return F.lit(float(value)) if is_exact and value == value else None
    if isinstance(kind, T.BooleanType) and isinstance(value, bool):
        return F.lit(value)
    # Texts of another collation, and padded ones, compare in ways of their own.
    is_plain_text = kind == T.StringType() and not field.metadata
    return F.lit(value) if is_plain_text and isinstance(value, str) else None


@dataclass(frozen=True)
class DataFrameOutput:
    """A sink that was removed from the graph, and the edges that bring its rows."""

    operator: ChainedOperator
    edges: tuple[JobEdge, ...]


def cut_outputs(
    graph: JobGraph, is_output: Callable[[ChainedOperator], bool]
) -> tuple[JobGraph, tuple[DataFrameOutput, ...]]:
    """Return the graph without these sinks, and for each of them the edges that led to it and now leave the graph."""
    outputs: list[DataFrameOutput] = []
    vertices: list[JobVertex] = []
    edges = list(graph.edges)
    for vertex in graph.vertices:
        for operator in filter(is_output, vertex.operators):
            made = _edges_to(graph, vertex, operator)
            known = {edge.data_set_id for edge in made}
            edges = [*(edge for edge in edges if edge.data_set_id not in known), *made]
            outputs.append(DataFrameOutput(operator, made))
            kept = tuple(one for one in vertex.operators if one is not operator)
            vertex = msgspec.structs.replace(
                vertex,
                operators=kept,
                chain_edges=tuple(
                    one for one in vertex.chain_edges if one.target_id != operator.operator_id
                ),
            )
        if vertex.operators:
            vertices.append(vertex)
    cut = msgspec.structs.replace(graph, vertices=tuple(vertices), edges=tuple(edges))
    return cut, tuple(outputs)


def _edges_to(graph: JobGraph, vertex: JobVertex, operator: ChainedOperator) -> tuple[JobEdge, ...]:
    if operator is vertex.operators[0]:
        return tuple(
            msgspec.structs.replace(edge, partitioner=_FORWARD)
            for edge in graph.edges_into(vertex.vertex_id)
        )
    into = next(one for one in vertex.chain_edges if one.target_id == operator.operator_id)
    beyond = operator.operator_id.value
    return (
        JobEdge(
            data_set_id=IntermediateDataSetId(beyond),
            source_vertex_id=vertex.vertex_id,
            source_operator_id=into.source_id,
            target_vertex_id=JobVertexId(beyond),
            target_operator_id=operator.operator_id,
            input_number=0,
            partitioner=_FORWARD,
            result_type=ResultPartitionType.PIPELINED_BOUNDED,
            buffer_timeout_ms=0,
            side_output_tag=into.side_output_tag,
        ),
    )


def output_frame(
    output: DataFrameOutput,
    vertex_of: Callable[[JobVertexId], JobVertex],
    rows_of: Callable[[JobEdge], DataFrame],
) -> DataFrame:
    """Return the rows of a removed sink as a DataFrame with the columns of its stream's type.

    `rows_of`: returns the rows of an edge in the schema of its stage. ProgramError if Spark has no type for a column.
    """
    (types,) = load_types(
        _alone(vertex_of(output.edges[0].source_vertex_id), output.operator),
        _payloads_of(output.operator),
    )
    value_type = types.inputs[0].value_type
    if EdgeRows(BatchType(value_type)).is_pickled:
        place = f" ({output.operator.location})" if output.operator.location else ""
        raise ProgramError(
            f"the records of operator '{output.operator.name}'{place} are of type {value_type}, for which Spark has "
            f"no columns in BATCH mode: give the operator before the sink an output_type of simple columns"
        )
    names = data_schema(value_type).names
    frames = [
        rows_of(edge).select(
            *(F.col(f"{row_column(edge.input_number)}.c{i}").alias(n) for i, n in enumerate(names))
        )
        for edge in output.edges
    ]
    return reduce(DataFrame.union, frames)

"""Pushes a DataFrame: plans a Spark job whose tasks send each partition to its subtask.

Batches have a fixed size, partitions are known beforehand, and pandas is not needed.

`unrepeatable_part` finds out whether a DataFrame gives the same rows in the same order each time it is computed. A plan
that scans files or a range, with filters, projections and unions above it, does so row by row. A shuffle, a join, an
RDD, a table of another system or a random number does not: rows may differ, or come in another order. Such a
DataFrame is written to files once, and read from there.
"""

import hashlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import PythonEvalType

from headrace.core.ids import JobId, OperatorId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.ingest.sender import IngestSender
from headrace.spark.session.authentication import received_secrets

ArrowBody = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

PINNED_SETTINGS: Final[Mapping[str, str]] = {
    # Re-planning at run time would merge partitions after they were announced.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
}

_LEAF_PARALLELISM: Final = "spark.sql.leafNodeDefaultParallelism"
_SPARK_SYNTAX: Final = frozenset(".`*")
"""Characters that Spark interprets in a column's name."""
_planning: Final = threading.Lock()
_RESULT_SCHEMA: Final = pa.schema([("partition", pa.int32()), ("row_count", pa.int64())])
RESULT_SCHEMA_TEXT: Final = "partition int, row_count bigint"
ATTEMPTS_PER_RUN: Final = 1000
"""Upper limit of Spark's attempts of one task: attempts of a later job must count as newer."""
_REPEATABLE_NODES: Final = re.compile(
    r"Range|LocalTableScan|Scan (OneRowRelation|(parquet|orc|json|csv|text|avro)\b.*)|"
    r"Project|Filter|Union|Expand|Generate|ColumnarToRow|InputAdapter|WholeStageCodegen.*"
)
"""Names of physical operators whose output follows from their input, row by row."""
_NOT_OF_THE_PLAN: Final = re.compile(r"#\d+L?|\*?\(\d+\)|splits=[^)]*\)?")
"""Numbers in a plan's text that change from one program to the next, or with the present executors."""
_PINNED_BY_PLAN: Final = (
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.files.minPartitionNum",
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
)
"""Settings that affect rows, or their division into partitions."""


@dataclass(frozen=True)
class PushPlan:
    """A planned job: `partition_count` is final; `run` executes it and returns when it has ended."""

    partition_count: int
    java_frame: Any

    def run(self) -> None:
        """Run the job; raises Spark's exceptions."""
        self.java_frame.collectToPython()


def default_parallelism(spark: SparkSession) -> int:
    """Return Spark's default number of partitions; it changes as executors come and go."""
    return int(spark.conf.get(_LEAF_PARALLELISM, None) or spark.sparkContext.defaultParallelism)


def plan_push(
    df: DataFrame, body: ArrowBody, result_schema: str, parallelism: int | None = None
) -> PushPlan:
    """Plan `df.mapInArrow(body)` under the pinned settings; the session's own are restored afterwards.

    `parallelism` replaces `default_parallelism` if the partitions must be those of an earlier plan. Only planning reads
    the settings, so other queries of the session see them for milliseconds only.
    """
    spark = df.sparkSession
    settings = dict(PINNED_SETTINGS)
    if parallelism is not None:
        settings[_LEAF_PARALLELISM] = str(parallelism)
    with _planning, _pinned(spark, settings):
        java_frame = _map_in_arrow(df, body, result_schema)
        partition_count = int(java_frame.queryExecution().toRdd().getNumPartitions())
    return PushPlan(partition_count, java_frame)


def map_in_arrow(df: DataFrame, body: ArrowBody, result_schema: str) -> DataFrame:
    """Return `df.mapInArrow(body, result_schema)`, without needing pandas unless `df` is of Spark Connect."""
    if is_of_connect(df):
        return df.mapInArrow(body, result_schema)
    return DataFrame(_map_in_arrow(df, body, result_schema), df.sparkSession)


def is_of_connect(df: DataFrame) -> bool:
    """Return whether a DataFrame is of Spark Connect: its plan is in the server, and this process has no JVM for it."""
    return type(df).__module__.startswith("pyspark.sql.connect.")


def with_plain_names(df: DataFrame) -> DataFrame:
    """Return `df` with columns that Spark finds by their names, in the same order; `df` itself if it has them already.

    Spark reads `a.b` as a field of `a`, and by default treats `a` and `A` as the same column.
    """
    if has_plain_names(df.columns):
        return df
    return df.toDF(*(f"_{index}" for index in range(len(df.columns))))


def has_plain_names(names: Sequence[str]) -> bool:
    """Return whether each of the names, taken literally, refers to one column in Spark."""
    is_unique = len({name.upper().casefold() for name in names}) == len(names)
    return is_unique and not any(_SPARK_SYNTAX.intersection(name) for name in names)


def _map_in_arrow(df: DataFrame, body: ArrowBody, result_schema: str) -> Any:
    if importlib.util.find_spec("pandas") is not None:
        return getattr(df.mapInArrow(body, result_schema), "_jdf")  # noqa: B009
    # Spark's Python wrapper asks for pandas, though nothing on this way uses it: make the function without it.
    from pyspark.sql.udf import UserDefinedFunction

    function = UserDefinedFunction(
        body,  # pyright: ignore[reportArgumentType]
        returnType=result_schema,  # pyright: ignore[reportArgumentType]
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    column: Any = function(*[df[name] for name in df.columns])
    java_frame: Any = getattr(df, "_jdf")  # noqa: B009
    return java_frame.mapInArrow(column._jc, False, None)


@contextmanager
def _pinned(spark: SparkSession, settings: Mapping[str, str]) -> Generator[None, None, None]:
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


@dataclass(frozen=True)
class PushTarget:
    """Destination of a DataFrame's rows; travels in the closure of the Spark job, and so contains no secret."""

    job_id: JobId
    operator_id: OperatorId
    locations: tuple[TaskManagerLocation, ...]
    run_number: int = 0
    open_partitions: Mapping[int, int] | None = None
    """Subtask by partition; None before the assignment, when i goes to subtask i modulo the number of subtasks."""
    first_partition: int = 0
    """Number of the partition that Spark counts as 0."""

    def subtask_of(self, partition: int) -> int | None:
        """Return the subtask that gets the partition; None for a partition that has ended."""
        if self.open_partitions is None:
            return partition % len(self.locations)
        return self.open_partitions.get(partition)


def push_partition(
    target: PushTarget, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Send this partition's rows to its subtask, without those accepted before; the body of the pushing Spark task."""
    context = TaskContext.get()
    assert context is not None
    partition = target.first_partition + context.partitionId()
    attempt = target.run_number * ATTEMPTS_PER_RUN + context.attemptNumber()
    subtask_index = target.subtask_of(partition)
    if subtask_index is None:
        return
    secrets = received_secrets()
    sender = IngestSender(
        target.locations[subtask_index],
        secrets.secret,
        target.job_id,
        target.operator_id,
        subtask_index,
        partition,
        attempt,
        tls=secrets.tls,
    )
    try:
        row_count = 0
        for batch in batches:
            new = max(0, min(batch.num_rows, sender.accepted_row_count - row_count))
            if new < batch.num_rows:
                sender.send(batch.slice(new), row_count + new)
            row_count += batch.num_rows
        sender.finish(row_count)
    finally:
        sender.close()
    yield pa.RecordBatch.from_pydict(
        {"partition": [partition], "row_count": [row_count]}, schema=_RESULT_SCHEMA
    )


def push_body(target: PushTarget) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that each Spark task runs over the batches of its partition."""

    def push(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from push_partition(target, batches)
        except Exception:
            _close_standard_error()
            raise

    return push


def _close_standard_error() -> None:
    """Close the standard error of the worker's process, which ends with the failure of its task.

    The failure itself goes to Spark through the worker's socket. If Spark has cancelled the task, because a stream
    was closed before its last row, nobody reads that socket: Spark's daemon would only print a broken pipe here.
    """
    # It stays open until the process ends.
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def unrepeatable_part(df: DataFrame) -> str | None:
    """Return the part of the plan that may give other rows when it runs again, or None. Calls the JVM."""
    plan: Any = getattr(df, "_jdf").queryExecution().sparkPlan()  # noqa: B009
    if not plan.deterministic():
        return "an expression that is not deterministic"
    for node in plan_nodes(plan):
        name = str(node.nodeName())
        if not _REPEATABLE_NODES.fullmatch(name.strip()):
            return name.strip()
    return None


def plan_identity(df: DataFrame, partition_count: int, parallelism: int) -> str:
    """Return a short text that is equal only if the same partitions with the same rows can be expected."""
    execution: Any = getattr(df, "_jdf").queryExecution()  # noqa: B009
    spark = df.sparkSession
    parts = [
        _NOT_OF_THE_PLAN.sub("", str(execution.sparkPlan().toString())),
        *sorted(df.inputFiles()),
        *(f"{key}={spark.conf.get(key, None)}" for key in _PINNED_BY_PLAN),
        f"parallelism={parallelism}",
    ]
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
    return f"{partition_count} partitions, plan {digest}"


def plan_nodes(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a Spark plan, from its root."""
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from plan_nodes(children.apply(index))

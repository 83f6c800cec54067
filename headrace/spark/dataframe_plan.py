"""Plans the Spark job that pushes a DataFrame: fixed batches, partitions known beforehand, no pandas needed."""

import importlib.util
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import PythonEvalType

ArrowBody = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

PINNED_SETTINGS: Final[Mapping[str, str]] = {
    # Re-planning at run time would merge partitions after they were announced.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
}

_LEAF_PARALLELISM: Final = "spark.sql.leafNodeDefaultParallelism"
_SPARK_SYNTAX: Final = frozenset(".`*")
"""What a column's name holds that Spark reads as more than a name."""
_planning: Final = threading.Lock()


@dataclass(frozen=True)
class PushPlan:
    """A planned job: `partition_count` is final; `run` executes it and returns when it has ended."""

    partition_count: int
    java_frame: Any

    def run(self) -> None:
        """Run the job; raises what Spark raises."""
        self.java_frame.collectToPython()


def default_parallelism(spark: SparkSession) -> int:
    """Return into how many partitions Spark would cut what says nothing itself; it changes as executors come and go."""
    return int(spark.conf.get(_LEAF_PARALLELISM, None) or spark.sparkContext.defaultParallelism)


def plan_push(
    df: DataFrame, body: ArrowBody, result_schema: str, parallelism: int | None = None
) -> PushPlan:
    """Plan `df.mapInArrow(body)` under the pinned settings; they are the session's again afterwards.

    `parallelism` stands for `default_parallelism` where the partitions must be those of an earlier plan. Planning alone
    reads the settings, so other queries of the session see them for milliseconds only.
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
    """Return `df.mapInArrow(body, result_schema)`, whether pandas is there or not."""
    return DataFrame(_map_in_arrow(df, body, result_schema), df.sparkSession)


def with_plain_names(df: DataFrame) -> DataFrame:
    """Return `df` with columns that Spark finds by their names, in the same order; `df` itself where it does already.

    Spark takes `a.b` for a field of `a`, and by default `a` and `A` for the same column.
    """
    if has_plain_names(df.columns):
        return df
    return df.toDF(*(f"_{index}" for index in range(len(df.columns))))


def has_plain_names(names: Sequence[str]) -> bool:
    """Whether each of the names, as it is, means one column to Spark."""
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

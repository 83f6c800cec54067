"""Whether a DataFrame gives the same rows in the same order each time it is computed, and how to make it so.

What Spark plans as a scan of files or a range, with filters, projections and unions above it, is read again row by row.
A shuffle, a join, an RDD, a table of another system or a random number is not: rows would come in another order, or be
others. Such a DataFrame is written to files once, and read from there.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

_REPEATABLE_NODES: Final = re.compile(
    r"Range|LocalTableScan|Scan (OneRowRelation|(parquet|orc|json|csv|text|avro)\b.*)|"
    r"Project|Filter|Union|Expand|Generate|ColumnarToRow|InputAdapter|WholeStageCodegen.*"
)
"""Names of physical operators whose output follows from their input, row by row."""
_NOT_OF_THE_PLAN: Final = re.compile(r"#\d+L?|\*?\(\d+\)|splits=[^)]*\)?")
"""Numbers in a plan's text that change from one program to the next, or with the executors that are there."""
_PINNED_BY_PLAN: Final = (
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.files.minPartitionNum",
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
)
"""Settings that change rows, or how they are cut into partitions."""


def unrepeatable_part(df: DataFrame) -> str | None:
    """Return what keeps the DataFrame from being computed again row by row, or None. Asks the JVM."""
    plan: Any = getattr(df, "_jdf").queryExecution().sparkPlan()  # noqa: B009
    if not plan.deterministic():
        return "an expression that is not deterministic"
    for node in _nodes(plan):
        name = str(node.nodeName())
        if not _REPEATABLE_NODES.fullmatch(name.strip()):
            return name.strip()
    return None


def plan_identity(df: DataFrame, partition_count: int, parallelism: int) -> str:
    """Return a short text that is the same only where the same partitions with the same rows can be expected."""
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


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))

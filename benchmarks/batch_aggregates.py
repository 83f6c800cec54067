"""How many rows of a DataFrame per second do aggregates take in BATCH mode, if Spark computes their first half?

Rows of Parquet are aggregated by key: number, sum, mean, smallest and largest value. `by_spark` and `by_headrace` are
one program, with and without `headrace.batch.aggregates-in-spark`; `spark_sql` is the same query without Headrace. With
as many keys as rows nothing is reduced before the shuffle. Each turn runs all ways one after another in one Spark
application, after a run of each that starts its workers. Kept are rows over the time from `execute` to the last result,
and processor seconds of all processes: medians of `--turns`, and the rates of each. Totals that differ are an error.

    python -m benchmarks.batch_aggregates [--rows 10000000] [--keys 1000 100000 10000000] [--parallelism 2] [--turns 5]
        [--dry]
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.nexmark.peers.measure import Measured
from benchmarks.nexmark.queries import END_OF_INPUT
from benchmarks.record import show_or_record
from headrace import agg
from headrace.core.config import Settings
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.options import AGGREGATES_IN_SPARK
from headrace.spark.session.session import host_session

MASTER = "local[4]"
Totals = tuple[int, ...]


def headrace(rows: DataFrame, parallelism: int, *, by_spark: bool) -> Totals:
    """Return the totals of all keys' aggregates, which the program computes as well."""
    env = StreamExecutionEnvironment.get_execution_environment()
    option = {AGGREGATES_IN_SPARK.key: str(by_spark).lower()}
    env.configure({"execution.runtime-mode": "BATCH", "headrace.spark.master": MASTER, **option})
    env.set_parallelism(parallelism)
    makers = {"sum": agg.sum, "mean": agg.mean, "min": agg.min, "max": agg.max}
    made = [make("price").alias(name) for name, make in makers.items()]
    keyed = env.from_dataframe(rows).key_by("key").window(END_OF_INPUT)
    by_key = keyed.aggregate(agg.count().alias("n"), *made)
    names = ("n", "sum", "min", "max")
    total = by_key.window_all(END_OF_INPUT).aggregate(agg.count(), *map(agg.sum, names))
    with total.execute_and_collect() as found:
        ((*_, keys, count, amount, least, most),) = found
    return keys, count, amount, least, most


def spark_sql(rows: DataFrame, parallelism: int) -> Totals:
    """Return the same totals by SQL alone."""
    rows.sparkSession.conf.set("spark.sql.shuffle.partitions", str(parallelism))
    made = [getattr(F, name)("price").alias(name) for name in ("sum", "mean", "min", "max")]
    by_key = rows.groupBy("key").agg(F.count("*").alias("n"), *made)
    # The mean is asked for, as no optimizer may leave it out.
    known = by_key.where("mean IS NOT NULL")
    total = known.agg(F.count("*"), *map(F.sum, ("n", "sum", "min", "max")))
    return tuple(total.collect()[0])


def main() -> None:
    """Take all ways in turn, for each number of keys."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="(%(default)s)")
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000, 100_000, 10_000_000])
    parser.add_argument("--parallelism", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--dry", action="store_true", help="keep no result")
    asked = parser.parse_args()
    ways: dict[str, Callable[[DataFrame, int], Totals]] = {
        "by_spark": lambda rows, parallelism: headrace(rows, parallelism, by_spark=True),
        "by_headrace": lambda rows, parallelism: headrace(rows, parallelism, by_spark=False),
        "spark_sql": spark_sql,
    }
    spark = host_session(Settings({"headrace.spark.master": MASTER})).spark
    with tempfile.TemporaryDirectory() as folder:
        for keys in asked.keys:
            file = str(Path(folder) / str(keys))
            numbers = spark.range(0, asked.rows, 1, 4)
            numbers.selectExpr(
                f"id * 7919 % {keys} AS key", "CAST(hash(id) % 1000000 AS BIGINT) AS price"
            ).write.parquet(file)
            rows = spark.read.parquet(file)
            for run in ways.values():
                run(rows, asked.parallelism)
            rates: dict[str, list[int]] = {name: [] for name in ways}
            cpu_seconds: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(asked.turns):
                totals: dict[str, Totals] = {}
                for name, run in ways.items():
                    with Measured() as measured:
                        totals[name] = run(rows, asked.parallelism)
                    rates[name].append(round(asked.rows / measured.wall_ms * 1000))
                    cpu_seconds[name].append(measured.cpu_seconds)
                if len(set(totals.values())) > 1:
                    raise ValueError(f"the ways disagree: {totals}")
            figures: dict[str, Any] = {
                "rows": asked.rows,
                "keys": keys,
                "parallelism": asked.parallelism,
                "turns": asked.turns,
            }
            for name in ways:
                figures[f"{name}_rows_per_second"] = statistics.median(rates[name])
                figures[f"{name}_cpu_seconds"] = statistics.median(cpu_seconds[name])
            figures["rows_per_second"] = rates
            show_or_record("batch_aggregates", figures, is_dry=asked.dry)


if __name__ == "__main__":
    main()

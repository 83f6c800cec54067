"""Aggregates of a DataFrame in BATCH mode, for tests: `batch_aggregates_program.py <seed> <number of programs>`.

The seed draws programs, which give the same in BATCH mode, with Spark's aggregates and without, and in STREAMING mode.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import reduce
from typing import Any

from pyspark.sql.functions import expr

from headrace import DataStream, agg, col
from headrace.common import Time
from headrace.core.errors import JobExecutionError
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.window import (
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headrace.spark.options import AGGREGATES_IN_SPARK
from headrace.spark.session import spark_session

SEED, PROGRAM_COUNT = map(int, sys.argv[1:3])
MODE = "execution.runtime-mode"
WAYS = {
    "by Spark": {MODE: "BATCH", AGGREGATES_IN_SPARK.key: "true"},
    "by Headrace": {MODE: "BATCH", AGGREGATES_IN_SPARK.key: "false"},
    "STREAMING": {MODE: "STREAMING"},
}
spark = spark_session()
# Times before and after 1970 that are no whole milliseconds, nulls, groups of nulls, NaN and -0.0, sums beyond 64 bits,
# texts that are not ASCII.
ROWS = spark.range(0, 3_000, 1, 3).selectExpr(
    "id",
    "CAST(id % 7 - 3 AS TINYINT) AS tiny",
    "IF(id % 11 = 0, NULL, 9223372036854775807 - id * 3) AS big",
    "IF(id % 5 = 0, NULL, CAST(-id AS INT)) AS `le``ss`",
    "CASE id % 4 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN 1e-3 * id END AS half",
    "element_at(array('ä', '', 'b', 'B'), CAST(id % 4 AS INT) + 1) AS name",
    "id % 5 = 0 AS fifth",
    "timestamp_micros(id * 1777 - 2500000) AS at",
    "CAST(timestamp_micros(id * 1777 - 2500000) AS TIMESTAMP_NTZ) AS local",
    "date_from_unix_date(CAST(id % 9 - 4 AS INT)) AS day",
    "id * 2 - 3000 AS ms",
)
TIMES = ["at", "local", "day", "ms"]
CONDITIONS = [
    col("id") < 2_500,
    (col("big") > 0) & (col("name") >= "b"),
    col("fifth") == True,  # noqa: E712 - a condition on a column
    col("name").is_in(["ä", ""]),
    col("le`ss").between(-2_000, -5) | (col("tiny") == 3),
]
SECOND = TumblingEventTimeWindows.of(Time.seconds(1))
WINDOWS = [
    TumblingEventTimeWindows.of(Time.milliseconds(700), Time.milliseconds(333)),
    SlidingEventTimeWindows.of(Time.milliseconds(900), Time.milliseconds(600)),
    TumblingEventTimeWindows.of(Time.days(2)),
    GlobalWindows.create_with_end_of_stream_trigger(),
]
AGGREGATES = [
    agg.count(),
    agg.count("half"),
    agg.count("name"),
    *(make(name) for make in (agg.sum, agg.mean, agg.min, agg.max) for name in ("tiny", "big")),
    agg.sum("le`ss"),
    agg.max("le`ss"),
]
Program = Callable[[DataStream], DataStream]


def run(way: str, program: Program, rows: Any = ROWS, event_time: str = "ms") -> Counter[str]:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(WAYS[way])
    env.set_parallelism(2)
    with program(env.from_dataframe(rows, event_time=event_time)).execute_and_collect() as found:
        return Counter(map(repr, found))


def spark_aggregates() -> bool:
    """Return whether Spark's plan of the newest query with one of our stages aggregates."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    newest = range(executions.size() - 1, -1, -1)
    texts = (executions.apply(index).physicalPlanDescription() for index in newest)
    return "HashAggregate" in next(text for text in texts if "MapInArrow" in text)


def drawn_program(draw: random.Random) -> Program:
    conditions = draw.sample(CONDITIONS, draw.randrange(3))
    keys = draw.sample(["tiny", "name", "fifth"], draw.randrange(3))
    windows = draw.choice(WINDOWS[:1] + WINDOWS[2:] if not keys else WINDOWS)
    aggregates = draw.sample(AGGREGATES, draw.randrange(1, 6))

    def program(stream: DataStream) -> DataStream:
        kept: Any = reduce(lambda one, condition: one.filter(condition), conditions, stream)
        windowed = kept.key_by(*keys).window(windows) if keys else kept.window_all(windows)
        return windowed.aggregate(*aggregates)

    return program


def compare(draw: random.Random) -> None:
    program, event_time = drawn_program(draw), draw.choice(TIMES)
    by_spark = run("by Spark", program, event_time=event_time)
    was_lowered = spark_aggregates()
    by_us = run("by Headrace", program, event_time=event_time)
    if not was_lowered or spark_aggregates():
        print("WRONG PLAN", was_lowered)
    streaming = run("STREAMING", program, event_time=event_time)
    if not by_spark == by_us == streaming:
        print("DIFFERENT", by_spark - streaming, streaming - by_spark, by_us - streaming)
    print("COMPARED")


def by_name(stream: Any) -> Any:
    return stream.key_by("name").window(SECOND).aggregate(agg.sum("id"))


def floating(stream: Any) -> Any:
    return stream.key_by("name").window(SECOND).aggregate(agg.sum("half"), agg.max("half"))


seeded = random.Random(SEED)
for _ in range(PROGRAM_COUNT):
    compare(seeded)
halves = run("by Spark", floating)
print("FLOATING", spark_aggregates(), halves == run("STREAMING", floating), len(halves) > 0)
# A DataFrame with a shuffle of its own.
counted = ROWS.groupBy("id", "name", "ms").count()
by_spark = run("by Spark", by_name, counted)
print("SHUFFLED", by_spark == run("by Headrace", by_name, counted), len(by_spark) > 0)
of_none = run("by Headrace", lambda stream: by_name(stream.filter(col("id").is_in([]))))
print("EMPTY", len(run("by Spark", by_name, ROWS.where("id < 0"))), len(of_none))
for column, value in (("ms", "NULL"), ("ms", "9223372036854775806"), ("name", "NULL")):
    wrong = ROWS.withColumn(column, expr(f"IF(id = 7, {value}, {column})"))
    try:
        run("by Spark", by_name, wrong)
    except JobExecutionError as error:
        print("ERROR", str(error).partition("\n")[0])

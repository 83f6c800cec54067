"""A program in BATCH mode with DataFrames on both sides, for tests: `batch_dataframes_program.py <folder>`."""

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from headrace import col
from headrace.common import Types
from headrace.connectors.dataframe.sink import DataFrameSink, IdempotentForeachBatchSink
from headrace.core.errors import JobExecutionError
from headrace.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.spark.session import spark_session

FOLDER = Path(sys.argv[1])
ROW_COUNT = 5_000
spark = spark_session()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)


def noted(row: Any) -> bool:
    with (FOLDER / "calls").open("ab") as file:
        file.write(b".")
    return True


def call_count() -> int:
    path = FOLDER / "calls"
    return len(path.read_bytes()) if path.exists() else 0


def divide(row: Any) -> int:
    return 1 // (row["id"] - 3)


class Share(MapFunction):
    """Tells which subtask a row is in."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._index = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> tuple[int, int]:
        return self._index, value["id"]


def last_plan() -> str:
    """Return Spark's plan of the newest query that has one of our stages in it."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    texts = [
        executions.apply(index).physicalPlanDescription() for index in range(executions.size())
    ]
    return next(text for text in reversed(texts) if "MapInArrow" in text)


spark.range(0, ROW_COUNT, 1, 4).selectExpr(
    "id", "id % 5 AS key", "id / 2 AS half", "concat('n', id) AS name", "timestamp_millis(id) AS at"
).write.parquet(str(FOLDER / "in"))
df = spark.read.parquet(str(FOLDER / "in"))

few = env.from_dataframe(df).filter((col("id") < 10) & (col("name") != "n3"))
with few.select("id", twice=col("half") * 4).execute_and_collect() as rows:
    print("FEW", sorted((row["id"], row["twice"]) for row in rows))
for line in last_plan().splitlines():
    if "PushedFilters" in line or "ReadSchema" in line:
        print("PLAN", line.strip())

shared = env.from_dataframe(spark.range(0, 6, 1, 2)).set_parallelism(4).map(Share())
with shared.execute_and_collect() as rows:
    found = list(rows)
    print("SHARES", sorted({index for index, _ in found}), sorted(number for _, number in found))

# Adaptive execution merges all rows of the program's query in one partition; subtasks get shares of them all the same.
for name, value in {
    "enabled": "true",
    "coalescePartitions.parallelismFirst": "false",
    "advisoryPartitionSizeInBytes": "1g",
}.items():
    spark.conf.set(f"spark.sql.adaptive.{name}", value)
grouped = spark.range(0, 200, 1, 4).selectExpr("id % 100 AS id").groupBy("id").count()
keyed = env.from_dataframe(grouped).key_by("id").map(Share()).set_parallelism(4)
with keyed.execute_and_collect() as rows:
    found = list(rows)
merged = grouped.rdd.getNumPartitions()
print(
    "ADAPTIVE", merged, sorted({index for index, _ in found}), len({number for _, number in found})
)
with env.from_dataframe(grouped).map(Share()).execute_and_collect() as rows:
    print("READERS", sorted({index for index, _ in rows}), "Arguments: coalesced" in last_plan())

# It cuts the partition of a key with most of the rows of a join, and merges others, before our first stage.
for name, value in {
    "autoBroadcastJoinThreshold": "-1",
    "shuffle.partitions": "16",
    "adaptive.advisoryPartitionSizeInBytes": "16k",
    "adaptive.skewJoin.skewedPartitionThresholdInBytes": "16k",
}.items():
    spark.conf.set(f"spark.sql.{name}", value)
KEY_OF_MOST = 7
facts = spark.range(0, 40_000, 1, 4).selectExpr(
    f"if(id % 10 < 9, {KEY_OF_MOST}, id % 1000) AS key", "id"
)
skewed = facts.join(spark.range(1_000).withColumnRenamed("id", "key"), "key")
keyed = env.from_dataframe(skewed).key_by("key").map(Share()).set_parallelism(4)
with keyed.execute_and_collect() as rows:
    found = list(rows)
places = {(index, number % 1000 if number % 10 == 9 else KEY_OF_MOST) for index, number in found}
print("SKEWED", "skew=true" in last_plan(), len(found), len(places))

batches: list[tuple[int, int]] = []


def take(batch: DataFrame, batch_id: int) -> None:
    batches.append((batch.count(), batch_id))


stream = env.from_dataframe(df, event_time="at")
row_type = Types.ROW_NAMED(["key", "at"], [Types.LONG(), Types.SQL_TIMESTAMP()])
stream.key_by("key").reduce(lambda a, b: b).map(
    lambda row: (row["key"], row["at"].replace(tzinfo=None)), row_type
).sink_to(DataFrameSink(str(FOLDER / "out"), mode="overwrite"))
stream.select("id", "at").sink_to(IdempotentForeachBatchSink(take, str(FOLDER / "staging")))
env.execute("writing")
written = spark.read.parquet(str(FOLDER / "out")).orderBy("key").collect()
print("WRITTEN", [(row["key"], row["at"].microsecond) for row in written], "BATCHES", batches)
print("FILES", sorted(path.name for path in FOLDER.iterdir()))

lazy = env.batch_dataframe_of(
    env.from_dataframe(df)
    .filter(noted)
    .key_by(lambda row: row["key"], Types.LONG())
    .map(lambda row: (row["key"], 1), Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()]))
)
print("LAZY", lazy.sparkSession is spark, lazy.columns, call_count())
names = spark.createDataFrame([(0, "zero"), (1, "one")], ["key", "name"])
joined = lazy.groupBy("key").sum("n").join(names, "key").orderBy("key").collect()
print("JOINED", [tuple(row) for row in joined], call_count())

env.from_dataframe(df).map(divide, Types.LONG()).sink_to(
    DataFrameSink(str(FOLDER / "failed"), mode="overwrite")
)
try:
    env.execute("dividing")
except JobExecutionError as error:
    print("ERROR", str(error).partition("\n")[0])

"""Spark filters and prunes tables of a catalog and sources of its second API as any DataFrame, and aggregates them."""

import ast
from pathlib import Path

import pytest

from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.long]

PROGRAM = """
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThanOrEqual, InputPartition
from headrace import agg, col
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.window import GlobalWindows
from headrace.spark.dataframes.push import unrepeatable_part
from headrace.spark.session import spark_session

JDBC = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
SHOWN = ("PartitionFilters:", "PushedFilters:", "PushedAggregates:", "ReadSchema:")
spark = spark_session()


class Numbers(DataSource):
    def schema(self):
        return "id bigint, name string, half double, k int, large int"

    def reader(self, schema):
        return NumbersReader()


class NumbersReader(DataSourceReader):
    first = 0

    def pushFilters(self, filters):
        for one in filters:
            if isinstance(one, GreaterThanOrEqual) and one.attribute == ("id",):
                self.first = one.value
            else:
                yield one

    def partitions(self):
        return [InputPartition(number) for number in range(3)]

    def read(self, partition):
        for i in range(partition.value, 60, 3):
            if i >= self.first:
                yield i, f"n{i % 4}", i / 2, i % 5, 2**30 + i


for key, value in {
    "python.filterPushdown.enabled": "true",
    "catalog.db": JDBC,
    "catalog.db.url": "jdbc:derby:memory:numbers;create=true",
    "catalog.db.driver": "org.apache.derby.jdbc.EmbeddedDriver",
}.items():
    spark.conf.set(f"spark.sql.{key}", value)
rows = spark.range(0, 60, 1, 3).selectExpr(
    "id",
    "concat('n', id % 4) AS name",
    "id / 2 AS half",
    "CAST(id % 5 AS INT) AS k",
    "CAST(1073741824 + id AS INT) AS large",
)
rows.write.partitionBy("k").saveAsTable("numbers")
rows.write.parquet("files")
spark.sql("CREATE SCHEMA db.s")
rows.writeTo("db.s.numbers").create()
spark.dataSource.register(Numbers)
spark.conf.set("spark.sql.sources.useV1SourceList", "")
frames = {
    "table": spark.table("numbers"),
    "files": spark.read.parquet("files"),
    "python": spark.read.format("Numbers").load(),
    "catalog": spark.table("db.s.numbers"),
}


def run(mode, df, program):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure({"execution.runtime-mode": mode, "execution.checkpointing.interval": "1 h"})
    env.set_parallelism(2)
    with program(env.from_dataframe(df)).execute_and_collect() as found:
        return sorted(map(tuple, found))


def show_plan(of):
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    newest = range(executions.size() - 1, -1, -1)
    texts = (executions.apply(index).physicalPlanDescription() for index in newest)
    plan = next(text for text in texts if "MapInArrow" in text)
    print(of, [line.strip() for line in plan.splitlines() if line.startswith(SHOWN)])
    print(of + ".aggregates", "HashAggregate" in plan)


def few(stream):
    return stream.filter((col("id") >= 45) & (col("k") > 2)).select("id", twice=col("half") * 4)


def sums(stream):
    end = GlobalWindows.create_with_end_of_stream_trigger()
    return stream.filter(col("k") > 2).key_by("k").window(end).aggregate(agg.count(), agg.sum("large"))


for name, df in frames.items():
    print(name + ".copied", unrepeatable_part(df) is not None)
    print(name + ".STREAMING", run("STREAMING", df, few))
    print(name + ".BATCH", run("BATCH", df, few))
    show_plan(name + ".few")
    print(name + ".sums", run("BATCH", df, sums))
    show_plan(name + ".sums.plan")
"""


def test_filters_and_columns_of_a_chain_reach_tables_and_sources_of_the_second_api(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, PROGRAM, "--master", "local[4]")
    started.append(program)
    assert program.wait(380) == 0, program.report()
    lines = [line.strip().partition(" ")[::2] for line in program.out]
    told = {key: ast.literal_eval(value) for key, value in lines}
    kept = [(i, 2.0 * i) for i in range(45, 60) if i % 5 > 2]
    summed = [(k, 12, sum(2**30 + i for i in range(k, 60, 5))) for k in (3, 4)]
    for name in ("table", "files", "python", "catalog"):
        assert told[f"{name}.STREAMING"] == told[f"{name}.BATCH"] == kept, name
        assert told[f"{name}.sums"] == summed, name
        assert told[f"{name}.sums.plan.aggregates"], "Spark aggregates before Python sees a row"
        assert told[f"{name}.copied"] is (name != "table"), "others may come in another order"
    pushed_id = "PushedFilters: [IsNotNull(id), GreaterThanOrEqual(id,45)]"
    partitions, pushed, columns = told["table.few"]
    assert partitions.startswith("PartitionFilters: [isnotnull(k#") and "> 2)]" in partitions
    assert [pushed, columns] == [pushed_id, "ReadSchema: struct<id:bigint,half:double>"]
    few = "ReadSchema: struct<id:bigint,half:double,k:int>"
    both = "[IsNotNull(id), IsNotNull(k), GreaterThanOrEqual(id,45), GreaterThan(k,2)]"
    assert told["files.few"] == [f"PushedFilters: {both}", few]
    assert told["python.few"][0] == "PushedFilters: [GreaterThanOrEqual(id,45)]"
    both = "[id IS NOT NULL, k IS NOT NULL, id >= 45, k > 2]"
    assert told["catalog.few"] == [f"PushedFilters: {both}", few]
    # A sum of the database's own would be one of 32 bits, and fail.
    pushed = "PushedFilters: [k IS NOT NULL, k > 2]"
    assert told["catalog.sums.plan"] == [pushed, "ReadSchema: struct<k:int,large:int>"]

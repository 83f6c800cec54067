"""A client of Spark Connect: its DataFrames in jobs of a session, their results and state in its DataFrames."""

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.spark.commands import HEADRACE, NO_UI, Commands
from tests.spark.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(700)]

PROGRAM: Final = """
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.common import Types, WatermarkStrategy
from headrace.connectors.dataframe.batch_log_source import BatchLogSource
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.core.errors import HeadraceError
from headrace.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from headrace.spark.session import spark_session
from headrace.spark.state_writer import StateWriter

spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
is_same = spark_session({"spark.sql.shuffle.partitions": "3"}) is spark
settings = [spark.conf.get(f"spark.sql.{name}") for name in ("shuffle.partitions", "ansi.enabled")]
print("SESSION", is_same, *settings)
folder = Path.cwd()
PAIR = Types.ROW_NAMED(["key", "sum"], [Types.LONG(), Types.LONG()])


def environment(mode, **settings):
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    return env.set_parallelism(1).set_runtime_mode(RuntimeExecutionMode[mode])


def sums(env):
    numbers = env.from_dataframe(spark.range(1, 7).select((F.col("id") % 2).alias("key"), F.col("id").alias("sum")))
    return numbers.key_by("key").reduce(lambda a, b: (a[0], a[1] + b[1])).map(lambda row: row, PAIR)


for mode in ("STREAMING", "BATCH"):
    with sums(environment(mode)).execute_and_collect() as rows:
        print("SUMS", mode, sorted(tuple(row) for row in rows))
    result = sums(environment(mode)).to_dataframe()
    print("RESULT", mode, type(result).__module__, tuple(result.groupBy().agg(F.max("sum"), F.count("key")).first()))
    try:
        sums(environment(mode)).to_dataframe(memory_bytes=1)
    except HeadraceError as error:
        print("LARGE", mode, error)
    try:
        sums(environment(mode)).to_dataframe(streaming=True)
    except HeadraceError as error:
        print("NO PATH", mode, error)
    # The query is the server's, and the job the session's.
    streamed = sums(environment(mode, **{"execution.checkpointing.interval": "200 ms"})).to_dataframe(
        streaming=True, path=f"log-{mode}"
    )
    table, largest = f"table-{mode}", None
    while largest != 12:
        query = streamed.writeStream.format("parquet").option("checkpointLocation", f"query-{mode}")
        query.trigger(availableNow=True).start(table).awaitTermination()
        if (folder / table / "_spark_metadata").exists():
            largest = spark.read.parquet(table).agg(F.max("sum")).first()[0]
    print("STREAMED", mode, streamed.isStreaming, sorted(tuple(row) for row in spark.read.parquet(table).collect()))

(folder / "in").mkdir()
(folder / "in" / "1.csv").write_text("".join(f"{n}\\n" for n in range(20)))
files = spark.readStream.schema("number bigint").csv("in")
try:
    environment("STREAMING").from_dataframe(files)
except HeadraceError as error:
    print("REFUSED", error)
env = environment("STREAMING", **{"execution.checkpointing.interval": "200 ms"})
source = BatchLogSource("fed-log", Types.ROW_NAMED(["number"], [Types.LONG()]))
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
counts = numbers.map(lambda row: (row.number % 3, 1), PAIR).key_by("key").reduce(lambda a, b: (a[0], a[1] + b[1]))
counts.uid("counts").map(lambda row: row, PAIR).sink_to(DataFrameSink("counted", "headrace", mode="append"))
job = env.execute_async("fed")
# The server's Python has another working directory, which ends with the session.
lost = files.writeStream.format("headrace").option("checkpointLocation", "lost")
for use in (
    lambda: spark.read.format("headrace").load("fed-log").schema,
    lambda: spark.readStream.format("headrace").load("fed-log").schema,
    lambda: lost.start("fed-log").awaitTermination(),
):
    try:
        use()
    except Exception as error:
        print("RELATIVE", "'fed-log' is a relative path, and on Spark Connect" in str(error))
query = files.writeStream.format("headrace").option("job", "fed").option("checkpointLocation", "feeding")
query.trigger(availableNow=True).start(str(folder / "fed-log")).awaitTermination()
found = []
while len(found) < 20:
    if any((folder / "counted" / "_log").glob("*.json")):
        found = spark.read.format("headrace").load(str(folder / "counted")).collect()
print("COUNTED", max(tuple(row) for row in found if row.key == 0))
path = job.stop_with_savepoint(False, str(folder / "savepoints")).result()

state = spark.read.format("headrace-state").option("path", path)
operators = state.option("table", "operators").load().select("uid", F.explode("states.name").alias("state"))
(name,) = [row.state for row in operators.where("uid = 'counts' AND state != ''").collect()]
counted = spark.read.format("headrace-state").option("path", path).option("operator", "counts")
counted = counted.option("state", name).load()
print("STATE", type(counted).__module__, counted.columns, counted.count())
edited = StateWriter.from_(path).replace("counts", name, counted.where("key_group >= 0").limit(2))
new = edited.write(str(folder / "edited"), reason="a key is to go")
read = spark.read.format("headrace-state").option("path", new).option("operator", "counts").option("state", name)
print("EDITED", read.load().count())
spark.stop()
"""
PER_JOB: Final = """
from pyspark.sql import SparkSession
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
with env.from_dataframe(spark.range(3)).map(lambda row: row.id * 2, Types.LONG()).execute_and_collect() as rows:
    print("COLLECTED", sorted(rows))
spark.stop()
"""


@pytest.mark.long
def test_a_client_of_spark_connect_uses_a_session_and_clusters_of_its_jobs(
    tmp_path: Path, started: list[Program]
) -> None:
    commands = Commands(tmp_path, started)
    (tmp_path / "connect.py").write_text(PROGRAM)
    (tmp_path / "per_job.py").write_text(PER_JOB)
    session = commands.daemon("cluster", "start", "--name", "beside", *NO_UI)
    # The server looks formats up, and runs functions, with a Python that has Headrace.
    program = commands.begin(
        *(
            HEADRACE,
            "run",
            "--target",
            "session",
            "-D",
            "spark.sql.ansi.enabled=false",
            "connect.py",
        ),
        PYSPARK_PYTHON=sys.executable,
    )
    assert program.wait(400) == 0, program.report()
    for reader in program.readers:
        reader.join(10)
    report = program.report()
    lines = [line.strip() for line in program.out]

    def told(head: str) -> str:
        (line,) = [line for line in lines if line.startswith(f"{head} ")]
        return line.removeprefix(f"{head} ")

    assert told("SESSION") == "True 3 false", report
    growing = "[(0, 2), (0, 6), (0, 12), (1, 1), (1, 4), (1, 9)]"
    for mode, rows, row_count in (("STREAMING", growing, 6), ("BATCH", "[(0, 12), (1, 9)]", 2)):
        assert told(f"SUMS {mode}") == rows, report
        assert told(f"RESULT {mode}") == f"pyspark.sql.connect.dataframe (12, {row_count})", report
        assert "behind Spark Connect: set execution.checkpointing.dir" in told(f"LARGE {mode}")
        assert "behind Spark Connect: set it as path" in told(f"NO PATH {mode}")
        assert told(f"STREAMED {mode}") == f"True {rows}", report
    assert "format('headrace')" in told("REFUSED")
    assert lines.count("RELATIVE True") == 3, report
    assert told("COUNTED") == "(0, 7)", report
    assert told("STATE").startswith("pyspark.sql.connect.dataframe ['key_group', "), report
    assert told("STATE").endswith(" 3"), report
    assert told("EDITED") == "2", report
    commands("cluster", "stop")
    session.assert_nothing_is_left()

    # A cluster for one job is started beside the server, as the client can host none.
    alone = commands.begin(HEADRACE, "run", "per_job.py")
    assert alone.wait(100) != 0
    assert "Spark Connect cannot host a job" in alone.error_line()
    assert "COLLECTED [0, 2, 4]" in commands("run", "--target", "per-job", *NO_UI, "per_job.py")

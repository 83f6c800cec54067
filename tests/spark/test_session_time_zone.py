"""A program whose session is in a time zone of its own gives the same in BATCH mode as in STREAMING mode."""

import ast
from pathlib import Path

import pytest

from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
from pathlib import Path
from pyspark.sql import functions as F
from headrace import agg
from headrace.common import Time
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.spark.session import spark_session

spark = spark_session()
spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
given = []


@F.pandas_udf("int")
def hour_of(times):
    return times.dt.hour


def write(df, checkpoint_id):
    told = df.select(F.hour("at"), F.to_date("at").cast("string")).collect()
    given.extend(sorted(map(tuple, told)))
    df.createOrReplaceTempView("updates")
    given.append(tuple(spark.sql("SELECT count(*), max(hour(at)) FROM updates").first()))


rows = spark.range(0, 4, 1, 2).selectExpr(
    "id",
    "timestamp_seconds(id * 3600 + 75600) AS at",
    "CAST(timestamp_seconds(id * 3600 + 75600) AS TIMESTAMP_NTZ) AS wall",
)
for mode in ("BATCH", "STREAMING"):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure({"execution.runtime-mode": mode})
    env.set_parallelism(2)
    stream = env.from_dataframe(rows.withColumn("hour", hour_of("at")))
    sink = DataFrameSink(f"{mode}.csv", format="csv", options={"timestampFormat": "dd HH:mm"})
    stream.select("id", "at").sink_to(sink)
    stream.foreach_batch(write)
    env.execute()
    written = sorted(
        line
        for part in Path(f"{mode}.csv").glob("part-*")
        for line in part.read_text().splitlines()
    )
    with stream.select("id", "hour").execute_and_collect() as found:
        hours = sorted((row.id, row.hour) for row in found)
    walls = env.from_dataframe(rows.select("wall"), event_time="wall")
    days = TumblingEventTimeWindows.of(Time.days(1))
    counted = walls.window_all(days).aggregate(agg.count().alias("n"))
    with counted.execute_and_collect() as found:
        counts = [row.n for row in found]
    print(mode, [written, given, hours, counts])
    given.clear()
"""


def test_modes_agree_on_times_where_the_session_has_a_zone_of_its_own(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, PROGRAM, "--master", "local[4]")
    started.append(program)
    assert program.wait(240) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    assert told["BATCH"] == told["STREAMING"], program.report()
    written, given, hours, counts = ast.literal_eval(told["BATCH"])
    # Berlin is an hour before UTC, so that the third row is of the next day there, and the fourth in UTC.
    assert written == ["0,01 22:00", "1,01 23:00", "2,02 00:00", "3,02 01:00"]
    days = ("1970-01-01", "1970-01-02")
    times = [(22, days[0]), (23, days[0]), (0, days[1]), (1, days[1])]
    assert given == [*sorted(times), (4, 23)]
    assert hours == [(0, 22), (1, 23), (2, 0), (3, 1)]
    assert counts == [2, 2], "times without a zone are read as they are written"

"""Results of jobs as DataFrames of a real Spark: streams that survive kills of TaskManagers."""

from pathlib import Path

import pytest

from testkit.exactly_once import compare_output, rows_of_parquet
from testkit.waiting import wait_until
from tests.spark.checkpoint_folder import newest_checkpoint
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

COUNT = 3000
PROGRAM = """
import os, pathlib, signal, sys, time
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

here, victims = pathlib.Path.cwd(), sys.argv[1].split()

def is_first(name):
    marker = here / name
    if name not in victims or marker.exists():
        return False
    marker.touch()
    return True

def pair(number):
    if number == 1500 and is_first("worker"):
        os.kill(os.getpid(), signal.SIGKILL)
    return (number % 7, number)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, 3000, type_info=Types.LONG(), rows_per_second=250),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
pairs = numbers.map(pair, output_type=Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()]))
df = pairs.to_dataframe(streaming=True, path="log")
log = spark_session().readStream.format("headrace").option("maxRowsPerTrigger", 300).load("log")
counts = here / "counts"
counts.mkdir(exist_ok=True)

def take(rows, batch_id):
    rows.write.mode("overwrite").parquet(f"table/batch={batch_id}")
    if batch_id == 1 and is_first("batch"):
        raise RuntimeError("the query dies before its micro-batch is committed")
    new = here / "new"
    new.write_text(str(rows.count()))
    new.rename(counts / str(batch_id))

def row_count():
    return sum(int(file.read_text()) for file in counts.iterdir())

def query(**trigger):
    return log.writeStream.foreachBatch(take).option("checkpointLocation", "query").trigger(**trigger).start()

running = query(processingTime="200 milliseconds")
while row_count() < int(sys.argv[2]):
    if running.exception() is not None:
        print("DIED", "the query dies before" in str(running.exception()))
        running = query(processingTime="200 milliseconds")
    time.sleep(0.05)
running.stop()
print("COLUMNS", df.schema.simpleString(), df.isStreaming)
"""
OPTIONS = (
    "--master", "local[4]",
    "-D", "execution.checkpointing.interval=500 ms",
    "-D", "execution.checkpointing.dir=checkpoints",
    "-D", "restart-strategy.type=fixed-delay",
    "-D", "restart-strategy.fixed-delay.attempts=3",
    "-D", "restart-strategy.fixed-delay.delay=100 ms",
)  # fmt: skip


def check_table(folder: Path) -> None:
    found = [row for rows in rows_of_parquet(folder / "table").values() for row in rows]
    compare_output([(number % 7, number) for number in range(COUNT)], found).check()


@pytest.mark.long
def test_each_row_comes_once_although_a_query_and_then_a_task_manager_die(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, PROGRAM, *OPTIONS, arguments=("batch worker", str(COUNT)))
    started.append(program)
    assert program.wait(300) == 0, program.report()
    # The query goes on while the job runs.
    assert "DIED True\n" in program.out
    assert (tmp_path / "worker").exists()
    assert "COLUMNS struct<key:bigint,number:bigint> True\n" in program.out
    check_table(tmp_path)
    # What the query has committed is deleted, but for its last micro-batch.
    assert not (tmp_path / "log" / "_log" / f"{1:020d}.json").exists()
    program.assert_nothing_is_left()


@pytest.mark.long
def test_a_killed_driver_s_successor_goes_on_with_the_job_and_with_its_query(
    tmp_path: Path, started: list[Program]
) -> None:
    counts = tmp_path / "counts"
    dying = headrace_run(tmp_path, PROGRAM, *OPTIONS, arguments=("driver", str(COUNT)))
    started.append(dying)
    wait_until(lambda: (counts / "1").exists(), 200, "two micro-batches")
    dying.process.kill()
    dying.end()
    before = {file.name: file.read_text() for file in counts.iterdir()}
    assert sum(map(int, before.values())) < COUNT
    _, place = newest_checkpoint(tmp_path)
    options = (*OPTIONS, "-s", str(place))
    again = headrace_run(tmp_path, PROGRAM, *options, arguments=("driver", str(COUNT)))
    started.append(again)
    assert again.wait(300) == 0, again.report()
    assert before.items() <= {file.name: file.read_text() for file in counts.iterdir()}.items()
    check_table(tmp_path)


BOUNDED = """
import pathlib
from headrace.api.executors import default_settings, set_default_settings
from headrace.common import Types
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

spark = spark_session()
given = default_settings()

def divide(row):
    return 1 // (row.id - 3)

def bounded(mode):
    # As the option of the command line has it.
    set_default_settings({**given, "execution.runtime-mode": mode})
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    calls, few = pathlib.Path.cwd() / f"calls-{mode}", f"few-{mode}"

    def noted(row):
        with calls.open("ab") as file:
            file.write(b".")
        return (row.id, f"n{row.id}", row.at)

    numbers = env.from_dataframe(spark.range(0, 5000, 1, 4).selectExpr("id", "timestamp_millis(id) AS at"))
    types = [Types.LONG(), Types.STRING(), numbers.get_type().field_types[1]]
    names = ["id", "name", "at"]
    rows = numbers.map(noted, output_type=Types.ROW_NAMED(names, types))
    rows.filter(lambda row: row.id < 10).sink_to(DataFrameSink(few, mode="overwrite"))
    df = rows.to_dataframe(memory_bytes=1000)
    print("TYPES", df.schema.simpleString(), df.sparkSession is spark)
    print("SUM", df.selectExpr("sum(id)").first()[0], df.where("name = 'n7'").first().at.microsecond)
    print("CALLS", len(calls.read_bytes()), "FEW", spark.read.parquet(few).count())
    print("PLAN", "LocalTableScan" in df._jdf.queryExecution().toString())

    pair_type = Types.ROW_NAMED(["n", "m"], [Types.LONG(), Types.MAP(Types.STRING(), Types.LONG())])
    pairs = env.from_collection([(1, {"a": 1})], pair_type)
    small = pairs.map(lambda row: row, output_type=pairs.get_type()).to_dataframe()
    print("MAP", small.first().m)
    print("FILES", len(df.inputFiles()) > 0, len(small.inputFiles()))
    none = env.from_collection([1], Types.LONG()).filter(lambda n: n > 1)
    print("NONE", none.to_dataframe().count())
    try:
        env.from_dataframe(spark.range(5)).map(divide, Types.LONG()).to_dataframe()
    except Exception as error:
        print("ERROR", str(error).partition("\\n")[0])

for mode in ("STREAMING", "BATCH", "AUTOMATIC"):
    print("MODE", mode)
    bounded(mode)
"""


@pytest.mark.long
def test_a_bounded_result_is_computed_once_with_the_other_sinks_of_its_program_in_each_mode(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, BOUNDED, "--master", "local[4]")
    started.append(program)
    assert program.wait(300) == 0, program.report()
    _, *modes = "".join(program.out).split("MODE ")
    assert [told.partition("\n")[0] for told in modes] == ["STREAMING", "BATCH", "AUTOMATIC"]
    for lines in modes:
        told = dict(line.strip().partition(" ")[::2] for line in lines.splitlines())
        assert told["TYPES"] == "struct<id:bigint,name:string,at:timestamp> True", lines
        assert told["SUM"] == f"{sum(range(5000))} 7000", lines
        assert told["CALLS"] == "5000 FEW 10", lines
        assert told["PLAN"] == "False", lines
        assert told["MAP"] == "{'a': 1}", lines
        assert told["FILES"] == "True 0", "small results go through memory"
        assert told["NONE"] == "0", lines
        assert told["ERROR"].startswith("ZeroDivisionError"), lines
        assert "program.py, line" in told["ERROR"], lines
    program.assert_nothing_is_left()

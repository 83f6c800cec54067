"""Results of jobs as DataFrames of a real Spark: streams that survive kills of TaskManagers."""

from pathlib import Path

import pytest

from testkit.exactly_once import compare_output, rows_of_parquet
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

COUNT = 3000
PROGRAM = """
import os, pathlib, signal, sys, time
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

here, victim = pathlib.Path.cwd(), sys.argv[1]

def is_first(name):
    marker = here / name
    if victim != name or marker.exists():
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
    DataGeneratorSource(lambda index: index, 3000, type_info=Types.LONG(), rows_per_second=500),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
pairs = numbers.map(pair, output_type=Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()]))
df = pairs.to_dataframe(streaming=True, path="log")
seen = []

def take(rows, batch_id):
    found = [row.number for row in rows.collect()]
    rows.write.mode("overwrite").parquet(f"table/batch={batch_id}")
    seen.extend(found)

def query(**trigger):
    return df.writeStream.foreachBatch(take).option("checkpointLocation", "query").trigger(**trigger).start()

running = query(processingTime="200 milliseconds")
while len(set(seen)) < int(sys.argv[2]):
    if not running.isActive:
        running.awaitTermination()
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


def test_each_row_comes_once_although_a_task_manager_dies(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, PROGRAM, *OPTIONS, arguments=("worker", str(COUNT)))
    started.append(program)
    assert program.wait(300) == 0, program.report()
    assert (tmp_path / "worker").exists()
    assert "COLUMNS struct<key:bigint,number:bigint> True\n" in program.out
    check_table(tmp_path)
    # What the query has committed is deleted, but for its last micro-batch.
    assert not (tmp_path / "log" / "_log" / f"{1:020d}.json").exists()
    program.assert_nothing_is_left()

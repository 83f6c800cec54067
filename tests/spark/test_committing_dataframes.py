"""DataFrames of a job with checkpoints, whose TaskManager is killed: a sink and a function have each row once."""

from pathlib import Path

import pytest

from testkit.exactly_once import compare_output, rows_of_parquet
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNT = 4000
PROGRAM = """
import os, pathlib, signal
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.dataframe.sink import DataFrameSink, IdempotentForeachBatchSink
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

here = pathlib.Path.cwd()

def pair(number):
    marker = here / "killed"
    if number == 2500 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return (number % 7, number)

calls = []

def write(df, checkpoint_id):
    calls.append((checkpoint_id, df.count()))
    df.write.mode("overwrite").parquet(f"table/checkpoint={checkpoint_id}")

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, 4000, type_info=Types.LONG(), rows_per_second=500),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
pairs = numbers.map(pair, output_type=Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()]))
pairs.sink_to(DataFrameSink("out"))
pairs.sink_to(IdempotentForeachBatchSink(write, "staging"))
result = env.execute("pairs")
ids = [n for n, _ in calls]
print("CALLS", ids == sorted(set(ids)), len(ids) > 2, sum(count for _, count in calls))
"""
OPTIONS = (
    "-D", "execution.checkpointing.interval=1 s",
    "-D", "restart-strategy.type=fixed-delay",
    "-D", "restart-strategy.fixed-delay.attempts=3",
    "-D", "restart-strategy.fixed-delay.delay=100 ms",
)  # fmt: skip


def test_a_sink_and_a_function_have_each_row_once_although_a_task_manager_was_killed(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, PROGRAM, "--master", "local[4]", *OPTIONS)
    started.append(program)
    assert program.wait(240) == 0, program.report()
    assert (tmp_path / "killed").exists()
    for folder in ("out", "table"):
        found = [row for rows in rows_of_parquet(tmp_path / folder).values() for row in rows]
        compare_output([(number % 7, number) for number in range(COUNT)], found).check()
    assert f"CALLS True True {COUNT}\n" in program.out, program.report()
    assert [one for one in tmp_path.iterdir() if "staging" in one.name] == []
    program.assert_nothing_is_left()

"""A job that reads DataFrames, whose TaskManager is killed: it goes on behind the rows of its checkpoint."""

from pathlib import Path

import pytest

from testkit.exactly_once import compare_output, rows_of_parquet
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNT = 3000
PROGRAM = """
import os, pathlib, signal, time
from headrace.common import Types
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

here = pathlib.Path.cwd()

def slowly(row):
    time.sleep(0.002)
    if row.id == int(here.joinpath("kill-at").read_text()) and not (here / "killed").exists():
        (here / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return (row.id,)

spark = spark_session()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
same_each_time = env.from_dataframe(spark.range(0, 1500, numPartitions=4))
shuffled = env.from_dataframe(spark.range(1500, 3000).repartition(3))
rows = same_each_time.union(shuffled)
ids = rows.map(slowly, output_type=Types.ROW_NAMED(["id"], [Types.LONG()]))
ids.sink_to(DataFrameSink("out"))
env.execute("ids")
"""
OPTIONS = (
    "-D", "execution.checkpointing.interval=200 ms",
    "-D", "restart-strategy.type=fixed-delay",
    "-D", "restart-strategy.fixed-delay.attempts=3",
    "-D", "restart-strategy.fixed-delay.delay=100 ms",
)  # fmt: skip


def test_dataframes_go_on_behind_the_rows_of_a_checkpoint_and_leave_no_copy(
    tmp_path: Path, started: list[Program]
) -> None:
    # The last row of a partition that is read again, so that checkpoints come before it.
    (tmp_path / "kill-at").write_text("1499")
    program = headrace_run(tmp_path, PROGRAM, "--master", "local[4]", *OPTIONS)
    started.append(program)
    assert program.wait(240) == 0, program.report()
    assert (tmp_path / "killed").exists()
    found = [row for rows in rows_of_parquet(tmp_path / "out").values() for row in rows]
    compare_output([(number,) for number in range(COUNT)], found).check()
    program.assert_nothing_is_left()

"""Jobs of a session that a query of another Spark application feeds: each row once whichever side dies."""

import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from testkit.exactly_once import compare_output, lines_of_files
from testkit.waiting import wait_until
from tests.spark.commands import NO_UI, Commands
from tests.spark.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

FILE_COUNT, ROWS_PER_FILE = 24, 50
JOB: Final = """
from headrace.common import Encoder, Types, WatermarkStrategy
from headrace.connectors.dataframe.batch_log_source import BatchLogSource
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.connectors.file_system import FileSink

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
source = BatchLogSource("log", Types.ROW_NAMED(["number"], [Types.LONG()]))
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
keyed = numbers.key_by(lambda row: row.number % 7, Types.LONG())
lines = keyed.map(lambda row: str(row.number), output_type=Types.STRING()).uid("lines")
lines.sink_to(FileSink.for_row_format("lines", Encoder.simple_string_encoder()).build()).uid("sink")
env.execute("fed")
"""
QUERY: Final = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
files = spark.readStream.schema("number bigint").option("maxFilesPerTrigger", 1).csv("numbers")
writer = files.writeStream.format("headrace").option("job", "fed").option("maxBatches", 3)
writer = writer.option("checkpointLocation", "query")
if sys.argv[1:] == ["once"]:
    writer = writer.trigger(availableNow=True)
query = writer.start("log")
try:
    query.awaitTermination()
except Exception as error:
    print("REFUSED", str(error))
    sys.exit(7)
"""
CHECKPOINTS: Final = (
    "-D", "execution.checkpointing.interval=500 ms",
    "-D", "restart-strategy.type=fixed-delay",
    "-D", "restart-strategy.fixed-delay.attempts=3",
    "-D", "restart-strategy.fixed-delay.delay=100 ms",
)  # fmt: skip


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    (tmp_path / "fed.py").write_text(JOB)
    (tmp_path / "query.py").write_text(QUERY)
    (tmp_path / "numbers").mkdir()
    return Commands(tmp_path, started)


def add_files(folder: Path, begin: int, end: int) -> None:
    for index in range(begin, end):
        rows = range(index * ROWS_PER_FILE, (index + 1) * ROWS_PER_FILE)
        new = folder / f".{index}.csv"
        new.write_text("".join(f"{number}\n" for number in rows))
        new.rename(folder / "numbers" / f"{index:03d}.csv")


def committed(folder: Path) -> int:
    """Micro-batches that the query has in its own log."""
    return len([one for one in (folder / "query" / "commits").glob("*") if one.name.isdecimal()])


def lines_of(folder: Path) -> list[int]:
    return [int(one) for unit in lines_of_files(folder / "lines").values() for one in unit]


def run_query(commands: Commands, *arguments: str, **environment: str) -> Program:
    environment = {"PYSPARK_PYTHON": sys.executable, **environment}
    return commands.begin(sys.executable, "query.py", *arguments, **environment)


def refusal_of(query: Program) -> str:
    assert query.wait(200) == 7, query.report()
    for reader in query.readers:
        reader.join(10)
    return "".join(query.out)


@pytest.mark.long
def test_a_query_feeds_a_job_of_a_session_each_row_once_although_both_sides_die(
    commands: Commands, tmp_path: Path
) -> None:
    folder = tmp_path
    session = commands.daemon("cluster", "start", "--name", "fed-session", *NO_UI)
    add_files(folder, 0, 8)
    # Nobody would read the rows: the query is told so before it writes any.
    told = refusal_of(run_query(commands, "once"))
    assert "has no job 'fed' for the query's rows: start it" in told
    commands("run", "-d", "--target", "session", *CHECKPOINTS, "fed.py")
    query = run_query(commands)
    wait_until(lambda: committed(folder) >= 4, 200, "the query's first commits")
    wait_until(lambda: lines_of(folder), 100, "the first rows that the job has committed")

    [victim, *_] = session.task_managers()
    os.kill(victim.pid, signal.SIGKILL)
    add_files(folder, 8, 16)
    wait_until(lambda: committed(folder) >= 12, 200, "commits beyond the job's restart")

    os.kill(query.process.pid, signal.SIGKILL)
    query.wait(30)
    add_files(folder, 16, FILE_COUNT)
    again = run_query(commands, "once")
    assert again.wait(300) == 0, again.report()
    count = FILE_COUNT * ROWS_PER_FILE
    wait_until(lambda: len(lines_of(folder)) >= count, 200, "all rows")
    # What a checkpoint of the job has is deleted from the log.
    wait_until(lambda: not list((folder / "log").glob("*.parquet")), 100, "an empty log")
    assert not list((folder / "log" / "_staged").iterdir())

    # A client without the token, and one whose token is another cluster's, are refused.
    [cluster] = commands.answer("cluster", "list")["clusters"]
    add_files(folder, FILE_COUNT, FILE_COUNT + 1)
    strangers: dict[str, Any] = {"HEADRACE_HOME": str(folder / "nobody")}
    (folder / "query.py").write_text(
        QUERY.replace('.option("job"', f'.option("cluster", "{cluster["address"]}").option("job"')
    )
    told = refusal_of(run_query(commands, "once", **strangers))
    assert "no token was sent, but one is needed" in told
    told = refusal_of(run_query(commands, "once", **strangers, HEADRACE_TOKEN="another"))
    assert "the token from HEADRACE_TOKEN is not the token of the cluster" in told
    (folder / "query.py").write_text(QUERY)

    commands("cancel", commands.running_jobs()["fed"])
    wait_until(lambda: not commands.running_jobs(), 60, "the end of the job")
    told = refusal_of(run_query(commands, "once"))
    assert "is CANCELED, so nobody would read the query's rows" in told
    compare_output(list(range(count)), lines_of(folder)).check()
    commands("cluster", "stop")
    session.assert_nothing_is_left()

"""One program, run in every way that there is: plainly, by spark-submit, in a session of its own; and interrupted."""

import re
import sys
from pathlib import Path

import pytest

from headrace.spark.session.session import link_spark_home
from testkit.waiting import wait_until
from tests.spark.java_options import executor_java_options
from tests.spark.processes import SPARK_HOME
from tests.spark.programs import ROOT, Program, headrace_run, start, start_headrace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

EXAMPLE = ROOT / "examples" / "delay_per_airport.py"
RESULTS = sorted(["(JFK,12)", "(EWR,3)", "(JFK,53)", "(LGA,7)"])

BORROWING = """
from pyspark.sql import SparkSession
from headrace.api.executors import executor_for
from headrace.common import Types
from headrace.core.config import Settings
from headrace.datastream import StreamExecutionEnvironment

def session():
    builder = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false")
    return builder.config("spark.authenticate", "true").getOrCreate()

def run_job(name):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection([name]).map(lambda word: "JOB " + word).print()
    env.execute(name)

spark = session()
run_job("first")
spark.stop()
spark = session()
run_job("second")
env = StreamExecutionEnvironment.get_execution_environment()
df = spark.range(5)
with env.from_dataframe(df).map(lambda row: row["id"] * 2, output_type=Types.LONG()).execute_and_collect() as rows:
    print("COLLECTED", sorted(rows))
executor_for(Settings()).close()
print("STILL", spark.range(7).count())
spark.stop()
"""

INTERPRETED = """
import os
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_python_executable(os.path.abspath("named-python"))
env.set_parallelism(1)
env.from_collection([""]).map(lambda _: f"IN {os.environ.get('NAMED')}").print()
print("DRIVER IN", os.environ.get("NAMED"))
env.execute("interpreted")
"""


def records(program: Program) -> list[str]:
    """What the job printed, without the subtask's prefix."""
    return sorted(line.rpartition("> ")[2].strip() for line in program.out)


def test_functions_run_in_the_interpreter_that_the_program_names(
    tmp_path: Path, started: list[Program]
) -> None:
    named = tmp_path / "named-python"
    named.write_text(f'#!/bin/sh\nNAMED=yes exec {sys.executable} "$@"\n')
    named.chmod(0o755)
    program = headrace_run(tmp_path, INTERPRETED)
    started.append(program)
    assert program.wait() == 0, program.report()
    assert records(program) == ["DRIVER IN None", "IN yes"]


def test_as_a_plain_python_program(tmp_path: Path, started: list[Program]) -> None:
    program = start([sys.executable, str(EXAMPLE)], tmp_path)
    started.append(program)
    assert program.wait() == 0, program.report()
    assert records(program) == RESULTS
    program.assert_nothing_is_left()


@pytest.mark.parametrize(
    "master",
    [
        pytest.param("local[3]", marks=pytest.mark.repetition("the same on a local-cluster")),
        "local-cluster[2,2,1024]",
    ],
)
def test_a_program_runs_by_spark_submit(
    tmp_path: Path, started: list[Program], master: str
) -> None:
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"), "--master", master,
        "--conf", "spark.ui.enabled=false", "--conf", f"spark.pyspark.python={sys.executable}",
        "--conf", f"spark.executor.extraJavaOptions={executor_java_options()}", str(EXAMPLE),
    ]  # fmt: skip
    # Its JVM runs before our program does: executors' directories are where the user's home is.
    link_spark_home(SPARK_HOME, tmp_path / "spark")
    program = start(command, tmp_path, {"SPARK_HOME": str(tmp_path / "spark")})
    started.append(program)
    assert program.wait() == 0, program.report()
    assert records(program) == RESULTS
    program.assert_nothing_is_left()


def test_a_program_runs_by_the_command_line(tmp_path: Path, started: list[Program]) -> None:
    program = start_headrace(tmp_path, "run", "-p", "1", str(EXAMPLE))
    started.append(program)
    assert program.wait() == 0, program.report()
    assert [line.strip() for line in program.out] == ["(JFK,12)", "(EWR,3)", "(JFK,53)", "(LGA,7)"]
    [told] = [line for line in program.err if "the dashboard is at " in line]
    assert re.fullmatch(r".*the dashboard is at http://127\.0\.0\.1:\d+\n", told), told
    program.assert_nothing_is_left()


def test_sessions_of_the_program_s_own_are_borrowed_one_after_another_and_outlive_the_cluster(
    tmp_path: Path, started: list[Program]
) -> None:
    (tmp_path / "program.py").write_text(BORROWING)
    program = start([sys.executable, str(tmp_path / "program.py")], tmp_path)
    started.append(program)
    # It starts Spark twice.
    assert program.wait(220) == 0, program.report()
    assert "COLLECTED [0, 2, 4, 6, 8]\n" in program.out, program.report()
    assert "STILL 7\n" in program.out, program.report()
    assert [one for one in records(program) if "JOB" in one] == ["JOB first", "JOB second"]
    told = "".join(program.err)
    assert "Traceback" not in told and "ERROR" not in told and "\tat " not in told, program.report()
    program.assert_nothing_is_left()


OBEYING = """
from pyspark.sql import SparkSession
from headrace.core.errors import HostError
from headrace.datastream import StreamExecutionEnvironment

builder = SparkSession.builder.appName("own").master("local[2]").config("spark.sql.shuffle.partitions", 5)
spark = builder.getOrCreate()
keys = ("spark.master", "spark.sql.shuffle.partitions", "spark.x", "spark.app.name")
print("MADE", *map(spark.conf.get, keys))
env = StreamExecutionEnvironment.get_execution_environment({"spark.executor.memory": "3g"})
env.from_collection([1]).print()
try:
    env.execute()
except HostError as error:
    print("REFUSED", error)
env = StreamExecutionEnvironment.get_execution_environment()
env.from_dataframe(spark.range(1)).map(lambda row: "ROW " + str(row["id"])).print()
env.execute()
"""


def test_a_session_of_the_program_s_own_obeys_the_command_line(
    tmp_path: Path, started: list[Program]
) -> None:
    settings = ("-D", "spark.sql.shuffle.partitions=7", "-D", "spark.x=8")
    program = headrace_run(tmp_path, OBEYING, "--master", "local[3]", *settings)
    started.append(program)
    assert program.wait() == 0, program.report()
    made, refused, *rows = program.out
    assert made.split() == ["MADE", "local[3]", "7", "8", "own"]
    assert refused.startswith("REFUSED spark.executor.memory=3g is requested, but ")
    assert [row.rpartition("> ")[2].strip() for row in rows] == ["ROW 0"]
    told = "".join(program.err)
    assert "spark.master=local[3] from the command line replaces local[2]" in told
    assert "spark.sql.shuffle.partitions=7 from the command line replaces 5" in told
    assert "[Stage" not in told
    program.assert_nothing_is_left()


WAITING = """
import sys, time
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=20),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
numbers.map(lambda n: f"number {n}", output_type=Types.STRING()).print()
env.execute("waiting")
"""


@pytest.mark.parametrize(
    "by_headrace",
    [
        pytest.param(True, id="headrace run"),
        pytest.param(
            False, id="python", marks=pytest.mark.repetition("Ctrl-C of headrace run is the same")
        ),
    ],
)
def test_control_c_cancels_the_job_and_leaves_nothing(
    tmp_path: Path, started: list[Program], by_headrace: bool
) -> None:
    if by_headrace:
        program = headrace_run(tmp_path, WAITING)
    else:
        (tmp_path / "program.py").write_text(WAITING)
        program = start([sys.executable, str(tmp_path / "program.py")], tmp_path)
    started.append(program)
    program.wait_for_line("number 3")
    program.interrupt()
    code = program.wait(60)
    assert code == 130 if by_headrace else code != 0
    program.assert_nothing_is_left()


STUCK = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)

def spin(n):
    print("SPINNING", flush=True)
    while True:
        pass

env.from_collection([1], type_info=Types.LONG()).map(spin, output_type=Types.LONG()).print()
env.execute("stuck")
"""


@pytest.mark.parametrize(
    "interruptions",
    [pytest.param(1, marks=pytest.mark.repetition("two times Ctrl-C show both steps")), 2],
)
def test_control_c_ends_a_job_whose_function_does_not_return(
    tmp_path: Path, started: list[Program], interruptions: int
) -> None:
    program = headrace_run(tmp_path, STUCK, "--master", "local[3]")
    started.append(program)
    program.wait_for_line("SPINNING")
    program.interrupt()
    wait_until(
        lambda: any("Ctrl-C again ends their processes" in line for line in program.err),
        10,
        "it says what it waits for",
    )
    if interruptions == 2:
        program.interrupt()
    # Some seconds of patience, not the three minutes of task.cancellation.timeout.
    assert program.wait(15) == 130, program.report()
    again = [line for line in program.err if "interrupted again" in line]
    assert len(again) == interruptions - 1, program.report()
    program.assert_nothing_is_left()


def test_control_c_while_spark_starts_leaves_nothing(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, WAITING)
    started.append(program)
    wait_until(lambda: bool(program.jvms()), 60, "Spark's JVM starts")
    program.interrupt()
    assert program.wait(60) == 130
    program.assert_nothing_is_left()

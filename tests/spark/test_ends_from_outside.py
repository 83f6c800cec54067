"""A program that is ended from outside, or loses its host, keeps its checkpoints and says where to go on."""

import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.spark.checkpoint_folder import newest_checkpoint
from tests.spark.programs import Program, headrace_run, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
from headrace.common import Configuration, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

settings = Configuration()
settings.set_string("headrace.spark.master", "local[3]")
settings.set_string("execution.checkpointing.interval", "300 ms")
settings.set_string("execution.checkpointing.dir", "checkpoints")
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.set_parallelism(1)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=500),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
numbers.filter(lambda n: False).print()
"""
WAITING = PROGRAM + 'env.execute("numbers")\n'
STOPPING = (
    PROGRAM
    + """
import time
from pathlib import Path
client = env.execute_async("numbers")
while not list(Path("checkpoints").glob("*/chk-2/_metadata")):
    time.sleep(0.05)
from pyspark.sql import SparkSession
SparkSession.getActiveSession().stop()
client.get_job_execution_result().result()
"""
)
KEPT = re.compile(r"its last checkpoint is kept: continue from it with -s (\S+)")


def kept_path(program: Program) -> Path:
    """The one checkpoint that the program says is kept; it is there."""
    (found,) = [match for line in program.err if (match := KEPT.search(line)) is not None]
    path = Path(found[1].removeprefix("file://"))
    assert (path / "_metadata").is_file(), program.report()
    return path


def wait_for_checkpoints(folder: Path) -> None:
    wait_until(lambda: newest_checkpoint(folder)[0] > 1, 120, "checkpoints")


def plain_python(folder: Path, text: str) -> Program:
    (folder / "program.py").write_text(text)
    return start([sys.executable, "program.py"], folder)


def terminate(program: Program, folder: Path, after: int) -> Path:
    """End a program by SIGTERM once it has a checkpoint of a higher number; return which one it says is kept."""
    wait_until(lambda: newest_checkpoint(folder)[0] > after, 120, "checkpoints")
    program.process.send_signal(signal.SIGTERM)
    assert program.wait() == 143, program.report()
    assert any("terminated: the jobs end" in line for line in program.err)
    path = kept_path(program)
    program.assert_nothing_is_left()
    return path


def number_of(path: Path) -> int:
    return int(path.name.removeprefix("chk-"))


@pytest.mark.long
def test_programs_that_are_terminated_end_in_order_and_say_where_to_go_on(
    tmp_path: Path, started: list[Program]
) -> None:
    started.append(plain_python(tmp_path, WAITING))
    path = terminate(started[-1], tmp_path, 1)
    started.append(headrace_run(tmp_path, WAITING, "-s", str(path)))
    path = terminate(started[-1], tmp_path, number_of(path))
    last = headrace_run(tmp_path, WAITING, "-s", str(path))
    started.append(last)
    wait_until(lambda: newest_checkpoint(tmp_path)[0] > number_of(path), 120, "it goes on")
    last.interrupt()
    assert last.wait() == 130
    assert any("cancelled, and its checkpoints are deleted" in line for line in last.err)


@pytest.mark.parametrize(
    "start_program, numbers, code",
    [
        (headrace_run, [signal.SIGTERM], 143),
        pytest.param(
            headrace_run,
            [signal.SIGINT, signal.SIGINT],
            130,
            marks=pytest.mark.repetition(
                "SIGTERM ends the launch above, Ctrl-C a program in test_ways_to_run"
            ),
        ),
        (plain_python, [signal.SIGTERM], 143),
    ],
)
def test_a_program_that_is_ended_while_its_jvm_is_launched_leaves_nothing(
    tmp_path: Path,
    started: list[Program],
    start_program: Callable[[Path, str], Program],
    numbers: list[signal.Signals],
    code: int,
) -> None:
    program = start_program(tmp_path, WAITING)
    started.append(program)
    wait_until(lambda: bool(program.jvms()), 60, "a JVM")
    for number in numbers:
        program.process.send_signal(number)
    assert program.wait() == code, program.report()
    assert not any("the host of the cluster has failed" in line for line in program.err)
    program.assert_nothing_is_left()


def test_a_program_whose_jvm_is_killed_keeps_its_checkpoints(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, WAITING)
    started.append(program)
    wait_for_checkpoints(tmp_path)
    program.jvms()[0].kill()
    assert program.wait() == 1
    assert "the Spark application is gone" in program.error_line()
    kept_path(program)


def test_a_program_that_stops_its_session_keeps_its_checkpoints(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, STOPPING)
    started.append(program)
    assert program.wait() == 1
    assert "the SparkSession that jobs run on was stopped" in program.error_line()
    kept_path(program)

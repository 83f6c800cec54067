"""A driver that is killed, and the program started again from its last checkpoint: what was committed stays, once."""

import signal
from pathlib import Path

import pytest

from headrace.core.process.failpoints import Failpoint
from testkit.exactly_once import (
    OutputFollower,
    Units,
    compare_output,
    lines_of_files,
    rows_of_parquet,
)
from testkit.waiting import wait_until
from tests.spark.checkpoint_folder import newest_checkpoint
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

COUNT = 20_000
SLOWLY, FAST = 500, 10_000
"""Rows per second: of programs whose driver dies long before their end on a busy machine too, and of the last one."""
PROGRAM = """
import sys
from headrace.common import Encoder, Types, WatermarkStrategy
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.connectors.file_system import FileSink

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, 20_000, type_info=Types.LONG(), rows_per_second=int(sys.argv[1])),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
texts = numbers.map(str, output_type=Types.STRING())
texts.sink_to(FileSink.for_row_format("lines", Encoder.simple_string_encoder()).build())
rows = numbers.map(lambda n: (n % 7, n), output_type=Types.ROW([Types.LONG(), Types.LONG()]))
rows.sink_to(DataFrameSink("rows", mode="append"))
env.execute("numbers")
"""
# The program runs in the driver, which commits: there it dies at the second time that it is at a moment.
DYING = """
import os, signal
from headrace.core.process.failpoints import Failpoint, arm_with
arm_with(Failpoint("{moment}"), lambda: os.kill(os.getpid(), signal.SIGKILL), time=2)
"""
OPTIONS = (
    "--master", "local[4]",
    "-D", "execution.checkpointing.interval=500 ms",
    "-D", "execution.checkpointing.dir=checkpoints",
)  # fmt: skip


def output_of(folder: Path) -> Units:
    return {**lines_of_files(folder / "lines"), **rows_of_parquet(folder / "rows")}


@pytest.mark.long
def test_a_program_whose_driver_dies_amid_a_commit_and_is_then_killed_writes_every_row_once(
    tmp_path: Path, started: list[Program]
) -> None:
    follower = OutputFollower(lambda: output_of(tmp_path))
    text = DYING.format(moment=Failpoint.COMMIT_HALF.value) + PROGRAM
    dying = headrace_run(tmp_path, text, *OPTIONS, arguments=(str(SLOWLY),))
    started.append(dying)
    assert dying.wait(240) == -signal.SIGKILL, dying.report()
    dying.end()
    follower.poll()
    reached, place = newest_checkpoint(tmp_path)

    options = (*OPTIONS, "-s", str(place))
    killed = headrace_run(tmp_path, PROGRAM, *options, arguments=(str(SLOWLY),))
    started.append(killed)
    wait_until(lambda: newest_checkpoint(tmp_path)[0] > reached + 1, 120, "checkpoints")
    killed.process.kill()
    killed.end()
    follower.poll()
    assert len(follower.records) < COUNT
    _, place = newest_checkpoint(tmp_path)
    check_rest(tmp_path, follower, started, *OPTIONS, "-s", str(place))


def check_rest(
    folder: Path, follower: OutputFollower, started: list[Program], *options: str
) -> None:
    """Let a successor run to its end: every row is there once, and none that was seen has changed."""
    last = headrace_run(folder, PROGRAM, *options, arguments=(str(FAST),))
    started.append(last)
    assert last.wait(240) == 0, last.report()
    follower.poll()
    follower.check()
    lines = [line for unit in lines_of_files(folder / "lines").values() for line in unit]
    verdict = compare_output([str(n) for n in range(COUNT)], lines)
    assert verdict.is_exact, verdict
    rows = [row for unit in rows_of_parquet(folder / "rows").values() for row in unit]
    verdict = compare_output([(n % 7, n) for n in range(COUNT)], rows)
    assert verdict.is_exact, verdict

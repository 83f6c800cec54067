"""Every restart stands on the terminal, whichever way a program is run: a lost worker, and a record that is poison."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.programs import Program, start, start_headrace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

POISONED = """
import os, signal
from pathlib import Path

from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

def poisoned(number):
    if number == 300:
        killed = Path("killed")
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("300 is poison")
    return number

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.enable_checkpointing(100)
numbers = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=1000)
env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers").map(
    poisoned, output_type=Types.LONG()
).filter(lambda number: False).print()
env.execute("told")
"""


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            lambda directory, path: start([sys.executable, path], directory),
            id="python program.py",
            marks=pytest.mark.repetition("the same by headrace run"),
        ),
        pytest.param(
            lambda directory, path: start_headrace(directory, "run", "--master", "local[2]", path),
            id="headrace run",
        ),
    ],
)
def test_a_lost_worker_and_a_poison_record_stand_on_the_terminal_at_each_restart(
    tmp_path: Path, started: list[Program], command: Callable[[Path, str], Program]
) -> None:
    path = tmp_path / "program.py"
    path.write_text(POISONED.replace('Path("killed")', f"Path({str(tmp_path / 'killed')!r})"))
    program = command(tmp_path, str(path))
    started.append(program)
    assert program.wait() != 0
    restarts = [line for line in program.err if "job 'told' restarts in " in line]
    lost, *poison = restarts
    assert "(restart 1): TaskManager" in lost and " was lost" in lost, program.report()
    # A checkpoint between the first of them and the second may be nearer to the record, and then there is one more.
    assert 2 <= len(poison) <= 3, program.report()
    place = f"ValueError: 300 is poison (in operator 'Map', {path}, line 15)"
    assert all(place in line and " from checkpoint " in line for line in poison), program.report()
    errors = [line for line in program.err if "3 times without progress" in line]
    assert errors and all(place in line for line in errors), program.report()

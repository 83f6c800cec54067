"""A job in BATCH mode that kills processes of its own, for tests: `batch_losses_program.py <folder>`.

numbers -rebalance-> doubled -rebalance-> files
                             -rebalance-> a DataFrame

A function of the middle kills its Python worker. One before each sink kills the executor it runs on, when others of its
stage have ended: outputs of shuffles are lost, and rows that are kept on its disk.
"""

import os
import signal
import sys
from pathlib import Path

from headrace.common import Encoder, Types, WatermarkStrategy
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.spark.session import spark_session
from tests.spark.processes import parent_pid_of

FOLDER = Path(sys.argv[1])
COUNT = 20_011
"""No multiple of what packets and subtasks are many: to whom a record is dealt depends on those before it."""


SLOTS = 4


def is_first(name: str) -> bool:
    """Return whether nobody has asked this before."""
    try:
        os.close(os.open(FOLDER / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kill_executor() -> None:
    """Kill the JVM of this executor, of which the forking daemon is a child and this worker a grandchild."""
    os.kill(parent_pid_of(os.getppid()), signal.SIGKILL)
    signal.pause()


def doubled(number: int) -> int:
    if number == COUNT // 2 and is_first("worker"):
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


class Killing(MapFunction):
    """Kills the executor, once, in a subtask that Spark starts when others have ended."""

    def __init__(self, name: str) -> None:
        self._name = name

    def open(self, runtime_context: RuntimeContext) -> None:
        if runtime_context.get_index_of_this_subtask() >= SLOTS and is_first(self._name):
            kill_executor()

    def map(self, value: int) -> int:
        return value


def is_each_there_once(written: list[int]) -> bool:
    return sorted(written) == [2 * number for number in range(COUNT)]


spark = spark_session()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(SLOTS)
numbers = env.from_source(
    NumberSequenceSource(0, COUNT - 1), WatermarkStrategy.no_watermarks(), "numbers"
)
all_doubled = numbers.rebalance().map(doubled, Types.LONG()).rebalance()
sink = FileSink.for_row_format(str(FOLDER / "out"), Encoder.simple_string_encoder()).build()
filed = all_doubled.map(Killing("first"), Types.LONG()).set_parallelism(SLOTS + 1)
filed.map(str, Types.STRING()).set_parallelism(SLOTS + 1).sink_to(sink)
all_doubled.map(Killing("second"), Types.LONG()).set_parallelism(SLOTS + 1).map(
    lambda number: (number,), Types.ROW_NAMED(["number"], [Types.LONG()])
).set_parallelism(SLOTS + 1).sink_to(DataFrameSink(str(FOLDER / "table"), mode="overwrite"))
env.execute("losses")
print("KILLED", *(not is_first(name) for name in ("worker", "first", "second")))
tracker = spark.sparkContext.statusTracker()
infos = [tracker.getStageInfo(number) for number in range(100)]
print("AGAIN", sum(info is not None and info.currentAttemptId > 0 for info in infos))
files = [
    path
    for path in (FOLDER / "out").rglob("*")
    if path.is_file() and not path.name.startswith((".", "_"))
]
written = [int(line) for path in files for line in path.read_text().splitlines()]
print("FILES", is_each_there_once(written), len(written))
table = [row["number"] for row in spark.read.parquet(str(FOLDER / "table")).collect()]
print("TABLE", is_each_there_once(table), len(table))

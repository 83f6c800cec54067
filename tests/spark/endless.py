"""Jobs that never end by themselves, for tests that kill something while one runs."""

import textwrap
from pathlib import Path

from tests.spark.programs import Program, headrace_run

ENDLESS = """
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=1000),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
numbers.key_by(lambda n: n % 7, key_type=Types.LONG()).reduce(lambda a, b: a + b).map(
    lambda n: n, output_type=Types.LONG()
).filter(lambda n: False).print()
client = env.execute_async("endless")
import time
from headrace.core.lifecycle import ExecutionState
while True:
    vertices = client.get_job_details().result().vertices
    states = {subtask.state for vertex in vertices for subtask in vertex.subtasks}
    if states == {ExecutionState.RUNNING}:
        break
    time.sleep(0.05)
print("RUNNING")
"""
_UNTIL_IT_ENDS = "client.get_job_execution_result().result()\n"
_UNTIL_IT_RUNS_AGAIN = """
attempts = {0}
while max(attempts) == 0 or states != {ExecutionState.RUNNING}:
    time.sleep(0.05)
    subtasks = [s for v in client.get_job_details().result().vertices for s in v.subtasks]
    attempts, states = {s.attempt_number for s in subtasks}, {s.state for s in subtasks}
print("RUNNING AGAIN")
"""
_WHILE_IT_RUNS = """
while True:
    time.sleep(0.2)
    vertices = client.get_job_details().result().vertices
    attempts = {s.attempt_number for v in vertices for s in v.subtasks}
    print("PROGRESS", max(attempts), vertices[0].metrics.get("numRecordsOut", 0))
"""
_BROKEN = """
from headrace.api.executors import active_executor
def bug():
    raise LookupError("a bug in the control plane")
active_executor()._host.handle._cluster.resource_manager.run_async(bug)
"""
_FOLLOWED = """
handle = active_executor()._host.handle
while handle._cluster.resource_manager.endpoint_name == "resourcemanager_0":
    time.sleep(0.05)
late = StreamExecutionEnvironment.get_execution_environment()
late.set_parallelism(1)
numbers = late.from_collection([1, 2, 3], type_info=Types.LONG())
with numbers.map(lambda n: n * n, output_type=Types.LONG()).execute_and_collect() as squares:
    print("LATE", sorted(squares))
"""
_AGAIN = """
from headrace.core.error_text import describe
for _ in range({failures}):
    try:
        run()
    except Exception as error:
        print("FAILED", describe(error, wants_details=False)[0])
run()
"""
_RESTARTS = (
    "-D", "restart-strategy.type=fixed-delay",
    "-D", "restart-strategy.fixed-delay.attempts=3",
    "-D", "restart-strategy.fixed-delay.delay=500 ms",
)  # fmt: skip


def start_endless(directory: Path, *options: str) -> Program:
    """Start an endless job with two TaskManagers; its program says RUNNING."""
    return headrace_run(directory, ENDLESS + _UNTIL_IT_ENDS, *options)


def start_repeated(directory: Path, failures: int, *options: str) -> Program:
    """The same job again each time that it has failed, so many times; its program says RUNNING and FAILED each time.

    The failure after these ends the program.
    """
    job = textwrap.indent(ENDLESS + _UNTIL_IT_ENDS, "    ")
    return headrace_run(directory, f"def run():\n{job}{_AGAIN.format(failures=failures)}", *options)


def start_restarting(directory: Path, *options: str) -> Program:
    """The same with a restart strategy; its program also says RUNNING AGAIN."""
    text = ENDLESS + _UNTIL_IT_RUNS_AGAIN + _UNTIL_IT_ENDS
    return headrace_run(directory, text, *_RESTARTS, *options)


def start_watched(directory: Path, *options: str) -> Program:
    """The same without restarts; its program tells its progress (see `progress`) all the time."""
    return headrace_run(directory, ENDLESS + _WHILE_IT_RUNS, *options)


def progress(program: Program) -> tuple[int, int]:
    """The newest attempt number, and how many records the source has emitted; (-1, -1) at first."""
    told = [line.split() for line in list(program.out) if line.startswith("PROGRESS ")]
    return (int(told[-1][1]), int(float(told[-1][2]))) if told else (-1, -1)


def start_breaking(directory: Path, *options: str) -> Program:
    """The same with a restart strategy; once it runs, the ResourceManager of its cluster fails from within."""
    return headrace_run(directory, ENDLESS + _BROKEN + _UNTIL_IT_ENDS, *_RESTARTS, *options)


def start_followed(directory: Path, *options: str) -> Program:
    """The same without restarts; another ResourceManager follows, serves a job that says LATE, and progress is told."""
    return headrace_run(directory, ENDLESS + _BROKEN + _FOLLOWED + _WHILE_IT_RUNS, *options)

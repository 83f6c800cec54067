"""What may be killed, row by row: the job ends, and nothing is left of it ten seconds later."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.processes import wait_until
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

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
client.get_job_execution_result().result()
"""

MASTERS = ["local[4]", "local-cluster[2,2,1024]"]


@pytest.fixture(params=MASTERS)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Program]:
    """An endless job with two TaskManagers, running."""
    program = headrace_run(tmp_path, ENDLESS, "--master", request.param)
    try:
        program.wait_for_line("RUNNING")
        assert len(program.task_managers()) == 2
        yield program
    finally:
        program.end()


def is_cluster(program: Program) -> bool:
    return bool(program.executors())


def test_worker_killed(running: Program) -> None:
    running.task_managers()[0].kill()
    assert running.wait() == 1
    assert "TaskManager" in running.error_line()
    running.assert_nothing_is_left()


def test_executor_killed(running: Program) -> None:
    if not is_cluster(running):
        # Of `local[n]` the executor is the driver's JVM, which has a row of its own.
        running.jvms()[0].kill()
    else:
        running.executors()[0].kill()
    assert running.wait() == 1
    running.assert_nothing_is_left()


def test_driver_jvm_killed(running: Program) -> None:
    running.jvms()[0].kill()
    assert running.wait() == 1
    assert "Spark" in running.error_line()
    running.assert_nothing_is_left()


def test_driver_python_killed(running: Program) -> None:
    running.process.kill()
    running.wait()
    running.assert_nothing_is_left()


def test_forking_daemon_killed(running: Program) -> None:
    orphans = running.task_managers()
    running.daemons()[0].kill()
    assert running.wait() == 1
    running.assert_nothing_is_left()
    assert orphans


def test_interrupted(running: Program) -> None:
    running.interrupt()
    assert running.wait() == 130
    running.assert_nothing_is_left()


def test_an_orphan_ends_even_where_the_job_goes_on(running: Program) -> None:
    daemon = running.daemons()[0]
    workers = {one.pid for one in running.task_managers()}
    daemon.kill()
    wait_until(
        lambda: len(workers & {one.pid for one in running.processes()}) < len(workers),
        10,
        "the workers of the killed daemon end",
    )

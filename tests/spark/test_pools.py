"""TaskManagers on Spark: a fixed pool stays, one that was asked for leaves when nobody needs it any more."""

from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

JOB_THEN_WAIT = """
import sys
from headrace.datastream import StreamExecutionEnvironment
from headrace.common import Types

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection([1, 2, 3], type_info=Types.LONG()).map(lambda n: n, Types.LONG()).print()
env.execute("short")
print("THE JOB HAS ENDED")
import time
while True:
    time.sleep(0.1)
"""


def test_a_fixed_pool_is_there_whatever_jobs_need(tmp_path: Path, started: list[Program]) -> None:
    options = ("--master", "local[4]", "-D", "headrace.taskmanager.fixed-pool.size=2")
    program = headrace_run(tmp_path, JOB_THEN_WAIT, *options)
    started.append(program)
    program.wait_for_line("THE JOB HAS ENDED")
    wait_until(lambda: len(program.task_managers()) == 2, 30, "both TaskManagers of the pool")
    pids = {one.pid for one in program.task_managers()}
    program.task_managers()[0].kill()
    wait_until(
        lambda: len({one.pid for one in program.task_managers()} - pids) == 1,
        30,
        "another TaskManager in place of the one that was lost",
    )
    program.interrupt()
    assert program.wait() == 130
    program.assert_nothing_is_left()


def test_an_idle_task_manager_leaves_after_its_timeout(
    tmp_path: Path, started: list[Program]
) -> None:
    options = ("--master", "local[4]", "-D", "resourcemanager.taskmanager-timeout=2 s")
    program = headrace_run(tmp_path, JOB_THEN_WAIT, *options)
    started.append(program)
    program.wait_for_line("THE JOB HAS ENDED")
    assert program.process.poll() is None
    wait_until(lambda: program.task_managers() == [], 30, "no TaskManager without a job")
    assert program.process.poll() is None, "the program itself goes on"
    program.interrupt()
    assert program.wait() == 130
    program.assert_nothing_is_left()

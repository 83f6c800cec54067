"""Spark starts executors for TaskManagers that are needed, each of the size that is asked for, and ends idle ones."""

from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.spark.processes import new_mark
from tests.spark.programs import Program, headrace_run
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(560)]

PROGRAM = """
import os
from headrace.common import Types
from headrace.datastream import SlotSharingGroup, StreamExecutionEnvironment

models = SlotSharingGroup.builder("models").set_cpu_cores(2).set_task_heap_memory_mb(300).build()
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
numbers = env.from_collection([0, 1], type_info=Types.LONG())
told = numbers.map(lambda n: f"{n} {os.environ['OMP_NUM_THREADS']}", output_type=Types.STRING())
told.map(
    lambda text: f"THREADS {text} {os.environ['OMP_NUM_THREADS']}", output_type=Types.STRING()
).slot_sharing_group(models).print()
env.execute()
print("ENDED", flush=True)
import time
time.sleep(600)
"""


def test_task_managers_of_two_sizes_have_executors_of_their_own_which_go_when_they_are_idle(
    tmp_path: Path, started: list[Program]
) -> None:
    cluster = StandaloneCluster(tmp_path / "cluster", new_mark(), cores_per_worker=3)
    try:
        program = headrace_run(
            tmp_path, PROGRAM, *cluster.options,
            "-D", "spark.dynamicAllocation.enabled=true",
            "-D", "spark.dynamicAllocation.shuffleTracking.enabled=true",
            "-D", "spark.dynamicAllocation.executorIdleTimeout=5s",
            "-D", "spark.executor.cores=1",
            "-D", "spark.executor.memory=512m",
            "-D", "resourcemanager.taskmanager-timeout=1 s",
        )  # fmt: skip
        started.append(program)
        program.wait_for_line("ENDED", 240)
        told = sorted(
            line.split("THREADS ")[1].strip() for line in program.out if "THREADS" in line
        )
        assert told == ["0 1 2", "1 1 2"], program.report()
        commands = [one.command.split("\0") for one in cluster.executors()]
        profiles = {each[each.index("--resourceProfileId") + 1] for each in commands}
        assert len(profiles) == len(commands) == 2, commands
        wait_until(lambda: not cluster.executors(), 120, "idle executors have ended")
    finally:
        cluster.end()

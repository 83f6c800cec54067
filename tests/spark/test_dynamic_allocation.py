"""Spark starts executors for TaskManagers that are needed, each of the size that is asked for, and ends idle ones."""

from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.spark.made_up_gpus import made_up_gpus
from tests.spark.processes import new_mark
from tests.spark.programs import Program, headrace_run
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(560)]

PROGRAM = """
import os
from headrace.common import Types
from headrace.datastream import SlotSharingGroup, StreamExecutionEnvironment
from headrace.datastream.functions import MapFunction


class Tell(MapFunction):
    def open(self, runtime_context):
        infos = runtime_context.get_external_resource_infos("gpu")
        self.gpus = ",".join(sorted(info.get_property("index") for info in infos)) or "none"

    def map(self, value):
        return f"{value} {os.environ['OMP_NUM_THREADS']} {self.gpus}"


builder = SlotSharingGroup.builder("models").set_cpu_cores(2).set_task_heap_memory_mb(300)
models = builder.set_external_resource("gpu", 2).build()
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
numbers = env.from_collection(["FOUND 0", "FOUND 1"], type_info=Types.STRING())
told = numbers.map(Tell(), output_type=Types.STRING())
told.map(Tell(), output_type=Types.STRING()).slot_sharing_group(models).print()
env.execute()
print("ENDED", flush=True)
import time
time.sleep(600)
"""


def memory_of(command: list[str]) -> str:
    """The heap that Spark gives the JVM of an executor, which on a standalone master stands for all of its memory."""
    [found] = [word for word in command if word.startswith("-Xmx")]
    return found


def test_task_managers_of_two_sizes_have_executors_of_their_own_which_go_when_they_are_idle(
    tmp_path: Path, started: list[Program]
) -> None:
    lines = "".join(f"{key} {value}\n" for key, value in made_up_gpus(tmp_path, "worker").items())
    cluster = StandaloneCluster(
        tmp_path / "cluster", new_mark(), cores_per_worker=3, properties=lines
    )
    # Executors of the usual size have none: Spark wants to be told.
    own = {**made_up_gpus(tmp_path, "executor"), "spark.executor.resource.gpu.amount": "0"}
    given = [word for pair in own.items() for word in ("-D", "=".join(pair))]
    try:
        program = headrace_run(
            tmp_path, PROGRAM, *cluster.options, *given,
            "-D", "spark.dynamicAllocation.enabled=true",
            "-D", "spark.dynamicAllocation.shuffleTracking.enabled=true",
            "-D", "spark.dynamicAllocation.executorIdleTimeout=5s",
            "-D", "spark.executor.cores=1",
            "-D", "spark.executor.memory=512m",
            "-D", "resourcemanager.taskmanager-timeout=1 s",
            "-D", "taskmanager.memory.process.size=768 mb",
            "-D", f"env.log.dir={tmp_path / 'logs'}",
        )  # fmt: skip
        started.append(program)
        program.wait_for_line("ENDED", 240)
        found = sorted(line.split("FOUND ")[1].strip() for line in program.out if "FOUND" in line)
        assert found == ["0 1 none 2 g0,g1", "1 1 none 2 g0,g1"], program.report()
        commands = [one.command.split("\0") for one in cluster.executors()]
        sizes = {each[each.index("--resourceProfileId") + 1]: memory_of(each) for each in commands}
        assert len(sizes) == len(commands) == 2, commands
        # What the group asks for, the framework's 256, 64 of network and 192 of overhead, above what all JVMs have.
        assert sizes.pop("0") == "-Xmx512M" and [*sizes.values()] == ["-Xmx1324M"], commands
        logs = [path.read_text() for path in (tmp_path / "logs").rglob("taskmanager-*.log")]
        limits = {log.split("ends once it holds more than ")[1].split(" of")[0] for log in logs}
        assert limits == {"805.3 MB", "851.4 MB"}, "each is held to its own size"
        wait_until(lambda: not cluster.executors(), 120, "idle executors have ended")
    finally:
        cluster.end()

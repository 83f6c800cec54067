"""Spark starts executors for TaskManagers that are needed, each of the size that is asked for, and ends idle ones."""

from collections.abc import Iterator
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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    lines = "".join(f"{key} {value}\n" for key, value in made_up_gpus(tmp_path, "worker").items())
    cluster = StandaloneCluster(
        tmp_path / "cluster", new_mark(), cores_per_worker=3, properties=lines
    )
    yield cluster
    cluster.end()


def ended_job(
    tmp_path: Path, cluster: StandaloneCluster, started: list[Program], *options: str
) -> Program:
    """The program with its job at its end, on executors that Spark starts as they are needed."""
    # Executors of the usual size have none: Spark wants to be told.
    own = {**made_up_gpus(tmp_path, "executor"), "spark.executor.resource.gpu.amount": "0"}
    given = [word for pair in own.items() for word in ("-D", "=".join(pair))]
    program = headrace_run(
        tmp_path, PROGRAM, *cluster.options, *given,
        "-D", "spark.dynamicAllocation.enabled=true",
        "-D", "spark.dynamicAllocation.shuffleTracking.enabled=true",
        "-D", "spark.executor.cores=1",
        "-D", "spark.executor.memory=512m",
        "-D", "taskmanager.memory.process.size=768 mb",
        "-D", f"env.log.dir={tmp_path / 'logs'}",
        *options,
    )  # fmt: skip
    started.append(program)
    program.wait_for_line("ENDED", 240)
    return program


def found_by(program: Program) -> list[str]:
    """What the functions found, in order."""
    return sorted(line.split("FOUND ")[1].strip() for line in program.out if "FOUND" in line)


def memory_by_profile(cluster: StandaloneCluster) -> dict[str, str]:
    """The memory of each executor, by the number of its resource profile: 0 for the usual one."""
    commands = [one.command.split("\0") for one in cluster.executors()]
    sizes = {each[each.index("--resourceProfileId") + 1]: memory_of(each) for each in commands}
    assert len(sizes) == len(commands), commands
    return sizes


def test_task_managers_of_two_sizes_have_executors_of_their_own_which_go_when_they_are_idle(
    tmp_path: Path, cluster: StandaloneCluster, started: list[Program]
) -> None:
    idle = ("-D", "spark.dynamicAllocation.executorIdleTimeout=5s")
    released = ("-D", "resourcemanager.taskmanager-timeout=1 s")
    program = ended_job(tmp_path, cluster, started, *idle, *released)
    assert found_by(program) == ["0 1 none 2 g0,g1", "1 1 none 2 g0,g1"], program.report()
    sizes = memory_by_profile(cluster)
    # What the group asks for, the framework's 256, 64 of network and 192 of overhead, above what all JVMs have.
    assert sizes.pop("0") == "-Xmx512M" and [*sizes.values()] == ["-Xmx1324M"], sizes
    logs = [path.read_text() for path in (tmp_path / "logs").rglob("taskmanager-*.log")]
    limits = {log.split("ends once it holds more than ")[1].split(" of")[0] for log in logs}
    assert limits == {"805.3 MB", "851.4 MB"}, "each is held to its own size"
    wait_until(lambda: not cluster.executors(), 120, "idle executors have ended")


def test_a_stage_in_batch_mode_has_an_executor_of_its_own_with_the_memory_of_its_group(
    tmp_path: Path, cluster: StandaloneCluster, started: list[Program]
) -> None:
    ended_job(tmp_path, cluster, started, "-D", "execution.runtime-mode=BATCH")
    sizes = memory_by_profile(cluster)
    assert sizes.pop("0") == "-Xmx512M" and [*sizes.values()] == ["-Xmx1324M"], sizes

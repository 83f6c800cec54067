"""A TaskManager that needs two processors gets both where the master can give them, and is not refused elsewhere."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.core.resource_profile import ResourceProfile
from headrace.spark.master import parse_master
from headrace.spark.session.authentication import TaskSecrets
from headrace.spark.session.jvm import ApplicationSlots
from headrace.spark.session.session import HostSession, host_session
from headrace.spark.workers.worker_jobs import SparkWorkerJobs, WorkerBody
from headrace.spark.workers.worker_sizes import WorkerSizes
from testkit.waiting import wait_until
from tests.spark.java_options import executor_java_options
from tests.spark.made_up_gpus import made_up_gpus
from tests.spark.processes import new_mark
from tests.spark.programs import headrace_run
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

NO_SECRETS = TaskSecrets(b"", None)
TWO_CORES = ResourceProfile(cpu_cores=2.0)
MASTER = "local-cluster[1,2,1024]"
SIZES = WorkerSizes(Settings({}), {"spark.master": MASTER}, parse_master(MASTER, 1))

PROGRAM = """
import os
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
print("PARALLELISM", env.get_parallelism())
numbers = env.from_collection([1], type_info=Types.LONG())
numbers.map(lambda _: "THREADS " + os.environ.get("OMP_NUM_THREADS", ""), output_type=Types.STRING()).print()
env.execute()
"""

GPU_PROGRAM = """
import sys
import time
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.functions import MapFunction


class FindGpus(MapFunction):
    def open(self, runtime_context):
        infos = runtime_context.get_external_resource_infos("gpu")
        self.addresses = sorted(info.get_property("index") for info in infos)

    def map(self, value):
        return f"GPUS {self.addresses}"


env = StreamExecutionEnvironment.get_execution_environment()
while env.get_parallelism() < int(sys.argv[1]):
    # Executors of a standalone cluster register one after another.
    time.sleep(0.1)
    env = StreamExecutionEnvironment.get_execution_environment()
print("PARALLELISM", env.get_parallelism())
numbers = env.from_collection(list(range(env.get_parallelism())), type_info=Types.LONG()).rebalance()
numbers.map(FindGpus(), output_type=Types.STRING()).print()
env.execute()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[HostSession]:
    executors = {"spark.executor.extraJavaOptions": executor_java_options()}
    made = host_session(Settings({"headrace.spark.master": MASTER, **executors}))
    yield made
    made.stop()


def threads_body(path: Path) -> WorkerBody:
    """A body that writes how many threads Spark gave it."""
    text = str(path)

    def body(_: Iterable[int]) -> Iterator[str]:
        Path(text).write_text(os.environ.get("OMP_NUM_THREADS", ""))
        return iter(["done"])

    return body


def test_a_profile_of_two_cores_takes_both(cluster: HostSession, tmp_path: Path) -> None:
    slots = ApplicationSlots(cluster.context)
    wait_until(lambda: slots.count() == 2, 60, "the executor registered")
    jobs = SparkWorkerJobs(
        cluster.context,
        lambda *_: threads_body(tmp_path / "threads"),
        sizes=SIZES,
        secrets=NO_SECRETS,
    )
    job = jobs.submit(ResourceId("tm-1"), TWO_CORES)
    wait_until(job.is_done, 60, "the job ended")
    assert job.error() is None
    assert (tmp_path / "threads").read_text() == "2"


def test_task_managers_of_a_program_take_the_cores_that_it_asks_for(tmp_path: Path) -> None:
    program = headrace_run(
        tmp_path, PROGRAM, "--master", "local-cluster[2,3,1024]", "-D", "taskmanager.cpu.cores=2"
    )
    try:
        assert program.wait(120) == 0, program.report()
        # Of two executors with three cores each, one TaskManager on each: one, as one is kept free.
        assert "PARALLELISM 1\n" in program.out, program.report()
        assert any("THREADS 2" in line for line in program.out), program.report()
        program.assert_nothing_is_left()
    finally:
        program.end()


def gpus_of_task_managers(
    folder: Path, settings: dict[str, str], slot_count: int, *place: str
) -> list[str]:
    """Run the program with a GPU for each TaskManager; return those of its subtasks, one of each.

    It waits until there are `slot_count` slots.
    """
    settings = {"external-resources": "gpu", "external-resource.gpu.amount": "1", **settings}
    given = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    program = headrace_run(folder, GPU_PROGRAM, *place, *given, arguments=(str(slot_count),))
    try:
        assert program.wait(120) == 0, program.report()
        [parallelism] = [line for line in program.out if line.startswith("PARALLELISM ")]
        found = sorted(line.split("GPUS ")[1].strip() for line in program.out if "GPUS " in line)
        program.assert_nothing_is_left()
    finally:
        program.end()
    return [parallelism.strip(), *found]


def test_each_task_manager_has_a_gpu_of_its_own(tmp_path: Path) -> None:
    settings = made_up_gpus(tmp_path, "worker", "executor")
    found = gpus_of_task_managers(tmp_path, settings, 2, "--master", "local-cluster[1,3,1024]")
    # Three cores, but two addresses.
    assert found == ["PARALLELISM 2", "['g0']", "['g1']"]


def test_each_task_manager_of_a_standalone_cluster_has_a_gpu_of_its_own(tmp_path: Path) -> None:
    lines = "".join(f"{key} {value}\n" for key, value in made_up_gpus(tmp_path, "worker").items())
    standalone = StandaloneCluster(
        tmp_path / "standalone", new_mark(), cores_per_worker=3, properties=lines
    )
    try:
        settings = made_up_gpus(tmp_path, "executor")
        found = gpus_of_task_managers(tmp_path, settings, 4, *standalone.options)
    finally:
        standalone.end()
    # Two workers with three cores and two addresses each.
    assert found == ["PARALLELISM 4", "['g0']", "['g0']", "['g1']", "['g1']"]


SIZED_PROGRAM = """
import os
import sys
from headrace.common import Types
from headrace.core.error_text import describe
from headrace.datastream import SlotSharingGroup, StreamExecutionEnvironment
from headrace.datastream.functions import MapFunction


class Tell(MapFunction):
    def open(self, runtime_context):
        infos = runtime_context.get_external_resource_infos("gpu")
        self.gpus = sorted(info.get_property("index") for info in infos)

    def map(self, value):
        threads = os.environ.get("OMP_NUM_THREADS", "")
        return f"{value} GPUS {self.gpus} THREADS {threads}"


def run(gpus, parallelism):
    builder = SlotSharingGroup.builder("models").set_cpu_cores(1).set_task_heap_memory_mb(10)
    models = builder.set_external_resource("gpu", gpus).build()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    numbers = env.from_collection([0, 1], type_info=Types.LONG())
    plain = numbers.map(Tell(), output_type=Types.STRING())
    told = plain.rebalance().map(Tell(), output_type=Types.STRING())
    told.set_parallelism(parallelism).slot_sharing_group(models).print()
    env.execute()


try:
    run(4, 1)
except Exception as error:
    if "fewer" not in sys.argv:
        raise
    print("REFUSED", describe(error, wants_details=False))
run(1, 2)
"""


def assert_refused(error: str, reason: str) -> None:
    """Assert that the job with more GPUs than there are was refused at once, and for this reason."""
    wanted = "slot sharing group 'models' requests 1 core(s), 10 mb of task heap memory and 4 gpu"
    assert wanted in error and reason in error, error
    assert "slot.request.timeout" not in error, error


def gpu_settings(folder: Path) -> list[str]:
    """The command line's words for two made-up GPUs of each worker and executor."""
    pairs = made_up_gpus(folder, "worker", "executor").items()
    return [word for pair in pairs for word in ("-D", "=".join(pair))]


def test_only_the_slots_of_a_group_that_asks_for_gpus_take_some_and_more_than_any_executor_has_are_refused(
    tmp_path: Path,
) -> None:
    program = headrace_run(
        tmp_path,
        SIZED_PROGRAM,
        "--master",
        "local-cluster[1,4,1024]",
        *gpu_settings(tmp_path),
        arguments=("fewer",),
    )
    try:
        assert program.wait(120) == 0, program.report()
        (error,) = [line for line in program.out if line.startswith("REFUSED")]
        assert_refused(error, "an executor has 2: set spark.executor.resource.gpu.amount")
        found = sorted(line for line in program.out if "GPUS" in line)
        # The functions before have none; each subtask of the group has one of its own.
        assert all(line.count("GPUS []") == 1 for line in found), program.report()
        assert {line.split("GPUS ")[2].split(" THREADS")[0] for line in found} == {
            "['g0']",
            "['g1']",
        }, program.report()
        program.assert_nothing_is_left()
    finally:
        program.end()


def test_gpus_of_a_group_are_refused_by_name_where_all_task_managers_are_alike(
    tmp_path: Path,
) -> None:
    usual = ("-D", "external-resources=gpu")
    program = headrace_run(tmp_path, SIZED_PROGRAM, "--master", "local[3]", *usual)
    try:
        assert program.wait(120) != 0, program.report()
        error = "".join(program.err)
        assert_refused(
            error,
            "on local[3] all TaskManagers have the same size, as Spark has no resource profiles",
        )
        assert "external-resources is ignored on local[3]" in error
    finally:
        program.end()


BATCH_PROGRAM = """
from headrace.common import Types
from headrace.datastream import SlotSharingGroup, StreamExecutionEnvironment
from headrace.datastream.functions import MapFunction


class Tell(MapFunction):
    def __init__(self, name):
        self.name = name

    def open(self, runtime_context):
        infos = runtime_context.get_external_resource_infos("gpu")
        self.gpus = sorted(info.get_property("index") for info in infos)

    def map(self, value):
        return f"{value} {self.name} {self.gpus}"


def group(name, cores, gpus):
    builder = SlotSharingGroup.builder(name).set_cpu_cores(cores).set_task_heap_memory_mb(10)
    return (builder.set_external_resource("gpu", gpus) if gpus else builder).build()


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
numbers = env.from_collection(list(range(8)), type_info=Types.LONG())


def told(name, cores, gpus):
    texts = numbers.rebalance().map(Tell(name), output_type=Types.STRING())
    return texts.slot_sharing_group(group(name, cores, gpus))


# Rows of stages of three sizes are read by one, and some of each tell the driver of their end.
one, both, wide = told("one", 1, 1), told("both", 1, 2), told("wide", 2, 0)
united = one.union(both, wide).rebalance().map(Tell("united"), output_type=Types.STRING())
united.slot_sharing_group("default").print()
one.print()
wide.print()
env.execute()
"""


@pytest.mark.timeout(400)
def test_stages_in_batch_mode_take_the_gpus_that_their_group_asks_for(tmp_path: Path) -> None:
    program = headrace_run(
        tmp_path,
        BATCH_PROGRAM,
        "--master",
        "local-cluster[1,4,1024]",
        "-D",
        "execution.runtime-mode=BATCH",
        *gpu_settings(tmp_path),
    )
    try:
        assert program.wait(300) == 0, program.report()
        lines = [line.rpartition("> ")[2].strip() for line in program.out]
        united = [line for line in lines if line.endswith(" united []")]
        assert len(united) == 24 and len(lines) == 40, program.report()
        gpus = {(line.split()[1], line.split(" united")[0].split(" ", 2)[2]) for line in lines}
        assert ("both", "['g0', 'g1']") in gpus and ("wide", "[]") in gpus, gpus
        assert {found for name, found in gpus if name == "one"} <= {"['g0']", "['g1']"}, gpus
        assert len({name for name, _ in gpus}) == 3 and len(gpus) <= 4, gpus
        assert "memory of slot sharing groups (both, one, wide)" in "".join(program.err)
        program.assert_nothing_is_left()
    finally:
        program.end()


def test_all_stages_in_batch_mode_take_the_gpus_that_the_settings_name(tmp_path: Path) -> None:
    settings = made_up_gpus(tmp_path, "worker", "executor")
    settings["execution.runtime-mode"] = "BATCH"
    found = gpus_of_task_managers(tmp_path, settings, 2, "--master", "local-cluster[1,3,1024]")
    # One may have ended before the other began, and left it its GPU.
    parallelism, *addresses = found
    assert parallelism == "PARALLELISM 2" and len(addresses) == 2, found
    assert set(addresses) <= {"['g0']", "['g1']"}, found


def test_more_gpus_than_an_executor_has_are_refused_in_batch_mode(tmp_path: Path) -> None:
    program = headrace_run(
        tmp_path,
        SIZED_PROGRAM,
        "--master",
        "local-cluster[1,4,1024]",
        "-D",
        "execution.runtime-mode=BATCH",
        *gpu_settings(tmp_path),
    )
    try:
        assert program.wait(120) != 0, program.report()
        assert (
            "slot sharing group 'models' requests 1 core(s) and 4 gpu for each of its subtasks, which "
            "Spark cannot provide in BATCH mode: an executor has 2: set spark.executor.resource.gpu.amount to 4"
        ) in program.error_line(), program.report()
        program.assert_nothing_is_left()
    finally:
        program.end()


def test_the_host_s_retry_of_a_worker_is_refused(cluster: HostSession, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    text = str(attempts)

    def dies_once(_: Iterable[int]) -> Iterator[str]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with Path(text).open("a") as log:
            log.write(f"{context.attemptNumber()}\n")
        if context.attemptNumber() == 0:
            os.kill(os.getpid(), 9)
        return iter(["rerun refused"])

    jobs = SparkWorkerJobs(cluster.context, lambda *_: dies_once, sizes=SIZES, secrets=NO_SECRETS)
    job = jobs.submit(ResourceId("tm-2"), ResourceProfile())
    wait_until(job.is_done, 60, "the job ended")
    # Spark runs the body again by itself; only the guard in it keeps a second TaskManager from appearing.
    assert attempts.read_text().split() == ["0", "1"]
    assert job.error() is None

"""A TaskManager that needs two processors gets both where the master can give them, and is not refused elsewhere."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.gateways.messages import ResourceProfile
from headrace.spark.session.authentication import TaskSecrets
from headrace.spark.session.jvm import ApplicationSlots
from headrace.spark.session.session import HostSession, host_session
from headrace.spark.workers.worker_jobs import SparkWorkerJobs, WorkerBody
from testkit.waiting import wait_until
from tests.spark.programs import headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

NO_SECRETS = TaskSecrets(b"", None)
TWO_CORES = ResourceProfile(cpu_cores=2.0)

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


@pytest.fixture(scope="module")
def cluster() -> Iterator[HostSession]:
    made = host_session(Settings({"headrace.spark.master": "local-cluster[1,2,1024]"}))
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
        lambda _: threads_body(tmp_path / "threads"),
        honours_profiles=True,
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

    jobs = SparkWorkerJobs(
        cluster.context, lambda _: dies_once, honours_profiles=True, secrets=NO_SECRETS
    )
    job = jobs.submit(ResourceId("tm-2"), ResourceProfile())
    wait_until(job.is_done, 60, "the job ended")
    # Spark runs the body again by itself; only the guard in it keeps a second TaskManager from appearing.
    assert attempts.read_text().split() == ["0", "1"]
    assert job.error() is None

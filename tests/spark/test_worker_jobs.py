"""Single-task Spark jobs as the resource driver uses them, with a body that only waits."""

import asyncio
import os
import queue
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.core.resource_profile import ResourceProfile
from headrace.spark.master import parse_master
from headrace.spark.session.authentication import TaskSecrets
from headrace.spark.session.jvm import jvm_context
from headrace.spark.session.session import HostSession
from headrace.spark.workers.resource_driver import SparkResourceDriver
from headrace.spark.workers.worker_jobs import (
    AsynchronousJob,
    SparkWorkerJobs,
    ThreadedJob,
    WorkerBody,
)
from headrace.spark.workers.worker_sizes import WorkerSizes
from testkit.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

NO_SECRETS = TaskSecrets(b"", None)
ANY = ResourceProfile()
LOCAL = WorkerSizes(Settings({}), {"spark.master": "local[2]"}, parse_master("local[2]", 2))


class Reports:
    def __init__(self) -> None:
        self.queue: queue.Queue[tuple[str, str, str]] = queue.Queue()

    def worker_started(self, worker_id: ResourceId) -> None:
        self.queue.put(("started", worker_id.name, ""))

    def worker_terminated(self, worker_id: ResourceId, diagnostics: str) -> None:
        self.queue.put(("terminated", worker_id.name, diagnostics))

    def worker_decommissioned(self, worker_id: ResourceId, cause: str) -> None:
        self.queue.put(("decommissioned", worker_id.name, cause))

    def interpreter_failed(self, interpreter: str, cause: str, *, recoverable: bool) -> None:
        self.queue.put(("interpreter failed", interpreter, cause))

    def host_failed(self, error: BaseException) -> None:
        self.queue.put(("host failed", "", str(error)))

    def next(self) -> tuple[str, str, str]:
        return self.queue.get(timeout=60)


def waiting_body(directory: Path, worker_id: ResourceId) -> WorkerBody:
    """A body that writes its pid, then waits until a file `<name>.stop` appears."""
    text, name = str(directory), worker_id.name

    def body(_: Iterable[int]) -> Iterator[str]:
        Path(text, f"{name}.pid").write_text(str(os.getpid()))
        while not Path(text, f"{name}.stop").exists():
            time.sleep(0.05)
        return iter(["stopped"])

    return body


@pytest.fixture(scope="module")
def context(session: HostSession) -> SparkContext:
    return session.context


@pytest.fixture
def driver(context: SparkContext, tmp_path: Path) -> Iterator[tuple[SparkResourceDriver, Reports]]:
    jobs = SparkWorkerJobs(
        context,
        lambda worker_id, _: waiting_body(tmp_path, worker_id),
        sizes=LOCAL,
        secrets=NO_SECRETS,
        description_of=lambda worker_id: f"host of {worker_id}",
    )
    made = SparkResourceDriver(jobs, SystemClock(), stop_grace_ms=500)
    reports = Reports()
    made.initialize(reports)
    yield made, reports
    asyncio.run(made.close())


def pid_of(directory: Path, worker_id: ResourceId) -> int:
    wait_until((directory / f"{worker_id.name}.pid").exists, 30, f"{worker_id} runs")
    return int((directory / f"{worker_id.name}.pid").read_text() or "0")


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def descriptions(context: SparkContext) -> set[str]:
    """What Spark says of its jobs, on its web page too."""
    jobs: Any = jvm_context(context).statusStore().jobsList(None)
    found = [jobs.apply(index).description() for index in range(jobs.size())]
    # Jobs of other modules, which had the session before, may have none.
    return {one.get() for one in found if one.isDefined()}


def test_workers_start_one_by_one_are_described_and_a_graceful_end_is_reported(
    driver: tuple[SparkResourceDriver, Reports], tmp_path: Path, context: SparkContext
) -> None:
    made, reports = driver
    assert made.max_worker_count == 3
    first, second = ResourceId("tm-1"), ResourceId("tm-2")
    made.request_worker(first, ANY)
    made.request_worker(second, ANY)
    assert {reports.next()[:2], reports.next()[:2]} == {("started", "tm-1"), ("started", "tm-2")}
    other = pid_of(tmp_path, second)
    assert descriptions(context) >= {"host of tm-1", "host of tm-2"}
    (tmp_path / "tm-1.stop").touch()
    assert reports.next() == ("terminated", "tm-1", "its Spark task returned")
    assert is_running(other)


def test_a_release_kills_a_worker_that_does_not_return_and_only_that_one(
    driver: tuple[SparkResourceDriver, Reports], tmp_path: Path
) -> None:
    made, reports = driver
    first, second = ResourceId("tm-3"), ResourceId("tm-4")
    made.request_worker(first, ANY)
    made.request_worker(second, ANY)
    reports.next()
    reports.next()
    pid, other = pid_of(tmp_path, first), pid_of(tmp_path, second)
    made.release_worker(first)
    assert reports.next() == ("terminated", "tm-3", "released")
    wait_until(lambda: not is_running(pid), 10, "the worker is killed")
    assert is_running(other)


def test_a_killed_worker_is_reported_with_what_spark_says(
    driver: tuple[SparkResourceDriver, Reports], tmp_path: Path
) -> None:
    made, reports = driver
    worker = ResourceId("tm-5")
    made.request_worker(worker, ANY)
    reports.next()
    os.kill(pid_of(tmp_path, worker), 9)
    kind, name, diagnostics = reports.next()
    assert (kind, name) == ("terminated", "tm-5")
    assert "crashed" in diagnostics


def test_a_job_that_waits_for_a_core_is_cancelled_without_ever_running(
    driver: tuple[SparkResourceDriver, Reports], tmp_path: Path
) -> None:
    made, reports = driver
    names = [f"tm-{index}" for index in range(10, 15)]
    for name in names:
        made.request_worker(ResourceId(name), ANY)
    started = {reports.next()[1] for _ in range(4)}
    (waiting,) = set(names) - started
    made.release_worker(ResourceId(waiting))
    assert reports.next() == ("terminated", waiting, "released")
    assert not (tmp_path / f"{waiting}.pid").exists()


def test_a_body_that_raises_names_its_error_first(context: SparkContext) -> None:
    def body(_: Iterable[int]) -> Iterator[str]:
        raise ModuleNotFoundError("No module named 'airports'")

    jobs = SparkWorkerJobs(context, lambda *_: body, sizes=LOCAL, secrets=NO_SECRETS)
    job = jobs.submit(ResourceId("tm-20"), ANY)
    wait_until(job.is_done, 30, "the job ended")
    assert (job.error() or "").startswith("ModuleNotFoundError: No module named 'airports'")


def test_jobs_that_run_are_not_asked_one_by_one_whether_they_have_ended(
    context: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = SparkWorkerJobs(
        context,
        lambda worker_id, _: waiting_body(tmp_path, worker_id),
        sizes=LOCAL,
        secrets=NO_SECRETS,
    )
    ids = [ResourceId("tm-30"), ResourceId("tm-31"), ResourceId("tm-32")]
    running = {worker_id: jobs.submit(worker_id, ANY) for worker_id in ids}
    for worker_id, job in running.items():
        pid_of(tmp_path, worker_id)
        wait_until(job.is_active, 30, f"{worker_id} is seen to run")
    asked: list[AsynchronousJob] = []
    is_done = AsynchronousJob.is_done
    monkeypatch.setattr(AsynchronousJob, "is_done", lambda job: asked.append(job) or is_done(job))
    for _ in ids:
        assert jobs.ended(running) == []
    assert len(asked) == len(ids), "each is asked in its turn, and no other"
    assert set(map(id, asked)) == set(map(id, running.values()))
    (tmp_path / "tm-31.stop").touch()
    wait_until(lambda: jobs.ended(running) == [ids[1]], 30, "the end of one is seen")
    for worker_id in (ids[0], ids[2]):
        (tmp_path / f"{worker_id.name}.stop").touch()
    wait_until(lambda: sorted(jobs.ended(running)) == ids, 30, "all have ended")


def test_without_an_asynchronous_action_a_thread_waits_for_the_job(context: SparkContext) -> None:
    good = ThreadedJob(context.parallelize([0], 1).map(str))
    bad = ThreadedJob(context.parallelize([0], 1).map(lambda row: 1 // row))
    wait_until(lambda: good.is_done() and bad.is_done(), 30, "both jobs ended")
    assert good.error() is None
    assert (bad.error() or "").startswith("ZeroDivisionError")

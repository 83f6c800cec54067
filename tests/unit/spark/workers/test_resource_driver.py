"""The resource driver over scripted jobs: requests reach Spark, ends reach the ResourceManager exactly once."""

import asyncio
import queue
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from headrace.core.clock import ManualClock
from headrace.core.ids import ResourceId
from headrace.core.resource_profile import ResourceProfile
from headrace.spark.session.jvm import JvmGoneError
from headrace.spark.session.spark_errors import EnvironmentNotMadeError
from headrace.spark.workers.resource_driver import (
    EXECUTORS_INTERVAL_MS,
    LOST_EXECUTORS_INTERVAL_MS,
    SparkHostLostError,
    SparkResourceDriver,
)
from headrace.spark.workers.worker_jobs import ExecutorState, WorkerJob
from testkit.waiting import wait_until

ONE, TWO = ResourceId("tm-1"), ResourceId("tm-2")
ANY = ResourceProfile()
ENVIRONMENT = "environment:requirements@1"
REPORT_TIMEOUT_S = 20


@dataclass
class ScriptedJob:
    active: bool = True
    done: bool = False
    reason: str | None = None
    executor: str = "7"

    def is_active(self) -> bool:
        return self.active

    def executor_id(self) -> str | None:
        return self.executor

    @property
    def ids(self) -> frozenset[int]:
        return frozenset()

    def is_done(self) -> bool:
        return self.done

    def error(self) -> str | None:
        return self.reason


@dataclass
class ScriptedJobs:
    jobs: dict[ResourceId, ScriptedJob] = field(default_factory=dict)
    cancelled: list[ResourceId] = field(default_factory=list)
    refusal: Exception | None = None
    slots: int | None = 4
    state: ExecutorState = ExecutorState.ALIVE
    announces_ends: bool = True
    asked: list[set[str]] = field(default_factory=list)
    loss: JvmGoneError | None = None

    def submit(self, worker_id: ResourceId, profile: ResourceProfile) -> ScriptedJob:
        if self.refusal is not None:
            raise self.refusal
        return self.jobs.setdefault(worker_id, ScriptedJob())

    def cancel(self, worker_id: ResourceId) -> None:
        self.cancelled.append(worker_id)
        self.jobs[worker_id].reason = "cancelled"
        self.jobs[worker_id].done = True

    def ended(self, jobs: Mapping[ResourceId, WorkerJob]) -> list[ResourceId]:
        return [worker_id for worker_id, job in jobs.items() if job.is_done()]

    def slot_count(self) -> int | None:
        if self.loss is not None:
            raise self.loss
        return self.slots

    def executor_states(self, executor_ids: Iterable[str]) -> dict[str, ExecutorState]:
        self.asked.append(set(executor_ids))
        return dict.fromkeys(executor_ids, self.state)

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        return f"{profile} is more than {usual}"


class Reports:
    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[str, str]] = queue.Queue()

    def worker_started(self, worker_id: ResourceId) -> None:
        self._queue.put(("started", worker_id.name))

    def worker_terminated(self, worker_id: ResourceId, diagnostics: str) -> None:
        self._queue.put(("terminated", diagnostics))

    def worker_decommissioned(self, worker_id: ResourceId, cause: str) -> None:
        self._queue.put(("decommissioned", cause))

    def interpreter_failed(self, interpreter: str, cause: str, *, recoverable: bool) -> None:
        self._queue.put(("interpreter failed", f"{recoverable} {cause}"))

    def host_failed(self, error: BaseException) -> None:
        self._queue.put(("host failed", type(error).__name__))

    def next(self) -> tuple[str, str]:
        return self._queue.get(timeout=REPORT_TIMEOUT_S)

    def is_empty(self) -> bool:
        return self._queue.empty()


def driver_over(
    jobs: ScriptedJobs, *, stop_grace_ms: float = 0
) -> tuple[SparkResourceDriver, Reports]:
    driver = SparkResourceDriver(jobs, ManualClock(), stop_grace_ms=stop_grace_ms)
    reports = Reports()
    driver.initialize(reports)
    return driver, reports


def test_one_slot_is_left_to_spark_s_own_jobs() -> None:
    driver, _ = driver_over(ScriptedJobs())
    assert driver.max_worker_count == 3
    asyncio.run(driver.close())


def test_before_it_begins_it_is_asked_whether_workers_could_run() -> None:
    jobs = ScriptedJobs()
    driver = SparkResourceDriver(jobs, ManualClock(), stop_grace_ms=0)
    jobs.slots = 8
    driver.check()
    assert driver.max_worker_count == 7
    jobs.loss = JvmGoneError("the JVM does not answer")
    with pytest.raises(SparkHostLostError, match="does not answer, while this driver waited"):
        driver.check()


def test_a_requested_worker_is_reported_started_and_its_crash_once() -> None:
    jobs = ScriptedJobs()
    driver, reports = driver_over(jobs)
    driver.request_worker(ONE, ANY)
    assert reports.next() == ("started", "tm-1")
    jobs.jobs[ONE].reason = "Python worker exited unexpectedly"
    jobs.jobs[ONE].done = True
    assert reports.next() == ("terminated", "Python worker exited unexpectedly")
    asyncio.run(driver.close())
    assert reports.is_empty()


def test_a_release_cancels_the_job_once_the_grace_is_over() -> None:
    jobs = ScriptedJobs()
    driver, reports = driver_over(jobs)
    driver.request_worker(ONE, ANY)
    assert reports.next() == ("started", "tm-1")
    driver.release_worker(ONE)
    assert reports.next() == ("terminated", "released")
    assert jobs.cancelled == [ONE]
    asyncio.run(driver.close())


def test_a_refused_submission_is_a_termination_that_says_why() -> None:
    driver, reports = driver_over(ScriptedJobs(refusal=ValueError("profiles are not supported")))
    driver.request_worker(ONE, ANY)
    kind, diagnostics = reports.next()
    assert kind == "terminated"
    assert "profiles are not supported" in diagnostics
    asyncio.run(driver.close())


def test_closing_releases_every_worker_and_waits_for_its_end() -> None:
    jobs = ScriptedJobs()
    driver, reports = driver_over(jobs)
    driver.request_worker(ONE, ANY)
    assert reports.next() == ("started", "tm-1")
    asyncio.run(driver.close())
    assert reports.next() == ("terminated", "released")


def test_a_dead_jvm_is_a_failure_of_the_host_and_ends_every_worker() -> None:
    jobs = ScriptedJobs()
    driver, reports = driver_over(jobs)
    driver.request_worker(ONE, ANY)
    assert reports.next() == ("started", "tm-1")
    jobs.refusal = JvmGoneError("no answer")
    driver.request_worker(ResourceId("tm-2"), ANY)
    assert reports.next() == ("host failed", SparkHostLostError.__name__)
    assert reports.next()[0] == "terminated"
    assert isinstance(driver.failure, SparkHostLostError)
    asyncio.run(driver.close())


def test_a_shortage_is_told_with_what_to_do() -> None:
    jobs = ScriptedJobs()
    texts: list[str] = []
    for slot_count in (None, 0, 4):
        jobs.slots = slot_count
        driver = SparkResourceDriver(jobs, ManualClock(), stop_grace_ms=0)
        texts.append(driver.describe_shortage().split(";", 1)[0])
    assert texts == [
        "Spark has not given this application an executor for the workers yet",
        "Spark has no executor for this application",
        "Spark's executors have 4 slot(s), of which 1 is kept free for Spark's own jobs",
    ]


def test_an_executor_that_spark_takes_away_or_loses_is_reported_once() -> None:
    jobs, clock = ScriptedJobs(), ManualClock()
    driver = SparkResourceDriver(jobs, clock, stop_grace_ms=60_000)
    reports = Reports()
    driver.initialize(reports)
    driver.request_worker(ONE, ANY)
    assert reports.next() == ("started", "tm-1")
    jobs.state = ExecutorState.DECOMMISSIONED
    clock.advance_ms(EXECUTORS_INTERVAL_MS)
    assert reports.next() == ("decommissioned", "Spark is removing its executor 7")
    clock.advance_ms(EXECUTORS_INTERVAL_MS)
    jobs.state = ExecutorState.LOST
    clock.advance_ms(EXECUTORS_INTERVAL_MS)
    assert reports.next() == ("terminated", "Spark lost its executor 7")
    assert jobs.cancelled == [ONE], "Spark would run the worker again elsewhere"
    asyncio.run(driver.close())
    assert reports.is_empty()


def test_spark_is_asked_for_all_executors_at_once_and_seldom_where_none_is_announced() -> None:
    jobs, clock = ScriptedJobs(announces_ends=False), ManualClock()
    jobs.jobs |= {ONE: ScriptedJob(executor="7"), TWO: ScriptedJob(executor="8")}
    driver = SparkResourceDriver(jobs, clock, stop_grace_ms=0)
    reports = Reports()
    driver.initialize(reports)
    for worker_id in (ONE, TWO):
        driver.request_worker(worker_id, ANY)
        assert reports.next()[0] == "started"
    jobs.asked.clear()
    clock.advance_ms(LOST_EXECUTORS_INTERVAL_MS)
    wait_until(lambda: bool(jobs.asked), REPORT_TIMEOUT_S, "a question")
    # Before the next one is due it looks at its jobs, and asks nothing.
    clock.advance_ms(LOST_EXECUTORS_INTERVAL_MS - 1)
    jobs.jobs[ONE].done = True
    assert reports.next()[0] == "terminated"
    assert jobs.asked == [{"7", "8"}]
    asyncio.run(driver.close())


def test_a_shortage_of_gpus_is_told_by_name_for_as_long_as_workers_wait_for_them() -> None:
    jobs = ScriptedJobs()
    driver, reports = driver_over(jobs)
    jobs.jobs[ONE] = ScriptedJob(active=False)
    driver.request_worker(ONE, ResourceProfile(external_resources=(("gpu", 3),)))
    assert driver.describe_shortage().startswith(
        "the workers need 3 gpu, which Spark's executors do not"
    )
    jobs.jobs[ONE].active = True
    assert reports.next() == ("started", "tm-1")
    assert driver.describe_shortage().startswith("Spark's executors have 4 slot(s)")
    asyncio.run(driver.close())


def test_an_interpreter_that_cannot_run_fails_its_workers_and_not_the_host() -> None:
    jobs = ScriptedJobs()
    driver, reports = driver_over(jobs)
    driver.request_worker(ONE, ANY.with_interpreter("/opt/other/python"))
    assert reports.next() == ("started", "tm-1")
    jobs.jobs[ONE].reason = "ModuleNotFoundError: No module named 'pyarrow'"
    jobs.jobs[ONE].done = True
    kind, cause = reports.next()
    assert kind == "interpreter failed"
    assert cause.startswith("False ")
    assert "'/opt/other/python': the interpreter has no package 'pyarrow'" in cause
    assert reports.next()[0] == "terminated"
    assert driver.failure is None
    asyncio.run(driver.close())
    assert reports.is_empty()


PORT_IN_USE = (
    "headrace.core.errors.PortInUseError: every port of 50100-50103 on 10.0.0.7 is in use: allow "
    "more with 'taskmanager.data.port', or 0 for any free port"
)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (PORT_IN_USE, "a TaskManager cannot start: every port of 50100-50103 on 10.0.0.7"),
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            "TaskManagers cannot run in Spark's Python workers: ModuleNotFoundError",
        ),
    ],
)
def test_a_usual_worker_that_cannot_start_is_no_end_of_the_host(reason: str, told: str) -> None:
    jobs = ScriptedJobs()
    driver, reports = driver_over(jobs)
    driver.request_worker(ONE, ANY)
    assert reports.next() == ("started", "tm-1")
    jobs.jobs[ONE].reason = reason
    jobs.jobs[ONE].done = True
    kind, cause = reports.next()
    assert kind == "interpreter failed"
    assert cause.startswith(f"False {told}")
    assert reports.next()[0] == "terminated"
    assert driver.failure is None
    asyncio.run(driver.close())
    assert reports.is_empty()


def test_an_environment_that_one_host_could_not_make_may_be_made_later() -> None:
    jobs = ScriptedJobs()
    driver, reports = driver_over(jobs)
    driver.request_worker(ONE, ANY.with_interpreter(ENVIRONMENT))
    assert reports.next() == ("started", "tm-1")
    jobs.jobs[ONE].reason = str(EnvironmentNotMadeError.here("No space left on device"))
    jobs.jobs[ONE].done = True
    kind, cause = reports.next()
    assert kind == "interpreter failed"
    assert cause.startswith("True ") and cause.endswith("No space left on device")
    asyncio.run(driver.close())


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (ANY.with_interpreter(ENVIRONMENT), str(EnvironmentNotMadeError.here("pip ended with -9"))),
        (ANY, PORT_IN_USE),
    ],
    ids=["environment", "usual"],
)
def test_the_start_of_a_worker_that_was_given_up_says_nothing(
    profile: ResourceProfile, reason: str
) -> None:
    jobs = ScriptedJobs()
    driver, reports = driver_over(jobs, stop_grace_ms=60_000)
    driver.request_worker(ONE, profile)
    assert reports.next() == ("started", "tm-1")
    driver.release_worker(ONE)
    # Behind the release in the queue, so that its start comes after it.
    driver.request_worker(TWO, ANY)
    assert reports.next() == ("started", "tm-2")
    jobs.jobs[ONE].reason = reason
    jobs.jobs[ONE].done = True
    assert reports.next() == ("terminated", "released")
    asyncio.run(driver.close())

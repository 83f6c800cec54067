"""A driver loses the leadership and leads again, or its Dispatcher: the same process, with the same TaskManagers.

Real processes and files. Its job goes on, from the last checkpoint where the leadership was lost, and output comes out
once.
"""

import contextlib
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.collected_records import CollectedRecordsLostError
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.core.configuration import Configuration
from headrace.core.lifecycle import JobStatus
from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestRefusedError
from headrace.rest.home.connections import find_connection
from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import DriverProcess, NumbersJob, Rivals

LOCAL_RECOVERY = {
    "execution.checkpointing.local-backup.enabled": "true",
    "execution.state-recovery.from-local": "true",
    # Else so little state lies within the metadata.
    "execution.checkpointing.data-inline-threshold": "0",
}

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


@contextlib.contextmanager
def storage_away(storage: Path) -> Generator[None]:
    """Let whoever looks for the records of leaders get an error."""
    folder, aside = storage / "leader", storage / "aside"
    folder.rename(aside)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)


def start_with_job(pair: Rivals, job: NumbersJob) -> DriverProcess:
    driver = pair.start("first", **{"rest.port": "0"})
    driver.wait_for("serves")
    submit(driver, job)
    return driver


def submit(driver: DriverProcess, job: NumbersJob) -> None:
    driver.say("submit", str(job.file))
    driver.wait_for("submitted")
    job.await_begin()


def assert_finishes(driver: DriverProcess, job: NumbersJob, workers: list[int]) -> None:
    before = sum(job.output().values())
    wait_until(lambda: sum(job.output().values()) > before, 120, "output of the next term")
    driver.say("result", str(job.job_id))
    assert driver.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected
    assert driver.workers() == workers, "TaskManagers were started anew"
    assert driver.find("ended") is None


def log_of(pair: Rivals, task_manager: str) -> str:
    folder = pair.folder / "first" / task_manager / "logs"
    return "".join(file.read_text() for file in sorted(folder.rglob("*.log")))


def rest_client(driver: DriverProcess) -> RestClient:
    connection = find_connection(driver.wait_for("serves")["address"], print)
    assert connection is not None
    return RestClient.of(connection, settings=Settings({"rest.retry.max-attempts": "1"}))


def test_a_leader_whose_storage_was_away_leads_again_and_says_so_meanwhile(pair: Rivals) -> None:
    job = NumbersJob(pair.folder, count=12_000)
    only = start_with_job(pair, job)
    workers, rest = only.workers(), rest_client(only)
    with storage_away(pair.storage):
        only.await_log("this process is a standby")
        with pytest.raises(RestRefusedError, match="no leader is known now") as refused:
            rest.get("/jobs/overview")
        assert refused.value.status == 503
        assert rest.get("/config")["flink-version"], "what needs no leader is answered"
        assert only.find("ended") is None
    only.await_log("(epoch 2)")
    assert_finishes(only, job, workers)
    pair.assert_forgotten(job)


def test_records_that_only_the_last_leader_had_collected_are_said_to_be_lost(pair: Rivals) -> None:
    only = pair.start("first", **{"rest.port": "0"})
    address = only.wait_for("serves")["address"]
    env = StreamExecutionEnvironment.get_execution_environment()
    settings = {"execution.target": "remote", "rest.address": address}
    env.configure(Configuration.from_dict(settings))
    env.enable_checkpointing(100)
    numbers = DataGeneratorSource(lambda number: number, None, Types.LONG(), rows_per_second=500.0)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    with stream.execute_and_collect() as records:
        assert records.take(100) == list(range(100))
        with storage_away(pair.storage):
            only.await_log("this process is a standby")
        only.await_log("(epoch 2)")
        with pytest.raises(CollectedRecordsLostError, match="goes on under another leader"):
            records.take(100_000)
        client = records.get_job_client()
        wait_until(lambda: client.get_job_status().result() is JobStatus.RUNNING, 60, "it runs")
    assert records.get_job_client().get_job_status().result() is JobStatus.CANCELED


def test_the_next_job_master_puts_tasks_where_their_state_is_whichever_slots_come_first(
    pair: Rivals,
) -> None:
    job = NumbersJob(pair.folder, count=24_000, parallelism=2, settings=LOCAL_RECOVERY)
    only = start_with_job(pair, job)
    places = only.ask("running", str(job.job_id))["places"]
    names: dict[str, int] = only.ask("workers")["names"]
    assert {*places.values()} == {*names}, "each TaskManager has a part of the job"
    for term, name in enumerate(names, 2):
        # Its slot comes last, and the next time that of the other one.
        os.kill(names[name], signal.SIGSTOP)
        try:
            with storage_away(pair.storage):
                lost = term - 1
                wait_until(
                    lambda lost=lost: only.log.count("this process is a standby") == lost,
                    60,
                    "a loss",
                )
            only.await_log(f"(epoch {term})")
        finally:
            os.kill(names[name], signal.SIGCONT)
        running = only.ask("running", str(job.job_id))
        assert running["restored"]
        assert running["places"] == places
    logs = {name: log_of(pair, name) for name in names}
    for name, log in logs.items():
        assert log.count("restores state from copies of this TaskManager") >= 2, name
        assert "restores state without copies" not in log
    assert_finishes(only, job, only.workers())


def test_a_job_is_reconciling_until_its_task_managers_are_back_under_the_next_leader(
    pair: Rivals,
) -> None:
    job = NumbersJob(pair.folder, count=12_000, parallelism=2)
    only = start_with_job(pair, job)
    rest, names = rest_client(only), only.ask("workers")["names"]
    silent = next(iter(names.values()))

    def status() -> str:
        try:
            (one,) = rest.get("/jobs/overview")["jobs"]
        except RestRefusedError as refused:
            # There is no Dispatcher in the moment before it.
            assert refused.status == 503
            return ""
        return one["state"]

    assert status() == "RUNNING"
    submitted_ms = rest.get(f"/jobs/{job.job_id}")["timestamps"]["INITIALIZING"]
    os.kill(silent, signal.SIGSTOP)
    try:
        with storage_away(pair.storage):
            only.await_log("this process is a standby")
        only.await_log("(epoch 2)")
        wait_until(lambda: status() == "RECONCILING", 60, "the job is RECONCILING")
        registered = "/taskmanagers"
        free = [one["freeSlots"] for one in rest.get(registered)["taskmanagers"]]
        assert len(free) == 2 and status() == "RECONCILING", "one of two slots is not back"
    finally:
        os.kill(silent, signal.SIGCONT)
    wait_until(lambda: status() == "RUNNING", 60, "the job runs")

    def times() -> dict[str, int]:
        return rest.get(f"/jobs/{job.job_id}")["timestamps"]

    # Details are up to `web.refresh-interval` older than the overview.
    wait_until(lambda: times()["RUNNING"], 60, "the details show that the job runs")
    reached = times()
    assert 0 < reached["RECONCILING"] <= reached["RUNNING"]
    assert reached["INITIALIZING"] == submitted_ms, "it is not a job that starts anew"
    assert_finishes(only, job, only.workers())


def test_a_dispatcher_that_fails_is_followed_and_no_task_notices(pair: Rivals) -> None:
    job = NumbersJob(pair.folder, padding=200_000, count=8_000)
    first = pair.start("first", **{"rest.port": "0"})
    first.wait_for("serves")
    second = pair.start("second")
    second.await_standby()
    submit(first, job)
    workers, rest = first.workers(), rest_client(first)
    first.say("fail", "dispatcher")
    first.await_log("LookupError: a bug in dispatcher (in endpoint")
    first.await_log("another one replaces it, and all jobs go on")
    assert_finishes(first, job, workers)
    metrics = rest.get(f"/jobs/{job.job_id}/metrics?get=numRestarts,fullRestarts")
    assert {each["value"] for each in metrics} == {"0"}
    assert second.find("leads") is None
    assert "(epoch 2)" not in first.log
    pair.assert_forgotten(job)

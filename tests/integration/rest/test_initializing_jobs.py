"""A job whose submission takes long, seen over REST and by the command line meanwhile: it is INITIALIZING."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.dispatcher.running_jobs import RunningJobs
from headrace.core.errors import RemoteError
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.core.threads import start_thread
from headrace.gateways.errors import DuplicateJobSubmissionError
from headrace.graph.job_graph import JobGraph
from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestRefusedError
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.simulation.simulated_job import counting_job
from testkit.waiting import wait_until
from tests.integration.rest.counting_program import SETTINGS

pytestmark = pytest.mark.integration


@dataclass
class SlowStore:
    """A cluster that has accepted a job, and has not stored it before `may_go_on` is set on its loop."""

    executor: MiniClusterExecutor
    rest: RestClient
    graph: JobGraph
    may_go_on: asyncio.Event
    fails: list[Exception] = field(default_factory=list[Exception])

    @property
    def job(self) -> str:
        return f"/jobs/{self.graph.job_id}"

    @property
    def status(self) -> str:
        return self.rest.get(f"{self.job}/status")["status"]

    def go_on(self) -> None:
        self.executor.cluster.handle.loop.call_soon_threadsafe(self.may_go_on.set)

    def listed(self) -> dict[str, Any]:
        (job,) = self.rest.get("/jobs/overview")["jobs"]
        return job


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowStore]:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    begun, may_go_on, submit = threading.Event(), asyncio.Event(), RunningJobs._submit  # pyright: ignore[reportPrivateUsage]
    graph = counting_job(
        JobId.generate(system_random()), "slow", count=10**6, interval_ms=100, parallelism=1, settings={}
    )  # fmt: skip

    async def slow(self: RunningJobs, graph: JobGraph, submitted_ms: int) -> None:
        begun.set()
        await may_go_on.wait()
        if one.fails:
            raise one.fails[0]
        await submit(self, graph, submitted_ms)

    monkeypatch.setattr(RunningJobs, "_submit", slow)
    with MiniClusterExecutor(slot_count=1, settings=SETTINGS) as executor:
        found = find_connection(None, print).connection
        one = SlowStore(executor, RestClient(found.address, found.token), graph, may_go_on)

        def submit_it() -> None:
            try:
                executor.submit(graph)
            except (OSError, RemoteError) as error:
                # Where calls are encoded, it comes as what it was.
                assert str(one.fails[0]) in str(error)

        submitting = start_thread("submission", submit_it)
        assert begun.wait(10)
        yield one
        one.go_on()
        submitting.join()


def test_a_job_that_is_being_stored_is_initializing_wherever_one_looks(store: SlowStore) -> None:
    assert store.status == "INITIALIZING"
    listed = store.listed()
    assert (listed["state"], listed["name"], listed["end-time"]) == ("INITIALIZING", "slow", -1)
    details = store.rest.get(store.job)
    assert details["state"] == "INITIALIZING" and details["vertices"] == []
    assert details["timestamps"]["INITIALIZING"] == details["start-time"] == listed["start-time"]
    assert [node["description"] for node in details["plan"]["nodes"]], "its plan is known"
    assert store.rest.get("/overview")["jobs-running"] == 1
    shown = subprocess.run(
        [Path(sys.executable).parent / "headrace", "list"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert "slow (INITIALIZING)" in shown.partition("Scheduled Jobs")[2]
    with pytest.raises(DuplicateJobSubmissionError, match="INITIALIZING"):
        store.executor.submit(store.graph)
    store.go_on()
    wait_until(lambda: store.status == "RUNNING", 30, "the job runs")
    running = store.listed()
    assert running["state"] == "RUNNING", "it is listed once"
    assert running["start-time"] == listed["start-time"], "it was submitted once"
    times = store.rest.get(store.job)["timestamps"]
    assert times["INITIALIZING"] == listed["start-time"] < times["CREATED"]


def test_a_cancellation_that_comes_while_a_job_is_initializing_is_not_lost(
    store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, await_job_master = threading.Event(), RunningJobs.await_job_master

    async def told(self: RunningJobs, job_id: JobId) -> None:
        waits.set()
        await await_job_master(self, job_id)

    monkeypatch.setattr(RunningJobs, "await_job_master", told)
    cancelling = start_thread("cancel", lambda: store.rest.patch(store.job, mode="cancel"))
    assert waits.wait(30), "the cancellation came"
    assert store.status == "INITIALIZING"
    store.go_on()
    cancelling.join()
    wait_until(lambda: store.status == "CANCELED", 30, "the job is cancelled")


def test_a_job_that_could_not_be_stored_is_unknown_again(store: SlowStore) -> None:
    store.fails.append(OSError("the disk is full"))
    store.go_on()

    def is_unknown() -> bool:
        try:
            return store.status not in JobStatus.__members__
        except RestRefusedError as error:
            return "Could not find Flink job" in str(error)

    wait_until(is_unknown, 30, "the job is unknown")
    assert store.rest.get("/jobs/overview")["jobs"] == []

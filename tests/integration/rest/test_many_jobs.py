"""Many jobs of several clients at once on one cluster: all run, and the driver keeps little of each that has ended."""

import concurrent.futures
import functools
import gc
import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.tasks_per_job import TASK_MANAGERS_MAX, job_of, start_cluster
from headrace import RestClusterClient
from headrace.api.client.job_client import JobClient
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.lifecycle import ExecutionState
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.rest_server import RestServer
from testkit.waiting import wait_until

pytestmark = pytest.mark.integration
CLIENTS = 8
JOBS_PER_CLIENT = 3
KEPT_BYTES_MAX = 50 * 1024


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A control plane with REST, and tasks without a data plane."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    settings = Settings(
        {"rest.port": "0", "web.submit.enable": "true", "web.refresh-interval": "20 ms"}
    )
    handle = start_cluster(-(-CLIENTS * JOBS_PER_CLIENT // TASK_MANAGERS_MAX), settings)
    control = ControlPlane(
        handle.dispatcher, handle.resource_manager, handle.loop, blob_server=handle.blob_server
    )
    server = RestServer(control, settings, SystemClock(), name="many")
    server.start()
    yield server.address
    server.close()
    handle.close()


def bring(address: str, job_count: int) -> None:
    """Submit jobs, each after the one before it runs."""
    with RestClusterClient(address) as cluster:
        for _ in range(job_count):
            client = cluster.submit_job(job_of(2, vertex_count=2))
            wait_until(functools.partial(runs, client), what="all tasks of the job")


def runs(client: JobClient) -> bool:
    vertices = client.get_job_details().result(60).vertices
    states = [subtask.state for vertex in vertices for subtask in vertex.subtasks]
    return bool(states) and set(states) == {ExecutionState.RUNNING}


def round_of_jobs(address: str, jobs_per_client: int) -> int:
    """Have all clients bring jobs at once, end all of them, and return how many ran at the same time."""
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for brought in [pool.submit(bring, address, jobs_per_client) for _ in range(CLIENTS)]:
            brought.result(120)
    with RestClusterClient(address) as cluster:
        running = [one for one in cluster.list_jobs() if not one.status.is_terminal_state()]
        for job in running:
            cluster.cancel(job.job_id)
        wait_until(
            lambda: all(one.status.is_terminal_state() for one in cluster.list_jobs()),
            what="the end of all jobs",
        )
    return len(running)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_jobs_of_many_clients_run_at_once_and_leave_little_behind(address: str) -> None:
    # What the first jobs load stays, and is no job's.
    round_of_jobs(address, 1)
    threads, files = {each.name for each in threading.enumerate()}, open_files()
    tracemalloc.start()
    try:
        before = traced_bytes()
        assert round_of_jobs(address, JOBS_PER_CLIENT) == CLIENTS * JOBS_PER_CLIENT
        wait_until(lambda: open_files() <= files, what="the end of all connections")
        wait_until(
            lambda: {each.name for each in threading.enumerate()} <= threads,
            what="the end of all threads",
        )
        kept = (traced_bytes() - before) / (CLIENTS * JOBS_PER_CLIENT)
    finally:
        tracemalloc.stop()
    assert kept < KEPT_BYTES_MAX

"""A function whose C code holds the interpreter lock for longer than heartbeats may stay away."""

import ctypes
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cli.jobs.top import JobReader
from headrace.cli.jobs.top_view import plain_lines
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.rest.client import RestClient, path_of
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.home.connections import find_connection
from headrace.rest.rest_server import RestServer
from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import process_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

WAIT_S = 90
HELD_S = 12
LONG_HELD_S = 55
"""Longer than the default of `heartbeat.timeout`, 50 s, whenever the last heartbeat was."""
PIPE = "held-until-this-is-opened"
NO_RESTARTS = {"restart-strategy.type": "none"}
DEFAULT_HEARTBEATS = {
    "taskmanager.memory.network.min": "32mb",
    "taskmanager.memory.network.max": "32mb",
    **NO_RESTARTS,
}
SETTINGS = {**DEFAULT_HEARTBEATS, "heartbeat.interval": "500 ms", "heartbeat.timeout": "5 s"}


def holding(go_on: Path, pipe: Path, held_s: int) -> Callable[[int], int]:
    """Holds the lock once the file is there, for a while, or until somebody opens `pipe` where there is one."""
    path, pipe_path = str(go_on), os.fsencode(pipe)

    def hold_the_lock(value: int) -> int:
        if value == 50:
            while not os.path.exists(path):
                time.sleep(0.01)
            # PyDLL, other than CDLL, keeps the lock during the call.
            if os.path.exists(pipe_path):
                os.close(ctypes.PyDLL(None).open(pipe_path, os.O_RDONLY))
            else:
                ctypes.PyDLL(None).sleep(held_s)
        return value

    return hold_the_lock


def job(go_on: Path, pipe: Path, held_s: int) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = NumberSequenceSource(0, 99)
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .map(holding(go_on, pipe, held_s), Types.LONG())
        .sink_to(DiscardingSink())
    )
    return generate_job_graph(
        env.get_stream_graph(), JobId.generate(system_random()), Settings(NO_RESTARTS)
    )


def run(
    scratch: Path,
    settings: Mapping[str, str],
    caplog: pytest.LogCaptureFixture,
    meanwhile: Callable[[ClusterHandle, JobId], None] = lambda handle, job_id: None,
    *,
    held_s: int = HELD_S,
) -> JobStatus:
    """Run the job; the lock is held once the ResourceManager and the JobMaster know who watches it."""
    caplog.set_level(logging.DEBUG, "headrace.cluster.lock_witness")

    def watchers() -> int:
        return sum("is watched at" in message for message in caplog.messages)

    go_on = scratch / "go-on"
    with process_cluster(scratch, 1, settings) as (handle, _):
        graph = job(go_on, scratch / PIPE, held_s)
        handle.submit(graph)
        wait_until(lambda: watchers() == 2, WAIT_S)
        go_on.touch()
        meanwhile(handle, graph.job_id)
        return handle.call(handle.dispatcher.request_job_result(graph.job_id), WAIT_S).status


def test_a_job_goes_on_while_its_function_holds_the_interpreter_lock_and_the_log_names_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**SETTINGS, "headrace.heartbeat.held-lock-timeout": "5 min"}
    assert run(tmp_path, settings, caplog) is JobStatus.FINISHED
    told = [message for message in caplog.messages if "is alive but does not respond" in message]
    assert told
    assert len(told) <= 2, "the ResourceManager and the JobMaster tell it once each"
    assert all(f"hold_the_lock ({__file__}:" in message for message in told)


@pytest.mark.slow
def test_with_default_options_a_job_goes_on_while_the_lock_is_held_for_longer_than_heartbeats_may_be_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(tmp_path, DEFAULT_HEARTBEATS, caplog, held_s=LONG_HELD_S) is JobStatus.FINISHED
    told = [message for message in caplog.messages if "is alive but does not respond" in message]
    assert told
    assert len(told) <= 2, "the ResourceManager and the JobMaster tell it once each"
    assert all(f"hold_the_lock ({__file__}:" in message for message in told)


def test_rest_and_top_name_the_function_that_holds_the_lock_while_it_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    settings = {**SETTINGS, "headrace.heartbeat.held-lock-timeout": "5 min"}
    seen: list[dict[str, Any]] = []
    lines: list[str] = []
    os.mkfifo(tmp_path / PIPE)

    def look(handle: ClusterHandle, job_id: JobId) -> None:
        server = RestServer(
            ControlPlane(
                handle.dispatcher,
                handle.resource_manager,
                handle.loop,
                blob_server=handle.blob_server,
            ),
            Settings({"rest.port": "0"}),
            SystemClock(),
            name="held",
        )
        try:
            server.start()
            connection = find_connection(None, print).connection
            client = RestClient(connection.address, connection.token)

            def held() -> dict[str, Any] | None:
                (found,) = client.get_object("/taskmanagers")["taskmanagers"]
                return found.get("heldInterpreterLock")

            wait_until(lambda: held() is not None, WAIT_S)
            name = client.get_object("/taskmanagers")["taskmanagers"][0]["id"]
            seen.append(client.get_object(path_of("taskmanagers", name))["heldInterpreterLock"])
            lines.extend(plain_lines(JobReader(client, job_id.hex()).read()))
            (tmp_path / PIPE).open("wb").close()
            wait_until(lambda: held() is None, WAIT_S)
        finally:
            server.close()

    assert run(tmp_path, settings, caplog, look) is JobStatus.FINISHED
    (held,) = seen
    assert held["function"].startswith(f"hold_the_lock ({__file__}:")
    assert held["duration"] > 0
    (told,) = (line for line in lines if "its interpreter lock is held for" in line)
    assert f"in hold_the_lock ({__file__}:" in told


def test_a_lock_that_is_held_for_longer_than_its_bound_counts_as_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**SETTINGS, "headrace.heartbeat.held-lock-timeout": "6 s"}
    assert run(tmp_path, settings, caplog) is JobStatus.FAILED
    assert any("'headrace.heartbeat.held-lock-timeout' allows" in text for text in caplog.messages)

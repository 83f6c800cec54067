"""Logs of TaskManagers whose files the driver cannot read: folders of their own stand for other hosts."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.process.log_files import private_folder
from headrace.core.randomness import system_random
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.rest.client import RestClient, path_of
from headrace.rest.client_errors import RestRefusedError
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.home.connections import find_connection
from headrace.rest.rest_server import RestServer
from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import ProcessDriver, process_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

WAIT_S = 60
SETTINGS = {
    "taskmanager.memory.network.min": "32mb",
    "taskmanager.memory.network.max": "32mb",
    "heartbeat.interval": "200 ms",
    "restart-strategy.type": "none",
}
WORDS = "words that only a function of the user's says"


def speak(value: int) -> int:
    if value == 0:
        logging.getLogger("mine").warning(WORDS)
    return value


def job() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=100)
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .map(speak, Types.LONG())
        .sink_to(DiscardingSink())
    )
    return generate_job_graph(
        env.get_stream_graph(), JobId.generate(system_random()), Settings(SETTINGS)
    )


@dataclass
class RemoteLogs:
    """A cluster with one TaskManager, which writes where the driver does not look."""

    handle: ClusterHandle
    driver: ProcessDriver
    rest: RestClient
    folder: Path
    task_manager: str
    own_log: Path

    def read(self) -> str:
        """Its log, over REST."""
        pieces = self.rest.text(path_of("taskmanagers", self.task_manager, "log"))
        return b"".join(piece.content for piece in pieces).decode()

    def kill(self) -> None:
        """End it as the kernel does, and wait until the cluster has noticed."""
        (process,) = self.driver.live
        process.kill()
        wait_until(lambda: self.rest.get_object("/overview")["taskmanagers"] == 0, WAIT_S)


@contextlib.contextmanager
def running(
    scratch: Path, patch: pytest.MonkeyPatch, settings: dict[str, str] | None = None
) -> Iterator[RemoteLogs]:
    patch.setenv("HEADRACE_HOME", str(scratch / "home"))
    folder = private_folder(scratch / "driver-logs")
    chosen = {**SETTINGS, **(settings or {})}
    with process_cluster(scratch, 1, chosen, folder) as (handle, driver):
        server = RestServer(
            ControlPlane(
                handle.dispatcher,
                handle.resource_manager,
                handle.loop,
                blob_server=handle.blob_server,
            ),
            Settings({"rest.port": "0", "web.refresh-interval": "10 ms"}),
            SystemClock(),
            name="logs",
        )
        try:
            server.start()
            found = find_connection(None, print).connection
            rest = RestClient(found.address, found.token)
            handle.submit(job())
            wait_until(lambda: rest.get_object("/overview")["taskmanagers"] == 1, WAIT_S)
            name = rest.get_object("/taskmanagers")["taskmanagers"][0]["id"]
            own_log = scratch / name / "logs" / f"taskmanager-{name}.log"
            wait_until(lambda: WORDS in own_log.read_text(), WAIT_S)
            yield RemoteLogs(handle, driver, rest, folder, name, own_log)
        finally:
            server.close()


def test_the_log_of_a_task_manager_of_another_host_is_read_over_rest_after_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, monkeypatch) as logs:
        copy = logs.folder / logs.own_log.name
        wait_until(lambda: copy.exists() and WORDS in copy.read_text(), WAIT_S)
        assert copy.stat().st_mode & 0o777 == 0o600
        logs.kill()
        logs.own_log.unlink()
        listed = logs.rest.get_object(path_of("taskmanagers", logs.task_manager, "logs"))["logs"]
        assert logs.own_log.name in [each["name"] for each in listed]
        assert WORDS in logs.read()


def test_where_nothing_is_copied_the_answer_names_host_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, monkeypatch, {"headrace.logs.copy-size": "0b"}) as logs:
        assert WORDS in logs.read(), "it answers as long as it lives"
        logs.kill()
        assert list(logs.folder.glob("taskmanager-*")) == []
        with pytest.raises(RestRefusedError) as refused:
            logs.read()
        assert refused.value.status == 500
        assert f"127.0.0.1:{logs.own_log.parent}" in str(refused.value)


def test_a_task_manager_that_is_released_leaves_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No heartbeat comes while the job runs: the lines are copied when it is asked to stop.
    settings = {
        "heartbeat.interval": "1 h",
        "heartbeat.timeout": "2 h",
        "resourcemanager.taskmanager-timeout": "200 ms",
    }
    with running(tmp_path, monkeypatch, settings) as logs:
        for each in logs.rest.get_object("/jobs")["jobs"]:
            logs.rest.patch(path_of("jobs", each["id"]), mode="cancel")
        wait_until(lambda: logs.rest.get_object("/overview")["taskmanagers"] == 0, WAIT_S)
        copy = logs.folder / logs.own_log.name
        wait_until(lambda: copy.exists() and bool(copy.read_text()), WAIT_S)
        assert WORDS in copy.read_text()

"""Jobs that have ended, seen again: by their cluster, in their archives, and by a history server as a process."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestRefusedError
from headrace.rest.history.archive_file import read_index
from headrace.rest.history.archive_storage import list_archives, open_archive
from headrace.rest.history.history_server import HistoryServer
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.unit.rest.golden_shapes import assert_golden

pytestmark = pytest.mark.integration


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    return tmp_path / "archives"


@pytest.fixture
def executor(
    tmp_path: Path, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MiniClusterExecutor]:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    settings = {
        "rest.enabled": "true",
        "rest.port": "0",
        "jobmanager.archive.fs.dir": str(archives),
    }
    with MiniClusterExecutor(slot_count=2, settings=settings) as one:
        yield one


def run_program(folder: Path, fails_at: int = -1) -> str:
    """Count numbers, and return the id of the job."""

    def counted(number: int) -> int:
        if number == fails_at:
            raise ValueError(f"{number} is not wanted")
        return number + 1

    env = StreamExecutionEnvironment.get_execution_environment()
    settings = {
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "pipeline.global-job-parameters.password": "hunter2",
        "restart-strategy.type": "none",
    }
    env.configure(Configuration.from_dict(settings))
    env.set_parallelism(2)
    numbers = env.from_collection(list(range(2_000)), type_info=Types.LONG())
    keyed = numbers.key_by(lambda n: n % 4, key_type=Types.LONG())
    keyed.map(counted, output_type=Types.LONG()).print()
    client = env.execute_async("numbers")
    job = str(client.get_job_id())
    cluster = RestClient(find_connection(None, print).connection.address, token())
    wait_until(lambda: cluster.get(f"/jobs/{job}/status")["status"] in ("FINISHED", "FAILED"))
    return job


def token() -> str:
    return find_connection(None, print).connection.token


def paths_of(archives: Path) -> list[str]:
    """Return all paths of the one archive."""
    (archive,) = list_archives(str(archives))
    with open_archive(archive) as file:
        read_index(archive.uri, file)
        return [entry["path"] for entry in json.loads(file.read(0, file.size_bytes))["archive"]]


def without_now(answer: Any) -> Any:
    """Return an answer without the moment at which it was given."""
    if isinstance(answer, dict):
        return {name: without_now(value) for name, value in answer.items() if name != "now"}
    return [without_now(each) for each in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize("fails_at", [-1, 1_500])
def test_a_history_server_says_of_a_job_what_its_cluster_said(
    executor: MiniClusterExecutor, archives: Path, tmp_path: Path, fails_at: int
) -> None:
    job = run_program(tmp_path, fails_at)
    wait_until(lambda: (archives / job).exists())
    cluster = RestClient(executor.rest_address, token())
    paths = paths_of(archives)
    said = {path: cluster.get(path) for path in paths}
    executor.close()

    settings = {"historyserver.archive.fs.dir": str(archives), "historyserver.web.port": "0"}
    server = HistoryServer(Settings(settings), SystemClock())
    try:
        assert server.first_look.wait(30)
        history = RestClient(server.address, token())
        found = {path: history.get(path) for path in paths}
    finally:
        server.close()
    assert without_now(found) == without_now(said)
    details = found[f"/jobs/{job}"]
    assert details["state"] == ("FINISHED" if fails_at < 0 else "FAILED")
    for vertex in details["vertices"]:
        last = vertex["parallelism"] - 1
        assert f"/jobs/{job}/vertices/{vertex['id']}/subtasks/{last}/attempts/0" in paths
    if fails_at < 0:
        records = [vertex["metrics"]["write-records"] for vertex in details["vertices"]]
        assert 2_000 in records
    else:
        (failure,) = found[f"/jobs/{job}/exceptions"]["exceptionHistory"]["entries"]
        assert "1500 is not wanted" in failure["stacktrace"]
    assert "hunter2" not in str(found)
    assert_golden("GET /jobs/{jobid}/metrics-history", found[f"/jobs/{job}/metrics-history"])


def test_a_job_that_ends_with_its_cluster_is_archived(
    executor: MiniClusterExecutor, archives: Path
) -> None:
    GATES["never"] = Gate(0)
    env = StreamExecutionEnvironment.get_execution_environment()
    source = GatedSource("never", None)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()).print()
    job = str(env.execute_async("endless").get_job_id())
    executor.close()
    (archive,) = list_archives(str(archives))
    assert archive.job == job
    with open_archive(archive) as file:
        assert b'"state":"CANCELED"' in bytes(read_index(archive.uri, file).overview)


def test_the_command_serves_archives_until_it_is_told_to_end(
    executor: MiniClusterExecutor, archives: Path, tmp_path: Path
) -> None:
    job = run_program(tmp_path)
    executor.close()
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", "history-server", str(archives), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().partition(": ")[2].strip()
            client = RestClient(address, find_connection(address, print).connection.token)
            wait_until(
                lambda: job in [each["jid"] for each in client.get("/jobs/overview")["jobs"]]
            )
            assert client.get(f"/jobs/{job}")["name"] == "numbers"
            assert client.get("/config")["features"]["web-history"] is True
            with pytest.raises(RestRefusedError):
                client.patch(f"/jobs/{job}", mode="cancel")
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        finally:
            process.kill()
        assert "all archives are kept" in process.stdout.read()
    assert process.returncode == 0
    assert (archives / job).exists()

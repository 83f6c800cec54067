"""PerJobExecutor: it starts a daemon for a job, and leaves nothing of it where the job is not taken."""

import json
import os
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.cli.daemon import daemon_process
from headrace.cli.daemon.daemon_process import DaemonFailedError
from headrace.cli.per_job_executor import PerJobExecutor
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.ids import JobId
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.rest.client_errors import RestUnreachableError
from headrace.rest.home.connections import ClusterConnection, write_connection

READY = """
import json, os, sys, threading
told = json.loads(sys.stdin.read())
with open("told.json", "w") as file:
    json.dump({**told, "pid": os.getpid()}, file)
with open(told["report_descriptor"], "w") as out:
    out.write(json.dumps({"cluster": {"connection_file": "CONNECTION"}}) + "\\n")
threading.Event().wait()
"""
FAILED = "import sys; sys.stdin.read(); print('no Java here'); sys.exit(3)"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(daemon_process, "_MODULE", "stand_in_for_a_cluster")
    return tmp_path / "home"


def job(settings: dict[str, str]) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1], type_info=Types.LONG()).print()
    return generate_job_graph(env.get_stream_graph(), JobId(b"j" * 16), Settings(settings))


def test_nothing_is_left_of_a_cluster_that_did_not_take_the_job(home: Path) -> None:
    connection = write_connection(ClusterConnection("http://127.0.0.1:1", "the-token"))
    script = READY.replace("CONNECTION", str(connection))
    Path("stand_in_for_a_cluster.py").write_text(script)
    executor = PerJobExecutor(Settings({"rest.retry.max-attempts": "1"}))
    with pytest.raises(RestUnreachableError):
        executor.submit(job({"pipeline.name": "mine"}))
    told = json.loads(Path("told.json").read_text())
    assert told["duty"]["type"] == "RunJobCluster"
    assert told["settings"]["pipeline.name"] == "mine"
    assert "execution.target" not in told["settings"]
    with pytest.raises(ProcessLookupError):
        os.kill(told["pid"], 0)
    assert list((home / "logs").iterdir()) == []


def test_a_cluster_that_does_not_start_says_why() -> None:
    Path("stand_in_for_a_cluster.py").write_text(FAILED)
    with pytest.raises(DaemonFailedError, match="no Java here"):
        PerJobExecutor(Settings({})).submit(job({}))


@pytest.mark.parametrize("given", ["the executor", "the program"])
def test_high_availability_is_refused_with_the_mode_that_has_it(given: str, tmp_path: Path) -> None:
    settings = {"high-availability.storageDir": str(tmp_path / "ha")}
    of_executor, of_program = (settings, {}) if given == "the executor" else ({}, settings)
    with pytest.raises(ConfigurationError, match="headrace run -d --supervise"):
        PerJobExecutor(Settings(of_executor)).submit(job(of_program))
    assert not (tmp_path / "home").exists()


def test_no_job_is_taken_after_its_end() -> None:
    executor = PerJobExecutor(Settings({}))
    executor.close()
    executor.close()
    with pytest.raises(HostError, match="closed"):
        executor.submit(job({}))


def test_the_default_parallelism_is_known_before_there_is_a_cluster() -> None:
    assert PerJobExecutor(Settings({"parallelism.default": "3"})).known_parallelism() == 3
    assert PerJobExecutor(Settings({"headrace.spark.slots": "5"})).default_parallelism() == 5
    assert PerJobExecutor(Settings({})).default_parallelism() == os.cpu_count()
    remote = PerJobExecutor(Settings({"headrace.spark.master": "spark://host:7077"}))
    assert remote.default_parallelism() == 1

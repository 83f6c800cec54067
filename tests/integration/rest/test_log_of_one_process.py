"""The log of a cluster in one process: written where its settings ask for one, and answered over REST."""

import logging
from pathlib import Path

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.errors import ConfigurationError
from headrace.rest.client import RestClient, path_of
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor

pytestmark = pytest.mark.integration

REST = {"rest.enabled": "true", "rest.port": "0"}


def run_program() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection([1, 2]).map(lambda number: number + 1).print()
    env.execute("printing")


def text_of(rest: RestClient, path: str) -> str:
    return b"".join(piece.content for piece in rest.text(path)).decode()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))


def test_with_rest_the_log_of_the_process_is_answered_and_goes_with_the_cluster() -> None:
    with MiniClusterExecutor(slot_count=1, settings=REST) as executor:
        run_program()
        found = find_connection(None, print).connection
        rest = RestClient(found.address, found.token)
        listed = [one["name"] for one in rest.get_object("/jobmanager/logs")["logs"]]
        log = text_of(rest, "/jobmanager/log")
        manager = rest.get_object("/taskmanagers")["taskmanagers"][0]["id"]
        path = path_of("taskmanagers", manager)
        own = [one["name"] for one in rest.get_object(f"{path}/logs")["logs"]]
        told = text_of(rest, f"{path}/log")
        printed = text_of(rest, f"{path}/stdout")
        folder = executor.cluster.handle.log_folder
        assert folder is not None and folder.is_dir()
    assert {"jobmanager.log", "jobmanager.out"} <= set(listed)
    assert "job printing (" in log and "is FINISHED" in log
    assert sorted(own) == [f"taskmanager-{manager}.log", f"taskmanager-{manager}.out"]
    assert told.startswith("This TaskManager runs in the JobManager's process")
    assert "/jobmanager/log" in told and told.count("\n") == 1
    assert printed == told
    assert not folder.exists()


def test_a_named_folder_is_obeyed_without_rest_and_keeps_the_log(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    handlers = list(logging.getLogger("headrace").handlers)
    for _ in range(2):
        with MiniClusterExecutor(slot_count=1, settings={"env.log.dir": str(logs)}) as executor:
            assert executor.rest_address == ""
            run_program()
    folders = sorted(logs.iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "jobmanager.log").read_text().count("is FINISHED") == 1
        (manager,) = folder.glob("taskmanager-*.log")
        assert "jobmanager.log" in manager.read_text()
        assert manager.stat().st_mode & 0o777 == 0o600
    assert logging.getLogger("headrace").handlers == handlers


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    settings = {"env.log.dir": str(tmp_path / "file" / "logs")}
    with (
        pytest.raises(ConfigurationError, match=r"env\.log\.dir.*no folder can be created there"),
        MiniClusterExecutor(slot_count=1, settings=settings),
    ):
        pytest.fail("it has started")


def test_without_either_nothing_is_written() -> None:
    with MiniClusterExecutor(slot_count=1) as executor:
        run_program()
        assert executor.cluster.handle.log_folder is None

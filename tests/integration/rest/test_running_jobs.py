"""Jobs of a cluster in this process, seen and steered over REST as by someone who did not start them."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.ids import JobId
from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestRefusedError
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.integration.rest.counting_program import (
    SETTINGS,
    Program,
    await_running,
    completed,
    vertices,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniClusterExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        with MiniClusterExecutor(slot_count=2, settings=SETTINGS) as one:
            yield one


@pytest.fixture(scope="module")
def rest(executor: MiniClusterExecutor) -> RestClient:
    """A client that has found the cluster by its connection file, as the command line does."""
    found = find_connection(None, print).connection
    assert found.address == executor.rest_address
    return RestClient(found.address, found.token)


@pytest.fixture
def program(rest: RestClient, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Program]:
    started = Program(request.node.name, tmp_path)
    yield started
    ended = ("FINISHED", "CANCELED", "FAILED")
    if rest.get(f"{started.job}/status")["status"] not in ended:
        rest.patch(started.job, mode="cancel")
        wait_until(lambda: rest.get(f"{started.job}/status")["status"] in ended)


def test_a_job_that_someone_else_started_is_seen_with_its_records(
    rest: RestClient, program: Program
) -> None:
    await_running(rest, program.job)
    program.gate.open_to(100)
    wait_until(lambda: vertices(rest, program.job)[-1]["metrics"]["read-records"] == 100)
    source, counter = vertices(rest, program.job)
    assert source["name"].startswith("Source: numbers")
    assert counter["parallelism"] == 2
    details = rest.get(f"{program.job}/vertices/{counter['id']}")
    assert [each["status"] for each in details["subtasks"]] == ["RUNNING"] * 2
    assert all(":" in each["endpoint"] for each in details["subtasks"])
    assert sum(each["metrics"]["read-records"] for each in details["subtasks"]) == 100
    found = rest.get(f"{program.job}/vertices/{counter['id']}/subtasks/metrics", get="numRecordsIn")
    assert found[0]["sum"] == 100
    (plan,) = [
        node for node in rest.get(f"{program.job}/plan")["plan"]["nodes"] if "inputs" in node
    ]
    assert (plan["id"], plan["inputs"][0]["ship_strategy"]) == (counter["id"], "HASH")
    overview = rest.get("/jobs/overview")["jobs"]
    (listed,) = [each for each in overview if program.job.endswith(each["jid"])]
    assert (listed["state"], listed["tasks"]["running"]) == ("RUNNING", 4)


def test_secrets_of_a_program_are_masked(rest: RestClient, program: Program) -> None:
    found = rest.get(f"{program.job}/config")
    assert "hunter2" not in str(found)
    assert found["settings"]["pipeline.global-job-parameters.password"] == "******"
    assert found["execution-config"]["job-parallelism"] == 2


def test_a_checkpoint_is_asked_for_and_shown_with_its_subtasks(
    rest: RestClient, program: Program
) -> None:
    await_running(rest, program.job)
    trigger = rest.post(f"{program.job}/checkpoints", {})["request-id"]
    number = completed(rest, f"{program.job}/checkpoints/{trigger}")["checkpointId"]
    wait_until(lambda: rest.get(f"{program.job}/checkpoints")["counts"]["completed"] == 1)
    statistics = rest.get(f"{program.job}/checkpoints")
    assert [each["id"] for each in statistics["history"]] == [number]
    assert f"/chk-{number}" in statistics["latest"]["completed"]["external_path"]
    counter = vertices(rest, program.job)[-1]["id"]
    details = rest.get(f"{program.job}/checkpoints/details/{number}")
    assert details["tasks"][counter]["num_acknowledged_subtasks"] == 2
    subtasks = rest.get(f"{program.job}/checkpoints/details/{number}/subtasks/{counter}")[
        "subtasks"
    ]
    assert [each["className"] for each in subtasks] == ["completed"] * 2
    assert rest.get(f"{program.job}/checkpoints/config")["interval"] == 3_600_000
    trigger = rest.post(f"{program.job}/checkpoints", {"checkpointType": "FULL"})["request-id"]
    assert completed(rest, f"{program.job}/checkpoints/{trigger}")["checkpointId"] == number + 1


def test_a_job_is_stopped_with_a_savepoint(
    rest: RestClient, program: Program, tmp_path: Path
) -> None:
    await_running(rest, program.job)
    body = {"targetDirectory": str(tmp_path / "savepoints")}
    trigger = rest.post(f"{program.job}/stop", body)["request-id"]
    location = completed(rest, f"{program.job}/savepoints/{trigger}")["location"]
    assert Path(location.removeprefix("file:"), "_metadata").exists()
    wait_until(lambda: rest.get(f"{program.job}/status")["status"] == "FINISHED")
    result = rest.get(f"{program.job}/execution-result")["job-execution-result"]
    assert result["application-status"] == "SUCCEEDED"
    disposal = rest.post("/savepoint-disposal", {"savepoint-path": location})["request-id"]
    assert completed(rest, f"/savepoint-disposal/{disposal}") == {}
    assert not Path(location.removeprefix("file:")).exists()


def test_a_job_is_cancelled_by_someone_else(rest: RestClient, program: Program) -> None:
    await_running(rest, program.job)
    rest.patch(program.job, mode="cancel")
    wait_until(lambda: rest.get(f"{program.job}/status")["status"] == "CANCELED")
    wait_until(lambda: rest.get(program.job)["state"] == "CANCELED")
    found = rest.get(program.job)
    assert found["end-time"] >= found["start-time"] > 0
    assert {each["status"] for each in found["vertices"]} == {"CANCELED"}
    # It is what was wanted already: Flink accepts that again, and refuses it of jobs that ended otherwise.
    assert rest.patch(program.job, mode="cancel") == {}


def test_a_failure_names_the_users_line_and_the_attempt_that_failed(
    rest: RestClient, executor: MiniClusterExecutor, tmp_path: Path
) -> None:
    program = Program("a failing job", tmp_path, fails_at=10)
    await_running(rest, program.job)
    program.gate.open_to(20)
    wait_until(lambda: rest.get(f"{program.job}/status")["status"] == "FAILED")
    wait_until(lambda: rest.get(program.job)["state"] == "FAILED")
    with pytest.raises(RestRefusedError, match=r"another terminal state.*status 409"):
        rest.patch(program.job, mode="cancel")
    entries = rest.get(f"{program.job}/exceptions")["exceptionHistory"]["entries"]
    assert len(entries) == 2, "one for the restart and one for the end"
    assert "10 is not wanted" in entries[0]["stacktrace"].partition("\n")[0]
    assert "counting_program.py" in entries[0]["stacktrace"].partition("\n")[0]
    assert entries[0]["taskManagerId"]
    counter = rest.get(program.job)["vertices"][-1]["id"]
    attempts = [
        rest.get(f"{program.job}/vertices/{counter}/subtasks/{index}/attempts/0")
        for index in (0, 1)
    ]
    assert "FAILED" in {each["status"] for each in attempts}
    cause = rest.get(f"{program.job}/execution-result")["job-execution-result"]["failure-cause"]
    assert "10 is not wanted" in cause["stack-trace"]


def test_a_task_manager_is_shown_with_its_slots_threads_and_metrics(
    rest: RestClient, program: Program
) -> None:
    await_running(rest, program.job)
    listed = rest.get("/taskmanagers")["taskmanagers"]
    assert sum(each["slotsNumber"] for each in listed) == 2
    found = rest.get(f"/taskmanagers/{listed[0]['id']}")
    assert [each["jobId"] for each in found["allocatedSlots"]] == [
        program.job.removeprefix("/jobs/")
    ]
    assert found["metrics"]["heapUsed"] > 1 << 20
    threads = rest.get(f"/taskmanagers/{listed[0]['id']}/thread-dump")["threadInfos"]
    assert any(
        "count" in each["threadName"].lower() or "KEYED" in each["threadName"] for each in threads
    )
    names = {each["id"] for each in rest.get(f"/taskmanagers/{listed[0]['id']}/metrics")}
    assert {"Status.JVM.CPU.Time", "Status.JVM.Threads.Count"} <= names


def test_a_flame_graph_shows_the_users_function(rest: RestClient, tmp_path: Path) -> None:
    program = Program("a slow job", tmp_path, pause_s=0.001)
    await_running(rest, program.job)
    program.gate.open_to(1_000_000)
    path = f"{program.job}/vertices/{vertices(rest, program.job)[-1]['id']}/flamegraph"
    assert rest.get(path)["endTimestamp"] == -3
    wait_until(lambda: rest.get(path)["endTimestamp"] > 0)
    names = frames_of(rest.get(path)["data"])
    assert any("counting_program" in name and "process_element" in name for name in names), names
    rest.patch(program.job, mode="cancel")
    wait_until(lambda: rest.get(f"{program.job}/status")["status"] == "CANCELED")


def frames_of(node: dict[str, Any]) -> list[str]:
    return [node["name"], *(name for child in node["children"] for name in frames_of(child))]


def test_an_unknown_job_is_said_to_be_unknown(rest: RestClient) -> None:
    with pytest.raises(RestRefusedError, match="not found") as refused:
        rest.get(f"/jobs/{JobId(b'?' * 16).hex()}")
    assert refused.value.status == 404


def test_each_slot_of_a_task_manager_counts_the_tasks_of_its_own_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    settings = SETTINGS | {
        "rest.authentication": "none",
        "taskmanager.numberOfTaskSlots": "2",
        "parallelism.default": "1",
    }
    with MiniClusterExecutor(slot_count=1, settings=settings) as executor:
        own = RestClient(executor.rest_address, "")
        chained = Program("small", tmp_path / "small", parallelism=1)
        split = {"pipeline.operator-chaining.enabled": "false"}
        apart = Program("large", tmp_path / "large", settings=split, parallelism=1)
        expected: dict[str, int] = {}
        for program in (chained, apart):
            await_running(own, program.job)
            found = vertices(own, program.job)
            expected[program.job.removeprefix("/jobs/")] = sum(one["parallelism"] for one in found)
        assert len(set(expected.values())) == 2
        (listed,) = own.get("/taskmanagers")["taskmanagers"]
        path = f"/taskmanagers/{listed['id']}"

        def counted() -> dict[str, int]:
            slots = own.get(path)["allocatedSlots"]
            return {each["jobId"]: each["assignedTasks"] for each in slots}

        wait_until(lambda: counted() == expected)
        wait_until(lambda: own.get(path)["assignedTasks"] == sum(expected.values()))
        for program in (chained, apart):
            own.patch(program.job, mode="cancel")


def test_without_rest_nothing_listens_and_no_address_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    caplog.set_level(logging.INFO)
    for is_enabled in (True, False):
        caplog.clear()
        settings = SETTINGS | {"rest.enabled": str(is_enabled).lower(), "rest.port": str(port)}
        with MiniClusterExecutor(slot_count=1, settings=settings) as executor:
            assert bool(executor.rest_address) is is_enabled
            assert ("the dashboard is at" in caplog.text) is is_enabled
            with socket.socket() as probe:
                assert (probe.connect_ex(("127.0.0.1", port)) == 0) is is_enabled

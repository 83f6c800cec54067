"""Flink's own command `flink`, unchanged, before jobs of a cluster that somebody else started."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.elements import MAX_WATERMARK
from headrace.rest.client import RestClient
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.flink.flink_distribution import PYTHON, FlinkCommand
from tests.integration.rest.counting_program import (
    SETTINGS,
    Program,
    await_running,
    completed,
    vertices,
)

NO_WATERMARK = -(2**63)
JAVA_PROGRAM = """\
import os
from py4j.java_gateway import GatewayParameters, JavaGateway
gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(os.environ["PYFLINK_GATEWAY_PORT"])))
flink = gateway.jvm.org.apache.flink
env = flink.streaming.api.environment.StreamExecutionEnvironment.getExecutionEnvironment()
env.fromSequence(1, 3).print()
env.executeAsync("of Java")
"""


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        with MiniClusterExecutor(slot_count=2, settings=SETTINGS):
            yield RestClient.of(find_connection(None, print))


@pytest.fixture
def flink(rest: RestClient, tmp_path: Path) -> FlinkCommand:
    found = find_connection(None, print).connection
    return FlinkCommand(found.address, tmp_path, found.token)


@pytest.fixture
def program(rest: RestClient, tmp_path: Path) -> Iterator[Program]:
    started = Program("a job of somebody", tmp_path)
    await_running(rest, started.job)
    started.gate.open_to(40)
    yield started
    if status(rest, started) == "RUNNING":
        rest.patch(started.job, mode="cancel")
    wait_until(lambda: status(rest, started) in ("FINISHED", "CANCELED"))


def status(rest: RestClient, program: Program) -> str:
    return rest.get(f"{program.job}/status")["status"]


def job_id(program: Program) -> str:
    return program.job.removeprefix("/jobs/")


def format_of(rest: RestClient, program: Program) -> str:
    """The format of the last savepoint."""
    latest = rest.get(f"{program.job}/checkpoints")["latest"]
    return latest["savepoint"]["savepointFormat"]


def path_in(printed: str) -> Path:
    (line,) = [one for one in printed.splitlines() if one.startswith("Savepoint completed. Path: ")]
    return Path(line.partition("Path: file:")[2])


def test_it_lists_jobs_by_state_and_cancels_one(
    flink: FlinkCommand, rest: RestClient, program: Program
) -> None:
    line = f" : {job_id(program)} : a job of somebody "
    assert f"{line}(RUNNING)" in flink.done("list")
    assert f"{line}(RUNNING)" in flink.done("list", "-r")
    scheduled = flink.done("list", "-s")
    assert "No scheduled jobs." in scheduled and line not in scheduled
    assert f"Cancelled job {job_id(program)}." in flink.done("cancel", job_id(program))
    wait_until(lambda: status(rest, program) == "CANCELED")
    assert f"{line}(CANCELED)" in flink.done("list", "-a").partition(" Terminated Jobs ")[2]


def test_it_cancels_a_job_with_a_savepoint(
    flink: FlinkCommand, rest: RestClient, program: Program, tmp_path: Path
) -> None:
    printed = flink.done("cancel", "-s", str(tmp_path / "savepoints"), job_id(program))
    (savepoint,) = (tmp_path / "savepoints").iterdir()
    assert f"Savepoint stored in file:{savepoint}." in printed
    assert (savepoint / "_metadata").is_file()
    wait_until(lambda: status(rest, program) == "CANCELED")


def test_it_takes_a_savepoint_and_deletes_it(
    flink: FlinkCommand, program: Program, tmp_path: Path
) -> None:
    savepoint = path_in(flink.done("savepoint", job_id(program), str(tmp_path / "savepoints")))
    assert (savepoint / "_metadata").is_file()
    assert "disposed." in flink.done("savepoint", "-d", str(savepoint))
    assert not savepoint.exists()


def test_it_begins_a_savepoint_without_waiting_and_prints_its_trigger_id(
    flink: FlinkCommand, rest: RestClient, program: Program, tmp_path: Path
) -> None:
    printed = flink.done("savepoint", "-detached", job_id(program), str(tmp_path / "savepoints"))
    begun = re.search("Successfully trigger manual savepoint, triggerId: ([0-9a-f]{32})", printed)
    assert begun is not None, printed
    operation = completed(rest, f"{program.job}/savepoints/{begun[1]}")
    assert (Path(operation["location"].removeprefix("file:")) / "_metadata").is_file()


def test_it_takes_a_native_savepoint_and_stops_with_one(
    flink: FlinkCommand, rest: RestClient, program: Program, tmp_path: Path
) -> None:
    folder = str(tmp_path / "savepoints")
    first = path_in(flink.done("savepoint", "-type", "native", job_id(program), folder))
    assert format_of(rest, program) == "NATIVE"
    printed = flink.done("stop", "-type", "native", "-p", folder, job_id(program))
    assert "with a NATIVE savepoint" in printed
    second = path_in(printed)
    assert first != second
    assert all((savepoint / "_metadata").is_file() for savepoint in (first, second))
    wait_until(lambda: status(rest, program) == "FINISHED")
    assert format_of(rest, program) == "NATIVE"


def test_it_takes_a_checkpoint(flink: FlinkCommand, rest: RestClient, program: Program) -> None:
    printed = flink.done("checkpoint", "-full", job_id(program))
    number = rest.get(f"{program.job}/checkpoints")["latest"]["completed"]["id"]
    assert f"Checkpoint(FULL) {number} for job {job_id(program)} completed." in printed


@pytest.mark.parametrize(
    ("option", "word", "watermark"),
    [((), "Suspending", NO_WATERMARK), (("-d",), "Draining", MAX_WATERMARK)],
)
def test_it_stops_a_job_with_a_savepoint(
    flink: FlinkCommand,
    rest: RestClient,
    program: Program,
    tmp_path: Path,
    option: tuple[str, ...],
    word: str,
    watermark: int,
) -> None:
    folder = str(tmp_path / "savepoints")
    printed = flink.done("stop", *option, "-p", folder, job_id(program))
    assert f'{word} job "{job_id(program)}" with a CANONICAL savepoint.' in printed
    assert (path_in(printed) / "_metadata").is_file()
    wait_until(lambda: status(rest, program) == "FINISHED")
    # Drained, its event time has come to its end; after the other stop it goes on where it was.
    path = f"{program.job}/vertices/{vertices(rest, program.job)[1]['id']}/watermarks"
    assert {int(each["value"]) for each in rest.get(path)} == {watermark}


def test_it_prints_why_something_failed_and_ends_with_1(
    flink: FlinkCommand, program: Program, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere"
    printed = flink.failed("savepoint", "-d", str(nowhere))
    assert f"there is no completed checkpoint or savepoint at {nowhere}" in printed
    unknown = "0" * 32
    assert f"there is no job {unknown} on this cluster" in flink.failed("cancel", unknown)


def test_it_is_refused_without_the_token(
    flink: FlinkCommand, rest: RestClient, tmp_path: Path
) -> None:
    stranger = FlinkCommand(find_connection(None, print).connection.address, tmp_path)
    assert "the request has no token of this cluster" in stranger.failed("list")


def test_its_run_is_told_that_a_java_job_graph_cannot_run_here(
    flink: FlinkCommand, rest: RestClient, tmp_path: Path
) -> None:
    program = tmp_path / "java_program.py"
    program.write_text(JAVA_PROGRAM)
    ran = flink.run("run", "-d", "-pyclientexec", PYTHON, "-py", str(program))
    assert ran.returncode == 31, ran.stdout
    assert "cannot run a Java job graph" in ran.stdout

"""Commands against a real cluster and a job that somebody else started: they find it by its connection file."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cli.main import main
from headrace.common import Configuration
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.unit.cli.restored_logs import restored_logs

pytestmark = pytest.mark.integration

SETTINGS = {
    "rest.enabled": "true",
    "rest.port": "0",
    "web.refresh-interval": "20 ms",
    "metrics.fetcher.update-interval": "20 ms",
    "rest.flamegraph.enabled": "true",
    "rest.flamegraph.num-samples": "5",
}

Command = Callable[..., tuple[str, str, Any]]


@pytest.fixture(scope="module", autouse=True)
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniClusterExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        with MiniClusterExecutor(slot_count=2, settings=SETTINGS) as one:
            yield one


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    with restored_logs():
        yield


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command; its output, its messages and its exit code."""

    def run(*arguments: str) -> tuple[str, str, Any]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capfd.readouterr()
        return captured.out, captured.err, ended.value.code

    return run


def refuse_13(number: int) -> int:
    if number == 13:
        raise ValueError("13 is not wanted")
    return number


class Program:
    """Numbers that the test lets through; 13 makes it fail."""

    def __init__(self, name: str, folder: Path) -> None:
        self.gate = GATES[name] = Gate(0)
        env = StreamExecutionEnvironment.get_execution_environment()
        settings = {
            "execution.checkpointing.interval": "1 h",
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            "restart-strategy.type": "none",
        }
        env.configure(Configuration.from_dict(settings))
        env.set_parallelism(1)
        numbers = env.from_source(
            GatedSource(name, None), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
        )
        checked = numbers.rebalance().map(refuse_13, Types.LONG()).name("check")
        checked.filter(lambda n: n < 0).print()
        self.job_id = str(env.execute_async(name).get_job_id())


@pytest.fixture
def program(command: Command, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Program]:
    started = Program(request.node.name, tmp_path)
    wait_until(lambda: state_of(command, started) == "RUNNING")
    yield started
    command("cancel", started.job_id)
    wait_until(lambda: state_of(command, started) in ("FINISHED", "CANCELED", "FAILED"))


def state_of(command: Command, program: Program) -> str:
    jobs = json.loads(command("list", "--all", "--json")[0])["jobs"]
    # Answers are some milliseconds old: it may not be among them yet.
    return next((job["state"] for job in jobs if job["job-id"] == program.job_id), "")


def test_a_job_is_listed_and_cancelled(command: Command, program: Program) -> None:
    out, _, code = command("list", "-r")
    assert (f" : {program.job_id} : test_a_job_is_listed_and_cancelled (RUNNING)" in out, code) == (
        True,
        0,
    )
    out, _, code = command("cancel", program.job_id)
    assert (out.splitlines()[-1], code) == (f"Cancelled job {program.job_id}.", 0)
    wait_until(lambda: state_of(command, program) == "CANCELED")
    assert program.job_id not in command("list")[0]


def test_a_savepoint_a_checkpoint_and_a_stop_are_awaited(
    command: Command, program: Program, tmp_path: Path
) -> None:
    out, _, code = command("savepoint", "--json", program.job_id, str(tmp_path / "saved"))
    location = json.loads(out)["location"]
    assert (code, Path(location.removeprefix("file:"), "_metadata").exists()) == (0, True)
    out, _, code = command("checkpoint", program.job_id)
    assert out.splitlines()[2].endswith(f" for job {program.job_id} completed.")
    out, _, code = command("savepoint", "-d", location)
    assert (code, Path(location.removeprefix("file:")).exists()) == (0, False)
    out, _, code = command("stop", "-p", str(tmp_path / "saved"), program.job_id)
    assert (code, out.splitlines()[-1].startswith("Savepoint completed. Path: ")) == (0, True)
    wait_until(lambda: state_of(command, program) == "FINISHED")


def test_what_cannot_be_done_ends_with_1_and_says_why(command: Command, program: Program) -> None:
    _, err, code = command("savepoint", program.job_id)
    assert (code, "execution.checkpointing.savepoint-dir] is not set" in err) == (1, True)
    for unknown in (["cancel"], ["exceptions"], ["top", "--once"], ["stop", "-p", "saved"]):
        _, err, code = command(*unknown, "0" * 32)
        assert code == 1, unknown
        assert err.startswith("error: "), err


def test_the_line_that_failed_a_job_is_shown_first(command: Command, program: Program) -> None:
    program.gate.open_to(20)
    wait_until(lambda: state_of(command, program) == "FAILED")
    out, _, code = command("exceptions", program.job_id)
    first = out.splitlines()[0]
    assert first.startswith(f"{__file__}, line ")
    assert "ValueError: 13 is not wanted" in first
    assert code == 0
    (told,) = json.loads(command("exceptions", "--json", program.job_id)[0])["exceptions"]
    assert told["place"].startswith(__file__)
    assert "ValueError" in command("top", "--once", program.job_id)[0]


def test_a_running_job_is_watched(command: Command, program: Program, tmp_path: Path) -> None:
    program.gate.open_to(10)
    wait_until(
        lambda: (
            "numRecordsIn  "
            in command("metrics", "--vertex", "check", "-g", "numRecordsIn", program.job_id)[0]
        )
    )
    figures = json.loads(command("top", "--json", program.job_id)[0])
    assert [one["name"].split(" ->")[0] for one in figures["vertices"]] == [
        "Source: numbers",
        "check",
    ]
    assert (figures["state"], figures["restarts"], figures["checkpoints"]["failed"]) == (
        "RUNNING",
        0,
        0,
    )
    assert all(one["busy"] is not None for one in figures["vertices"])
    out, _, code = command("rescale-info", program.job_id)
    assert (code, "is not rescaled while it runs" in out) == (0, True)
    file = tmp_path / "check.svg"
    out, _, code = command("flamegraph", "-o", str(file), program.job_id, "check")
    assert (code, file.read_text().startswith("<svg")) == (0, True)
    assert "numRestarts" in command("metrics", program.job_id)[0]
    assert "Status." in command("metrics", "--taskmanager", "1")[0]


def test_logs_of_the_cluster_can_be_listed(command: Command) -> None:
    for of in ([], ["1"]):
        out, _, code = command("logs", "--list", "--json", *of)
        assert (code, isinstance(json.loads(out)["logs"], list)) == (0, True)


def test_the_dashboard_is_reached_with_the_token(
    command: Command, executor: MiniClusterExecutor
) -> None:
    out, _, code = command("open", "--print")
    assert code == 0
    assert out.startswith(f"{executor.rest_address}/#token=")

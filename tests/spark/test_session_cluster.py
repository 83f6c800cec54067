"""Clusters that stay, on real Spark: a session with jobs of several processes, and a program that was left running."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from testkit.waiting import wait_until
from tests.spark.programs import Program, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SQUARES = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1, 2, 3], type_info=Types.LONG())
with numbers.map(lambda n: n * n, output_type=Types.LONG()).execute_and_collect() as rows:
    print("COLLECTED", sorted(rows))
"""
ENDLESS = """
import sys
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=20),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
numbers.map(lambda n: f"number {n}", output_type=Types.STRING()).print()
env.execute(sys.argv[1])
"""
NO_UI = ("-D", "spark.ui.enabled=false")


class Commands:
    """The command line of one user, whose programs lie in `folder`."""

    def __init__(self, folder: Path, started: list[Program]) -> None:
        self._folder = folder
        self._started = started
        for name, text in (("squares.py", SQUARES), ("endless.py", ENDLESS)):
            (folder / name).write_text(text)

    def daemon(self, *arguments: str) -> Program:
        """Run a command that leaves a daemon behind, whose processes carry the mark of what is returned."""
        command = [str(Path(sys.executable).parent / "headrace"), *arguments]
        program = start(command, self._folder, {"HEADRACE_HOME": str(self._folder / "home")})
        self._started.append(program)
        assert program.wait(150) == 0, program.report()
        return program

    def __call__(self, *arguments: str) -> str:
        program = self.daemon(*arguments)
        for reader in program.readers:
            reader.join(10)
        return "".join(program.out)

    def answer(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    return Commands(tmp_path, started)


def test_a_session_runs_programs_of_several_processes_until_it_is_stopped(
    commands: Commands, tmp_path: Path
) -> None:
    session = commands.daemon("cluster", "start", "--name", "nightly", *NO_UI)
    [listed] = commands.answer("cluster", "list")["clusters"]
    assert (listed["name"], listed["kind"]) == ("nightly", "session")

    # Two processes leave a job each, and a third waits for its own.
    for name in ("first", "second"):
        told = commands("run", "-d", "--target", "session", "endless.py", name)
        assert "Job has been submitted with JobID" in told
    assert "COLLECTED [1, 4, 9]" in commands("run", "--cluster", "nightly", "squares.py")

    def running() -> dict[str, str]:
        jobs = commands.answer("list")["jobs"]
        return {job["name"]: job["jid"] for job in jobs if job["state"] == "RUNNING"}

    assert running().keys() == {"first", "second"}
    wait_until(
        lambda: commands.answer("cluster", "info")["slots-total"] == 2, what="a TaskManager each"
    )
    info = commands.answer("cluster", "info", "nightly")
    assert info["master"].startswith("local[")
    # Attached to from processes that did not submit them.
    assert "session 'nightly' takes jobs" in commands("logs")
    commands("cancel", running()["first"])
    wait_until(lambda: running().keys() == {"second"}, what="the end of the cancelled job")

    commands("cluster", "stop")
    assert commands.answer("cluster", "list") == {"clusters": []}
    session.assert_nothing_is_left()
    [logs] = (tmp_path / "home" / "logs").iterdir()
    assert "number" not in (logs / "jobmanager.log").read_text()


def test_a_program_that_was_left_running_is_followed_and_stopped_from_outside(
    commands: Commands, tmp_path: Path
) -> None:
    left = commands.daemon("run", "-d", *NO_UI, "endless.py", "mine")
    assert any("runs in process" in line for line in left.out)
    [job] = commands.answer("list")["jobs"]
    assert (job["name"], job["state"]) == ("mine", "RUNNING")
    [cluster] = commands.answer("cluster", "list")["clusters"]
    assert (cluster["name"], cluster["kind"]) == ("endless", "application")
    command_line = Path(f"/proc/{cluster['pid']}/cmdline").read_bytes()
    assert b"spark.ui.enabled" not in command_line

    [logs] = (tmp_path / "home" / "logs").iterdir()
    console = logs / "jobmanager.console.out"
    wait_until(lambda: "number 3" in console.read_text(), what="what the program prints")
    commands("savepoint", job["jid"], str(tmp_path / "savepoints"))
    commands("stop", "-p", str(tmp_path / "savepoints"), job["jid"])
    # A program ends with its jobs, and its cluster with it.
    wait_until(
        lambda: commands.answer("cluster", "list") == {"clusters": []}, what="the end of the daemon"
    )
    left.assert_nothing_is_left()

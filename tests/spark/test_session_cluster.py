"""Clusters that stay, on real Spark: a session with jobs of several processes, and a program that was left running."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from headrace.rest.client import RestClient
from testkit.waiting import wait_until
from tests.integration.high_availability.outcomes import Outcome, slack_s
from tests.integration.rest.uploads import ended, send_program
from tests.spark.commands import HEADRACE, NO_UI, Commands
from tests.spark.driver_takeovers import (
    clusters_of,
    highly_available,
    kill_beside_standby,
    kill_beside_supervisor,
)
from tests.spark.pages import cluster_of
from tests.spark.processes import children_of
from tests.spark.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

DESCRIPTOR: Final = """
import time
from pathlib import Path
from headrace import ClusterClientFactory
from headrace.client.program import Program

settings = {"execution.target": "session", "spark.ui.enabled": "false"}
descriptor = ClusterClientFactory(settings).create_cluster_descriptor()
session = descriptor.deploy_session_cluster("nightly")
with descriptor.retrieve("nightly") as cluster:
    print("SESSION", cluster.address == session.address, cluster.list_jobs())
application = descriptor.deploy_application_cluster(Program(Path("endless.py"), ("mine",)))
with application.get_cluster_client() as cluster:
    [job] = cluster.list_jobs()
    print("APPLICATION", job.name, str(job.job_id) == application.job_id, application.pid)
    cluster.shut_down_cluster()
while not Path("go-on").exists():
    time.sleep(0.05)
descriptor.kill_cluster("nightly")
print("KILLED")
"""

IN_CODE: Final = """
import sys
from headrace.common import Configuration, Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.configure(
    Configuration.from_dict({{"execution.target": "{target}", "spark.ui.enabled": "false"}})
)
numbers = env.from_collection([1, 2, 3], type_info=Types.LONG())
with numbers.map(lambda n: n * n, output_type=Types.LONG()).execute_and_collect() as rows:
    print("COLLECTED", sorted(rows))
print("LOADED", {{"pyspark", "py4j"}} & set(sys.modules))
"""
"""A program that names the target of its jobs itself."""

UPLOADED: Final = """
import sys
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3], type_info=Types.LONG())
factor = int(sys.argv[1])
numbers.map(lambda n: n * factor, output_type=Types.LONG()).print()
env.execute("uploaded")
"""


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    return Commands(tmp_path, started)


def run_in_code(commands: Commands, target: str) -> Program:
    """Run, without `headrace run`, a program that names the target of its jobs, and check what it prints."""
    (commands.folder / "in_code.py").write_text(IN_CODE.format(target=target))
    program = commands.begin(sys.executable, "in_code.py")
    assert program.wait(150) == 0, program.report()
    for reader in program.readers:
        reader.join(10)
    assert "".join(program.out) == "COLLECTED [1, 4, 9]\nLOADED set()\n", program.report()
    return program


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
    run_in_code(commands, "session")
    # A client that has nothing but REST: a process beside the driver runs what it uploads.
    rest = RestClient.of(cluster_of(tmp_path / "home"))
    jar = Path(send_program(rest, "uploaded.py", UPLOADED.encode())["filename"]).name
    job = rest.post(f"/jars/{jar}/run", {"programArgsList": ["10"]})["jobid"]
    assert ended(rest, job)["application-status"] == "SUCCEEDED"
    assert ("uploaded", "FINISHED") in [
        (one["name"], one["state"]) for one in rest.get("/jobs/overview")["jobs"]
    ]
    outputs = tmp_path / "home" / "logs"
    wait_until(
        lambda: any(
            {"10", "20", "30"} <= set(file.read_text().splitlines())
            for file in outputs.rglob("*.out")
        ),
        what="what the uploaded program prints",
    )

    assert commands.running_jobs().keys() == {"first", "second"}
    wait_until(
        lambda: commands.answer("cluster", "info")["slots-total"] == 2, what="a TaskManager each"
    )
    info = commands.answer("cluster", "info", "nightly")
    assert info["master"].startswith("local[")
    # Attached to from processes that did not submit them.
    assert "session 'nightly' accepts jobs" in commands("logs")
    commands("cancel", commands.running_jobs()["first"])
    wait_until(
        lambda: commands.running_jobs().keys() == {"second"}, what="the end of the cancelled job"
    )

    commands("cluster", "stop")
    assert commands.answer("cluster", "list") == {"clusters": []}
    session.assert_nothing_is_left()
    [logs] = (tmp_path / "home" / "logs").iterdir()
    assert "number" not in (logs / "jobmanager.log").read_text()


def test_a_program_starts_clusters_finds_them_and_ends_them(
    commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "descriptor.py").write_text(DESCRIPTOR)
    program = commands.begin(sys.executable, "descriptor.py")
    program.wait_for_line("APPLICATION mine True")
    assert "SESSION True ()" in "".join(program.out)
    names = [one["name"] for one in commands.answer("cluster", "list")["clusters"]]
    assert "nightly" in names
    (tmp_path / "go-on").touch()
    assert program.wait(100) == 0, program.report()
    assert commands.answer("cluster", "list") == {"clusters": []}
    [pid] = [line.split()[-1] for line in program.out if line.startswith("APPLICATION")]
    # It was told to end, which is not waited for, other than the end of what was killed.
    wait_until(lambda: not Path("/proc", pid).exists(), 60, "the end of the application")
    program.assert_nothing_is_left()


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param(kill_beside_standby, id="by-a-standby"),
        # Its job ends soon: Spark starts twice meanwhile.
        pytest.param(partial(kill_beside_supervisor, count=1_500), id="by-its-supervisor-alone"),
    ],
)
@pytest.mark.long
def test_a_killed_driver_is_followed(
    tmp_path: Path, started: list[Program], kill: Callable[[Path, list[Program]], Outcome]
) -> None:
    slack_before_s = slack_s()
    outcome = kill(tmp_path, started)
    print(f"the job ran again after {outcome.failover_s:.1f} s, {outcome.note}")
    assert outcome.mistakes == ()
    assert outcome.failover_s < outcome.bound_s + max(slack_before_s, slack_s())


@pytest.mark.timeout(400)
@pytest.mark.long
def test_a_standby_whose_jvm_is_killed_ends_with_its_cause_and_its_supervisor_starts_it_again(
    commands: Commands, tmp_path: Path
) -> None:
    definitions = highly_available(tmp_path)
    leader = commands.daemon("cluster", "start", "--name", "first", *definitions, *NO_UI)
    lone = commands.begin(
        HEADRACE, "cluster", "start", "--foreground", "--name", "second", *definitions, *NO_UI
    )
    wait_until(
        lambda: any("standby 'second' takes over" in line for line in lone.err), 150, "a standby"
    )
    lone.jvms()[0].kill()
    assert lone.wait() == 1, lone.report()
    assert "while this driver waited to lead" in lone.error_line()
    lone.assert_nothing_is_left()

    supervised = commands.daemon(
        "cluster", "start", "--standby", "--supervise", "--name", "third", *definitions, *NO_UI
    )
    before = clusters_of(commands)
    assert {name: one["kind"] for name, one in before.items()} == {
        "first": "session", "third": "standby",
    }  # fmt: skip
    [jvm] = [one for one in children_of(before["third"]["pid"]) if one.is_jvm]
    jvm.kill()

    def is_back() -> bool:
        # While it starts again it is listed as the session that it is a driver of.
        third = clusters_of(commands).get("third", before["third"])
        return third["kind"] == "standby" and third["pid"] != before["third"]["pid"]

    wait_until(is_back, 120, "the same standby in another process")
    after = clusters_of(commands)
    assert after.keys() == {"first", "third"}
    assert after["third"]["kind"] == "standby"
    assert after["first"] == before["first"], "the leader goes on"
    assert "COLLECTED [1, 4, 9]" in commands("run", "--cluster", "first", "squares.py")
    logs = [file.read_text() for file in tmp_path.glob("home/logs/*/*.out")]
    assert any("session 'third' ended with code 1; restarting it in 1 s" in log for log in logs)

    commands("cluster", "stop", "third")
    commands("cluster", "stop", "first")
    for program in (leader, supervised):
        program.assert_nothing_is_left()


def test_a_program_that_was_left_running_is_followed_and_stopped_from_outside(
    commands: Commands, tmp_path: Path
) -> None:
    left = commands.daemon("run", "-d", "--json", *NO_UI, "endless.py", "mine")
    told = json.loads("".join(left.out))
    [job] = commands.answer("list")["jobs"]
    assert (job["name"], job["state"]) == ("mine", "RUNNING")
    [cluster] = commands.answer("cluster", "list")["clusters"]
    assert (cluster["name"], cluster["kind"]) == ("endless", "application")
    assert told["jobs"] == [{"job-id": job["job-id"]}]
    assert (told["exit-code"], told["address"]) == (0, cluster["address"])
    command_line = Path(f"/proc/{cluster['pid']}/cmdline").read_bytes()
    assert b"spark.ui.enabled" not in command_line

    [logs] = (tmp_path / "home" / "logs").iterdir()
    console = logs / "jobmanager.console.out"
    wait_until(lambda: "number 3" in console.read_text(), what="what the program prints")
    commands("savepoint", job["job-id"], str(tmp_path / "savepoints"))
    commands("stop", "-p", str(tmp_path / "savepoints"), job["job-id"])
    # A program ends with its jobs, and its cluster with it.
    wait_until(
        lambda: commands.answer("cluster", "list") == {"clusters": []}, what="the end of the daemon"
    )
    left.assert_nothing_is_left()


def test_a_job_has_a_cluster_of_its_own_that_its_client_starts_and_that_ends_with_it(
    commands: Commands, tmp_path: Path
) -> None:
    told = run_in_code(commands, "per-job")
    wait_until(lambda: commands.answer("cluster", "list") == {"clusters": []}, what="the end of it")
    told.assert_nothing_is_left()

    left = commands.daemon("run", "-d", "--target", "per-job", *NO_UI, "endless.py", "mine")
    assert any("Job has been submitted with JobID" in line for line in left.out)
    [job] = commands.answer("list")["jobs"]
    commands("cancel", job["job-id"])
    wait_until(
        lambda: commands.answer("cluster", "list") == {"clusters": []}, what="the end with the job"
    )
    left.assert_nothing_is_left()

"""Processes that are killed or fall silent, row by row: the job ends or goes on, and nothing is left ten seconds later.

On a cluster either TaskManager may lie on either executor, so each test kills what a TaskManager depends on, and not
the first of its kind.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.architecture.floor_plan import ROOT
from tests.spark.driver_takeovers import WORKERS_END_S
from tests.spark.endless import (
    progress,
    start_endless,
    start_repeated,
    start_restarting,
    start_watched,
)
from tests.spark.processes import Process, listening_ports_of
from tests.spark.programs import CLEAN_UP_TIMEOUT_S, PATIENCE_S, Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Started = Callable[[Program], Program]

LOCAL, CLUSTER = "local[4]", "local-cluster[2,2,1024]"
ONE_CORE_EACH = "local-cluster[3,1,1024]"
"""Two TaskManagers take a whole executor each, so one executor is always without any."""
ON_CLUSTERS = [
    pytest.param(LOCAL, marks=pytest.mark.repetition("the same on a local-cluster")),
    CLUSTER,
]
"""Where another test shows the same on this machine alone."""
IMPATIENT = ("-D", "heartbeat.interval=500 ms", "-D", "heartbeat.timeout=3 s")


@pytest.fixture
def started() -> Iterator[Started]:
    """Waits until a program's job runs on two TaskManagers; whatever happens, the program ends with the test."""
    programs: list[Program] = []

    def wait_until_running(program: Program) -> Program:
        programs.append(program)
        program.wait_for_line("RUNNING")
        assert len(program.task_managers()) == 2
        return program

    yield wait_until_running
    for program in programs:
        program.end()


@pytest.fixture
def running(request: pytest.FixtureRequest, started: Started, tmp_path: Path) -> Program:
    """An endless job with two TaskManagers, running."""
    return started(start_endless(tmp_path, "--master", request.param))


def assert_the_job_failed_for_a_lost_task_manager(program: Program) -> None:
    assert program.wait() == 1
    assert "TaskManager" in program.error_line()
    program.assert_nothing_is_left()


def assert_they_end_by_themselves(
    program: Program, orphans: list[Process], timeout_s: float = CLEAN_UP_TIMEOUT_S
) -> None:
    """Within that time, and their ports with them; the caller sees that the rest lives on."""
    pids = {one.pid for one in orphans}
    assert pids
    # A process that ends is no longer told by its command line a moment before its sockets are closed.
    wait_until(
        lambda: (
            not pids & {one.pid for one in program.processes()} and not listening_ports_of(pids)
        ),
        timeout_s,
        "the workers of the killed daemon, and their ports, end",
    )


def assert_it_failed_for_a_lost_task_manager_and_the_next_one_runs(
    program: Program, number: int
) -> None:
    """`number`: how many jobs of the program have failed then."""

    def told(word: str) -> list[str]:
        return [line for line in list(program.out) if line.startswith(word)]

    wait_until(
        lambda: len(told("RUNNING")) > number or program.process.poll() is not None,
        PATIENCE_S,
        f"the job runs after {number} failures",
    )
    assert len(told("FAILED")) == number, program.report()
    assert "TaskManager" in told("FAILED")[-1], program.report()
    wait_until(
        lambda: len(program.task_managers()) == 2,
        20,
        f"two TaskManagers again, of {program.processes()}",
    )


def kill_daemon(program: Program) -> None:
    """Kill the forking daemon of a TaskManager; all that it has forked end by themselves."""
    task_managers = program.task_managers()
    daemon = program.daemon_of(task_managers[0])
    orphans = [one for one in task_managers if program.daemon_of(one) == daemon]
    daemon.kill()
    assert_they_end_by_themselves(program, orphans)


@pytest.mark.parametrize(
    "running",
    [
        pytest.param(
            LOCAL,
            marks=pytest.mark.repetition(
                "the same on a local-cluster, and on local[2] in test_told_restarts"
            ),
        )
    ],
    indirect=True,
)
def test_a_job_fails_when_a_worker_is_killed(running: Program) -> None:
    running.task_managers()[0].kill()
    assert_the_job_failed_for_a_lost_task_manager(running)


@pytest.mark.parametrize(
    "max_failures",
    [4, pytest.param(1, marks=pytest.mark.repetition("the same with four tries of a task"))],
)
def test_jobs_of_a_program_fail_when_a_worker_then_a_forking_daemon_then_an_executor_is_killed(
    started: Started, tmp_path: Path, max_failures: int
) -> None:
    # Of `local[n]` the executor is the driver's JVM, which has a row of its own.
    # Where one failure is the most, Spark runs no task twice.
    options = ("--master", CLUSTER, "-D", f"spark.task.maxFailures={max_failures}")
    program = started(start_repeated(tmp_path, 2, *options))
    program.task_managers()[0].kill()
    assert_it_failed_for_a_lost_task_manager_and_the_next_one_runs(program, 1)
    kill_daemon(program)
    assert_it_failed_for_a_lost_task_manager_and_the_next_one_runs(program, 2)
    program.executor_of(program.task_managers()[0]).kill()
    assert_the_job_failed_for_a_lost_task_manager(program)


def test_a_job_goes_on_when_an_executor_without_a_task_manager_is_killed(
    started: Started, tmp_path: Path
) -> None:
    program = started(start_watched(tmp_path, "--master", ONE_CORE_EACH))
    task_managers = program.task_managers()
    executors = {one.pid for one in program.executors()}
    taken = {program.executor_of(one).pid for one in task_managers}
    (idle,) = [one for one in program.executors() if one.pid not in taken]
    idle.kill()
    wait_until(
        lambda: len({one.pid for one in program.executors()} - executors) == 1,
        60,
        "Spark replaces the executor",
    )
    _, count = progress(program)
    wait_until(lambda: progress(program)[1] > count, 20, "records go on")
    assert progress(program)[0] == 0, "the job was restarted"
    assert program.task_managers() == task_managers
    program.interrupt()
    assert program.wait() == 130
    program.assert_nothing_is_left()


@pytest.mark.parametrize("running", ON_CLUSTERS, indirect=True)
def test_a_job_fails_when_the_jvm_of_the_driver_is_killed(running: Program) -> None:
    running.jvms()[0].kill()
    assert running.wait() == 1
    assert "Spark" in running.error_line()
    assert not any("Traceback" in line for line in running.err), running.report()
    running.assert_nothing_is_left()


@pytest.mark.parametrize("running", ON_CLUSTERS, indirect=True)
def test_nothing_is_left_when_the_python_of_the_driver_is_killed(running: Program) -> None:
    running.process.kill()
    assert running.wait() == -9
    running.assert_nothing_is_left()


def test_jobs_of_a_program_fail_when_the_forking_daemon_is_killed_then_a_worker_stops_without_a_word(
    started: Started, tmp_path: Path
) -> None:
    program = started(start_repeated(tmp_path, 1, "--master", LOCAL, *IMPATIENT))
    kill_daemon(program)
    assert_it_failed_for_a_lost_task_manager_and_the_next_one_runs(program, 1)
    program.task_managers()[0].pause()
    assert_the_job_failed_for_a_lost_task_manager(program)


@pytest.mark.parametrize("master", ON_CLUSTERS)
def test_orphans_of_the_forking_daemon_end_even_where_the_job_goes_on(
    started: Started, tmp_path: Path, master: str
) -> None:
    program = started(start_restarting(tmp_path, "--master", master))
    before = program.task_managers()
    daemon = program.daemon_of(before[0])
    orphans = [one for one in before if program.daemon_of(one) == daemon]
    daemon.kill()
    assert_they_end_by_themselves(program, orphans)
    program.wait_for_line("RUNNING AGAIN")
    wait_until(lambda: len(program.task_managers()) == 2, 20, "two TaskManagers again")
    after = {one.pid for one in program.task_managers()}
    assert after & {one.pid for one in before} == {one.pid for one in before if one not in orphans}
    program.interrupt()
    assert program.wait() == 130
    program.assert_nothing_is_left()


def test_task_managers_end_when_their_driver_stops_without_a_word(
    started: Started, tmp_path: Path
) -> None:
    """As when its host is lost: nothing is closed, and nobody answers. The settings are those that the manual names."""
    manual = (ROOT / "docs" / "high_availability.md").read_text()
    named = re.findall(r"^(heartbeat\.\w+|taskmanager\.registration\.timeout): (.+)$", manual, re.M)
    assert len(named) == 3
    options = [word for key, value in named for word in ("-D", f"{key}={value}")]
    program = started(start_endless(tmp_path, "--master", LOCAL, *options))
    alone = program.task_managers()
    program.pause()
    assert_they_end_by_themselves(program, alone, WORKERS_END_S)


@pytest.mark.repetition("each test here whose job goes on ends by Ctrl-C")
@pytest.mark.parametrize("running", [LOCAL, CLUSTER], indirect=True)
def test_an_interrupted_program_cancels_its_job(running: Program) -> None:
    running.interrupt()
    assert running.wait() == 130
    running.assert_nothing_is_left()

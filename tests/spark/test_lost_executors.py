"""All executors of an application are lost: its jobs run again as soon as Spark has executors, and meanwhile say so."""

from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.spark.endless import progress, start_watched
from tests.spark.processes import Process, marked_processes, new_mark
from tests.spark.programs import Program
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

AGAIN_S = 120
"""A busy machine starts a JVM slowly; where nobody asked again, it would take the five minutes of a slot request."""
RESTARTS = (
    "-D", "restart-strategy.type=fixed-delay",
    "-D", "restart-strategy.fixed-delay.attempts=20",
    "-D", "restart-strategy.fixed-delay.delay=500 ms",
)  # fmt: skip


def start_on(folder: Path, started: list[Program], *options: str) -> Program:
    program = start_watched(folder, *RESTARTS, *options)
    started.append(program)
    program.wait_for_line("RUNNING")
    return program


def kill_all_executors(program: Program) -> int:
    """Return the number of the attempt that ran until then."""
    attempt, _ = progress(program)
    for executor in program.executors():
        executor.kill()
    return attempt


def assert_it_runs_again(program: Program, attempt: int) -> None:
    wait_until(
        lambda: progress(program)[0] > attempt and progress(program)[1] > 0,
        AGAIN_S,
        f"an attempt after {attempt} emits records; \n{program.report()}",
    )


def end(program: Program) -> None:
    program.interrupt()
    assert program.wait() == 130
    program.assert_nothing_is_left()


@pytest.mark.parametrize(
    "master",
    [
        "local-cluster[2,2,1024]",
        pytest.param(
            "local-cluster[1,3,1024]", marks=pytest.mark.repetition("two executors are lost above")
        ),
    ],
)
@pytest.mark.long
def test_a_job_runs_again_once_spark_has_replaced_all_executors_also_when_they_die_during_recovery(
    tmp_path: Path, started: list[Program], master: str
) -> None:
    program = start_on(tmp_path, started, "--master", master)
    killed = {one.pid for one in program.executors()}
    kill_all_executors(program)
    # The job has not recovered yet: these are the first replacements.
    wait_until(
        lambda: len({one.pid for one in program.executors()} - killed) == len(killed),
        AGAIN_S,
        "Spark starts executors again",
    )
    attempt = kill_all_executors(program)
    assert_it_runs_again(program, attempt)
    end(program)


@pytest.mark.long
def test_a_job_waits_for_a_standalone_cluster_without_workers_and_says_so(
    tmp_path: Path, started: list[Program]
) -> None:
    mark = new_mark()
    cluster = StandaloneCluster(tmp_path / "cluster", mark)

    def executors() -> list[Process]:
        return [one for one in marked_processes(mark) if "ExecutorBackend" in one.command]

    try:
        program = start_on(tmp_path, started, *cluster.options, "-D", "spark.executor.memory=1g")
        cluster.kill_workers()
        attempt, _ = progress(program)
        for executor in executors():
            executor.kill()
        wait_until(
            lambda: any("are missing" in line for line in program.err),
            AGAIN_S,
            f"the program says that TaskManagers are missing\n{program.report()}",
        )
        cluster.start_workers()
        wait_until(lambda: bool(executors()), AGAIN_S, "Spark has an executor again")
        assert_it_runs_again(program, attempt)
        # A busy machine may lose a TaskManager once more before the job runs: then it is said again.
        told = next(line for line in program.err if "are missing" in line)
        assert "no executor for this application" in told and "workers are up" in told
        end(program)
    finally:
        cluster.end()

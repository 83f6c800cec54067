"""Losses that a job with a restart strategy outlives, as the ResourceManager asks for new TaskManagers; and others."""

from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.spark.endless import start_breaking, start_restarting
from tests.spark.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize("master", ["local[4]", "local-cluster[2,2,1024]"])
def test_a_killed_worker_is_replaced_and_the_job_runs_again(
    tmp_path: Path, started: list[Program], master: str
) -> None:
    program = start_restarting(tmp_path, "--master", master)
    started.append(program)
    program.wait_for_line("RUNNING")
    before = {one.pid for one in program.task_managers()}
    program.task_managers()[0].kill()
    program.wait_for_line("RUNNING AGAIN")
    wait_until(lambda: len(program.task_managers()) == 2, 20, "two TaskManagers again")
    after = {one.pid for one in program.task_managers()}
    assert len(before & after) == 1
    program.interrupt()
    assert program.wait() == 130
    program.assert_nothing_is_left()


def test_a_control_plane_that_fails_from_within_ends_the_program_with_the_cause(
    tmp_path: Path, started: list[Program]
) -> None:
    program = start_breaking(tmp_path, "--master", "local[4]")
    started.append(program)
    assert program.wait() == 1
    assert "the control plane of the cluster has failed: LookupError: a bug" in program.error_line()
    program.assert_nothing_is_left()

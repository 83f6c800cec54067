"""Losses that a job with a restart strategy outlives, as the ResourceManager asks for new TaskManagers; and others."""

from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.spark.endless import progress, start_breaking, start_followed, start_restarting
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

HOLDS_THE_LOCK = """
import ctypes
import os
import time
from headrace.common import Types, WatermarkStrategy
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.connectors.number_seq import NumberSequenceSource

def hold_the_lock(number):
    if number == 50:
        while not os.path.exists({go_on!r}):
            time.sleep(0.01)
        # PyDLL, other than CDLL, keeps the interpreter lock during the call.
        ctypes.PyDLL(None).sleep(20)
    return number

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
source = NumberSequenceSource(0, 99)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
with numbers.map(hold_the_lock, Types.LONG()).execute_and_collect() as rows:
    print("COLLECTED", len(list(rows)))
"""

LOCAL, CLUSTER = "local[4]", "local-cluster[2,2,1024]"


@pytest.mark.parametrize(
    "master",
    [pytest.param(LOCAL, marks=pytest.mark.repetition("the same on a local-cluster")), CLUSTER],
)
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
    program = start_breaking(
        tmp_path, "--master", "local[4]", "-D", "headrace.resourcemanager.replacements=0"
    )
    started.append(program)
    assert program.wait() == 1
    assert "the control plane of the cluster has failed: LookupError: a bug" in program.error_line()
    program.assert_nothing_is_left()


@pytest.mark.parametrize(
    "master", [LOCAL, pytest.param(CLUSTER, marks=pytest.mark.repetition("the same on local[4]"))]
)
def test_tasks_go_on_in_their_task_managers_when_another_resource_manager_follows(
    tmp_path: Path, started: list[Program], master: str
) -> None:
    program = start_followed(tmp_path, "--master", master)
    started.append(program)
    program.wait_for_line("RUNNING")
    before = {one.pid for one in program.task_managers()}
    program.wait_for_line("LATE [1, 4, 9]")
    wait_until(lambda: progress(program)[1] > 0, 30, "the program tells the progress of its job")
    _, count = progress(program)
    wait_until(lambda: progress(program)[1] > count, 30, "records go on")
    assert progress(program)[0] == 0, "the job was restarted"
    assert len(before) == 2 and before <= {one.pid for one in program.task_managers()}
    (told,) = [line for line in program.err if "another one replaces it" in line]
    assert "LookupError: a bug in the control plane" in told
    program.interrupt()
    assert program.wait() == 130
    program.assert_nothing_is_left()


def test_a_function_that_holds_the_interpreter_lock_for_longer_than_heartbeats_may_be_away_is_named_and_not_lost(
    tmp_path: Path, started: list[Program]
) -> None:
    go_on = tmp_path / "go-on"
    options = (
        "-D", "heartbeat.interval=1 s",
        "-D", "heartbeat.timeout=10 s",
        "-D", "restart-strategy.type=none",
    )  # fmt: skip
    text = HOLDS_THE_LOCK.format(go_on=str(go_on))
    program = headrace_run(tmp_path, text, "--verbose", "--master", LOCAL, *options)
    started.append(program)
    wait_until(
        lambda: sum("is watched at" in line for line in program.err) == 2,
        120,
        "the ResourceManager and the JobMaster know who watches the lock",
    )
    go_on.touch()
    assert program.wait() == 0, program.report()
    assert any("COLLECTED 100" in line for line in program.out)
    told = [line for line in program.err if "is alive but does not respond" in line]
    assert told and all("in hold_the_lock (" in line for line in told), program.report()
    program.assert_nothing_is_left()

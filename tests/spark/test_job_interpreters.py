"""Jobs in a session that name an interpreter: their TaskManagers run by it, and one that cannot fails its job alone."""

import json
import sys
from pathlib import Path

import pytest

from testkit.virtual_environments import virtual_environment
from testkit.waiting import wait_until
from tests.spark.commands import HEADRACE, NO_UI, Commands
from tests.spark.java_options import settings_of_executors
from tests.spark.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MASTER = "local-cluster[2,2,1024]"
PROGRAM = """
import json, sys
from headrace.common import Types
from headrace.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1 if sys.argv[2:] == ["alone"] else 2)
if sys.argv[1]:
    env.set_python_executable(sys.argv[1])
if sys.argv[2:] == ["batch"]:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)


def where(value):
    import os, sys
    return f"{os.getpid()} {sys.prefix}"


numbers = env.from_collection([1, 2, 3, 4], type_info=Types.LONG())
with numbers.map(where, output_type=Types.STRING()).execute_and_collect() as rows:
    print("FOUND", json.dumps(list(rows)))
"""


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    return Commands(tmp_path, started)


def processes(commands: Commands, *arguments: str) -> set[tuple[int, str]]:
    """Run the program in the session; return the pid and the prefix of each process that ran its functions."""
    lines = commands("run", "--cluster", "shared", "where.py", *arguments).splitlines()
    [said] = [line.removeprefix("FOUND ") for line in lines if line.startswith("FOUND ")]
    parts = [row.partition(" ") for row in json.loads(said)]
    return {(int(pid), prefix) for pid, _, prefix in parts}


def found(commands: Commands, *arguments: str) -> set[str]:
    """Run the program in the session; return the prefixes of the interpreters that ran its functions."""
    return {prefix for _, prefix in processes(commands, *arguments)}


@pytest.mark.long
def test_task_managers_of_a_job_run_by_the_interpreter_that_it_names(
    commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "where.py").write_text(PROGRAM)
    other = virtual_environment(tmp_path / "other", has_packages=True)
    empty = virtual_environment(tmp_path / "empty", has_packages=False)
    (tmp_path / "plain").write_text("no program")
    options = ("--master", MASTER, *settings_of_executors(MASTER), *NO_UI)
    session = commands.begin(HEADRACE, "cluster", "start", "--name", "shared", *options)
    assert session.wait(150) == 0, session.report()

    assert found(commands, str(other)) == {str(tmp_path / "other")}
    assert found(commands, "") == {sys.prefix}
    assert found(commands, str(other), "batch") == {str(tmp_path / "other")}

    for interpreter, why in (
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path / "plain", "Permission denied"),
        (empty, "the interpreter has no package 'headrace'"),
    ):
        failed = commands.begin(
            HEADRACE, "run", "--cluster", "shared", "where.py", str(interpreter)
        )
        assert failed.wait() == 1, failed.report()
        told = "".join(failed.err)
        assert f"python.executable, '{interpreter}' on host " in told, told
        assert why in told, told
    assert found(commands, "") == {sys.prefix}
    commands("cluster", "stop")
    session.assert_nothing_is_left()


def test_where_jobs_share_task_managers_those_of_one_interpreter_do(
    commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "where.py").write_text(PROGRAM)
    other = virtual_environment(tmp_path / "other", has_packages=True)
    session = commands.begin(
        HEADRACE,
        *("cluster", "start", "--name", "shared", "--master", MASTER),
        *settings_of_executors(MASTER),
        *NO_UI,
        *("-D", "headrace.resourcemanager.exclusive-task-managers=false"),
        *("-D", "taskmanager.numberOfTaskSlots=2"),
        *("-D", "resourcemanager.taskmanager-timeout=10 min"),
    )
    assert session.wait(150) == 0, session.report()
    commands("run", "-d", "--cluster", "shared", "endless.py", "usual")
    wait_until(lambda: len(session.task_managers()) == 1, 90, "the job has its TaskManager")
    [usual] = session.task_managers()

    [first] = processes(commands, str(other), "alone")
    assert first[1] == str(tmp_path / "other") and first[0] != usual.pid
    # The free slot beside the job that runs is taken, not the idle TaskManager of the other interpreter.
    assert processes(commands, "", "alone") == {(usual.pid, sys.prefix)}
    assert processes(commands, str(other), "alone") == {first}
    assert {one.pid for one in session.task_managers()} == {usual.pid, first[0]}
    commands("cluster", "stop")
    session.assert_nothing_is_left()

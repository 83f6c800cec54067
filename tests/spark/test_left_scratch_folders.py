"""The scratch folder of a worker that was killed goes with the next worker of its executor, or with the session."""

import glob
from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.spark.commands import HEADRACE, NO_UI, Commands
from tests.spark.java_options import settings_of_executors
from tests.spark.processes import Process
from tests.spark.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RESTARTING = (
    *("-D", "restart-strategy.type=fixed-delay"),
    *("-D", "restart-strategy.fixed-delay.attempts=100"),
    *("-D", "restart-strategy.fixed-delay.delay=100 ms"),
)


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    return Commands(tmp_path, started)


def scratch_folders(session: Program) -> set[str]:
    """Scratch folders of TaskManagers in the temporary folder of the session, wherever Spark has put them."""
    return set(glob.glob(f"{session.temporary}/**/headrace-tm-*", recursive=True))


def folder_of(session: Program, task_manager: Process) -> str:
    [folder] = glob.glob(f"{session.temporary}/**/headrace-tm-{task_manager.pid}-*", recursive=True)
    return folder


def one_task_manager(session: Program, *, other_than: Process | None = None) -> Process:
    """Wait for the TaskManager of the job, which is not the one that was killed."""

    def is_there() -> bool:
        pids = {one.pid for one in session.task_managers()}
        return len(pids) == 1 and (other_than is None or other_than.pid not in pids)

    wait_until(is_there, 90, "the job has a TaskManager")
    [found] = session.task_managers()
    return found


@pytest.mark.parametrize(
    "master",
    [
        pytest.param("local[3]", marks=pytest.mark.repetition("the same on a local-cluster")),
        "local-cluster[1,3,1024]",
    ],
)
def test_what_a_killed_worker_left_is_swept_by_the_next_one_and_the_rest_at_the_stop(
    commands: Commands, master: str
) -> None:
    session = commands.begin(
        HEADRACE,
        *("cluster", "start", "--name", "shared", "--master", master),
        *settings_of_executors(master),
        *NO_UI,
        *RESTARTING,
    )
    assert session.wait(150) == 0, session.report()
    commands("run", "-d", "--cluster", "shared", "endless.py", "endless")
    first = one_task_manager(session)
    left = folder_of(session, first)
    first.kill()
    second = one_task_manager(session, other_than=first)
    wait_until(lambda: left not in scratch_folders(session), 10, "the folder is swept")
    assert folder_of(session, second) in scratch_folders(session), "the living one keeps its own"

    second.kill()
    commands("cluster", "stop")
    session.assert_nothing_is_left()
    assert scratch_folders(session) == set()

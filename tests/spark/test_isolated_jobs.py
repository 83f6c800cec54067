"""Jobs of a session as the documentation starts it: none is harmed by what another one does to its process."""

from pathlib import Path
from typing import Final

import pytest

from headrace.core.process.process_memory import container_memory_bytes
from testkit.waiting import wait_until
from tests.spark.commands import HEADRACE, NO_UI, Commands
from tests.spark.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SHARE_BYTES: Final = 700 << 20
# As on a host that is short of memory, which each TaskManager has a small share of.
SHORT: Final = {
    "headrace.taskmanager.memory.reserve": "1",
    "headrace.taskmanager.processes-per-host": str(container_memory_bytes() // SHARE_BYTES),
}
JOBS: Final = """
import os, sys
from pathlib import Path
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
kept = []


def write(value):
    with open("progress", "ab") as progress:
        progress.write(b".")
    return value


def leave(value):
    os._exit(3)


def spin(value):
    Path("spinning").touch()
    while True:
        pass


def devour(value):
    while True:
        if len(kept) < 4_000:
            kept.append(b"x" * (1 << 20))


functions = {"steady": write, "leave": leave, "spin": spin, "devour": devour}
folder = os.getcwd()
chosen = functions[sys.argv[1]]


def there(value):
    os.chdir(folder)
    return chosen(value)


numbers = env.from_source(
    DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=20),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
numbers.map(there, output_type=Types.LONG()).print()
env.execute(sys.argv[1])
"""


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    return Commands(tmp_path, started)


def test_a_job_that_exits_loops_or_grows_harms_no_other_in_a_session(
    commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    short = [word for key, value in SHORT.items() for word in ("-D", f"{key}={value}")]
    slots = ("-D", "headrace.spark.slots=2")
    session = commands.daemon("cluster", "start", "--name", "shared", *slots, *short, *NO_UI)
    commands("run", "-d", "--cluster", "shared", "jobs.py", "steady")
    progress = tmp_path / "progress"

    def assert_undisturbed() -> None:
        size = progress.stat().st_size
        wait_until(lambda: progress.stat().st_size > size + 5, what="progress of the other job")
        [steady] = [one for one in commands.answer("list")["jobs"] if one["name"] == "steady"]
        assert steady["state"] == "RUNNING"
        assert {one.pid for one in session.task_managers()} >= own

    wait_until(progress.exists, what="the first job")
    own = {one.pid for one in session.task_managers()}
    assert len(own) == 1

    for name, told in (
        ("leave", "os._exit(3) was called in leave (jobs.py:"),
        ("devour", "and its host or container has only"),
    ):
        failed = commands.begin(HEADRACE, "run", "--cluster", "shared", "jobs.py", name)
        assert failed.wait() == 1, failed.report()
        assert told in "".join(failed.err), failed.report()
        assert_undisturbed()

    patience = ("-D", "task.cancellation.timeout=1 s")
    commands("run", "-d", "--cluster", "shared", *patience, "jobs.py", "spin")
    wait_until((tmp_path / "spinning").exists, what="the loop")
    assert_undisturbed()
    commands("cancel", commands.running_jobs()["spin"])
    wait_until(lambda: commands.running_jobs().keys() == {"steady"}, what="the end of the loop")
    assert_undisturbed()
    commands("cluster", "stop")
    session.assert_nothing_is_left()

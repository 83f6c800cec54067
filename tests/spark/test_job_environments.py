"""Jobs that bring a Python environment: their TaskManagers run in it, whatever the session's workers have loaded."""

import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from testkit.virtual_environments import archive, virtual_environment
from testkit.wheels import copied_wheel
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
env.set_parallelism(2)
for word in sys.argv[1:]:
    match word.partition("=")[::2]:
        case "requirements", file:
            env.set_python_requirements(file, "wheels")
        case "archive", file:
            env.add_python_archive(file)
        case "python", path:
            env.set_python_executable(path)
        case "mode", mode:
            env.set_runtime_mode(RuntimeExecutionMode[mode])


def found(value):
    import sys, uvloop
    from importlib.metadata import version
    return f"{version('uvloop')} {getattr(uvloop, 'BROUGHT', False)} {sys.prefix}"


numbers = env.from_collection([1, 2, 3, 4], type_info=Types.LONG())
with numbers.map(found, output_type=Types.STRING()).execute_and_collect() as rows:
    print("FOUND", json.dumps(sorted(set(rows))))
"""
USUAL = f"{version('uvloop')} False {sys.prefix}"


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    (tmp_path / "where.py").write_text(PROGRAM)
    # Spark's workers load it before they are given anything.
    copied_wheel(tmp_path / "wheels", "uvloop", "99.0", "BROUGHT = True")
    copied_wheel(tmp_path / "wheels", "cloudpickle", "99.0", "")
    (tmp_path / "newer.txt").write_text("uvloop==99.0\n")
    (tmp_path / "unfit.txt").write_text("cloudpickle==99.0\n")
    (tmp_path / "nowhere.txt").write_text("headrace_test_nowhere\n")
    return Commands(tmp_path, started)


def rows_of(program: Program) -> list[str]:
    assert program.wait(150) == 0, program.report()
    [said] = [line.removeprefix("FOUND ") for line in program.out if "FOUND" in line]
    return json.loads(said)


@pytest.fixture
def session(commands: Commands, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """A session with an archive of an interpreter that has packages, and of one that has none."""
    for folder in ("venv", "empty"):
        virtual_environment(tmp_path / folder, has_packages=folder == "venv")
        archive(tmp_path / folder)
    options = ("--master", MASTER, *settings_of_executors(MASTER), *NO_UI)
    cluster = commands.begin(HEADRACE, "cluster", "start", "--name", "shared", *options)
    assert cluster.wait(150) == 0, cluster.report()

    def run(*arguments: str) -> Program:
        program = commands.begin(HEADRACE, "run", "--cluster", "shared", "where.py", *arguments)
        program.wait()
        return program

    yield run
    commands("cluster", "stop")
    cluster.assert_nothing_is_left()


@pytest.mark.long
def test_in_a_session_each_job_has_the_packages_and_the_interpreter_that_it_brings(
    session: Callable[..., Program],
) -> None:
    [newer] = rows_of(session("requirements=newer.txt"))
    assert newer.startswith("99.0 True ") and "/headrace-artifacts-" in newer
    assert rows_of(session()) == [USUAL]
    archived = ("archive=venv.zip", "python=venv.zip/venv/bin/python")
    [brought] = rows_of(session(*archived))
    assert brought.startswith(USUAL.rpartition(" ")[0]) and brought.endswith("/content/venv")
    [both] = rows_of(session(*archived, "requirements=newer.txt"))
    assert both.startswith("99.0 True ") and both.rpartition(" ")[2] != newer.rpartition(" ")[2]


@pytest.mark.long
def test_a_job_whose_environment_cannot_be_used_fails_alone_and_says_why(
    session: Callable[..., Program],
) -> None:
    for arguments, causes in (
        (("requirements=unfit.txt",), ["version of cloudpickle differs", "worker", "99.0"]),
        (("requirements=nowhere.txt",), ["could not be installed", "No matching distribution"]),
        (("archive=venv.zip", "python=venv.zip/bin/python"), ["has no file 'bin/python'"]),
        (
            ("archive=empty.zip", "python=empty.zip/empty/bin/python"),
            ["does not run Headrace: ModuleNotFoundError: No module named", "install the driver's"],
        ),
        (("requirements=newer.txt", "mode=BATCH"), ["asks for uvloop 99.0", "STREAMING mode"]),
    ):
        failed = session(*arguments)
        told = "".join(failed.err)
        assert failed.process.returncode == 1, failed.report()
        assert [cause for cause in causes if cause not in told] == [], told
    assert rows_of(session()) == [USUAL]


@pytest.mark.repetition("the environment is brought into a session above")
def test_a_program_with_a_cluster_of_its_own_brings_its_environment_too(
    commands: Commands, tmp_path: Path
) -> None:
    virtual_environment(tmp_path / "venv", has_packages=True)
    archive(tmp_path / "venv")
    words = ("requirements=newer.txt", "archive=venv.zip", "python=venv.zip/venv/bin/python")
    program = commands.begin(HEADRACE, "run", *NO_UI, "where.py", *words)
    [brought] = rows_of(program)
    assert brought.startswith("99.0 True ") and "/headrace-artifacts-" in brought
    program.assert_nothing_is_left()

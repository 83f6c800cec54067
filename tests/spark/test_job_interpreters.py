"""Jobs in a session that name an interpreter: their TaskManagers run by it, and one that cannot fails its job alone."""

import json
import site
import subprocess
import sys
from pathlib import Path

import pytest

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
if sys.argv[1]:
    env.set_python_executable(sys.argv[1])
if sys.argv[2:] == ["batch"]:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)


def prefix(value):
    import sys
    return sys.prefix


numbers = env.from_collection([1, 2, 3, 4], type_info=Types.LONG())
with numbers.map(prefix, output_type=Types.STRING()).execute_and_collect() as rows:
    print("FOUND", json.dumps(list(rows)))
"""


@pytest.fixture
def commands(tmp_path: Path, started: list[Program]) -> Commands:
    return Commands(tmp_path, started)


def environment(folder: Path, *, has_packages: bool) -> Path:
    """Make a virtual environment, with the packages of this one or with none; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if has_packages:
        [packages] = folder.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
        (packages / "shared.pth").write_text("\n".join(lines))
    return folder / "bin" / "python"


def found(commands: Commands, *arguments: str) -> set[str]:
    """Run the program in the session; return the prefixes of the interpreters that ran its functions."""
    lines = commands("run", "--cluster", "shared", "where.py", *arguments).splitlines()
    [said] = [line.removeprefix("FOUND ") for line in lines if line.startswith("FOUND ")]
    return set(json.loads(said))


def test_task_managers_of_a_job_run_by_the_interpreter_that_it_names(
    commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "where.py").write_text(PROGRAM)
    other = environment(tmp_path / "other", has_packages=True)
    empty = environment(tmp_path / "empty", has_packages=False)
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
        (empty, "it has no package 'headrace'"),
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

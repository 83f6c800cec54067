"""The wheel: what `make wheel` builds is installed into an empty folder, and runs a program from there."""

import os
import sys
from pathlib import Path

import pytest

from tests.built_wheel import build_wheel, pip
from tests.spark.programs import Program, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

WHERE = """
import headrace
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).map(lambda n: f"FROM {headrace.__file__}").print()
env.execute()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("built"))


def test_a_program_runs_on_what_the_wheel_installs(
    wheel: Path, tmp_path: Path, started: list[Program]
) -> None:
    installed = tmp_path / "installed"
    pip("install", "--no-deps", "--no-compile", "--target", str(installed), str(wheel))
    path = tmp_path / "where.py"
    path.write_text(WHERE)
    # The checkout is on the path of this environment too, behind this folder.
    environment = {
        "PYTHONPATH": os.pathsep.join(
            [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    }
    program = start(
        [sys.executable, "-m", "headrace", "run", "--master", "local[2]", "-p", "1", str(path)],
        tmp_path,
        environment,
    )
    started.append(program)
    assert program.wait() == 0, program.report()
    lines = [line.strip() for line in program.out if "FROM" in line]
    assert lines == [f"FROM {installed / 'headrace' / '__init__.py'}"] * 2
    program.assert_nothing_is_left()

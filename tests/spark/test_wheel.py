"""The wheel: what `make wheel` builds is installed into an empty folder, and runs a program from there."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import headrace
from tests.spark.programs import ROOT, Program, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

WHEEL_BYTES_MAX = 2_350_000

WHERE = """
import headrace
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).map(lambda n: f"FROM {headrace.__file__}").print()
env.execute()
"""


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` builds."""
    folder = tmp_path_factory.mktemp("built")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), ".")
    (built,) = folder.iterdir()
    return built


def test_the_wheel_holds_what_users_need_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    folders = {name.split("/")[0] for name in names}
    assert folders == {
        "headrace",
        "pyspark_headrace",
        "pyspark_headrace_stream",
        f"headrace-{headrace.__version__}.dist-info",
    }
    dashboard = [name for name in names if name.startswith("headrace/rest/dashboard/")]
    assert {Path(name).suffix for name in dashboard} >= {".html", ".js", ".css"}
    testing = {name.split("/")[2] for name in names if name.startswith("headrace/testing/")}
    assert testing == {
        "__init__.py",
        "fault_proxy",
        "fixtures.py",
        "minicluster_executor.py",
        "operator_harness.py",
        "operator_ways.py",
    }
    # `headrace trace` has a network of its own to show a protocol on; everything else that plays at one is no product.
    unwanted = re.compile(r"chaos|faulty|planted|scripted|simulat(?!ed_transport)")
    assert [name for name in names if unwanted.search(name)] == []
    assert wheel.stat().st_size < WHEEL_BYTES_MAX


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

"""Programs and examples give equal results in BATCH mode and in STREAMING mode, in one Spark application."""

import os
import sys
from pathlib import Path

import pytest

from tests.spark.programs import ROOT, Program, start
from tests.unit.task.batch.modelled_programs import CASES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = ROOT / "tests" / "spark" / "runtime_modes_program.py"
EXAMPLE, CASE = "EQUAL example ", "EQUAL program "
EXAMPLES = {
    "delay_per_airport",
    "streams_in_a_notebook",
    "late_departures_by_rule",
    "orders_and_payments",
    "requests_per_minute",
    "every_reading_once",
    "score_readings",
    "new_york_departures",
}
SEED = int(os.environ.get("HEADRACE_SEED", "21"))


def test_all_examples_that_run_jobs_are_compared() -> None:
    files = {
        path.stem for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")
    }
    # It edits a savepoint, with Spark and without a job.
    assert files == EXAMPLES | {"corrected_totals"}


@pytest.mark.parametrize(
    ("seed", "examples"),
    [
        (20, EXAMPLES),
        # The same cases behind other steps: HEADRACE_SEED=<number> draws them.
        pytest.param(
            SEED, set[str](), marks=pytest.mark.repetition("two of the drawn programs run above")
        ),
    ],
)
@pytest.mark.long
def test_programs_and_examples_give_equal_results_in_both_modes(
    tmp_path: Path, started: list[Program], seed: int, examples: set[str]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    command = str(Path(sys.executable).parent / "headrace")
    # Tasks run again once, as an example fails on purpose.
    arguments = ["run", "--master", "local[4,2]", str(PROGRAM), str(folder)]
    arguments += [str(seed), str(int(bool(examples)))]
    # Workers read the functions of the programs where the tests are.
    program = start([command, *arguments], tmp_path, {"PYTHONPATH": str(ROOT)})
    started.append(program)
    code = program.wait(560)
    report = f"HEADRACE_SEED={seed}\n{program.report()}"
    assert code == 0, report
    told = [line.strip() for line in program.out]
    assert not [line for line in told if line.startswith("DIFFERENT")], report
    found = {line.removeprefix(EXAMPLE) for line in told if line.startswith(EXAMPLE)}
    assert found == examples, report
    cases = {line.removeprefix(CASE) for line in told if line.startswith(CASE)}
    assert cases == CASES.keys(), report
    program.assert_nothing_is_left()

"""Programs and examples give equal results in BATCH mode and in STREAMING mode, in one Spark application."""

import os
import sys
from pathlib import Path

import pytest

from tests.spark.programs import ROOT, Program, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = ROOT / "tests" / "spark" / "runtime_modes_program.py"
EXAMPLE = "EQUAL example "
EXAMPLES = {
    "late_departures_by_rule",
    "orders_and_payments",
    "requests_per_minute",
    "every_reading_once",
    "score_readings",
    "new_york_departures",
}
SEED = int(os.environ.get("HEADRACE_SEED", "21"))


@pytest.mark.parametrize(
    ("seed", "program_count", "examples"),
    [
        (20, 2, EXAMPLES),
        # More of the same, without the examples: HEADRACE_SEED=<number> draws others.
        pytest.param(SEED, 8, set[str](), marks=pytest.mark.repetition),
    ],
)
def test_programs_and_examples_give_equal_results_in_both_modes(
    tmp_path: Path, started: list[Program], seed: int, program_count: int, examples: set[str]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    command = str(Path(sys.executable).parent / "headrace")
    # Tasks run again once, as an example fails on purpose.
    arguments = ["run", "--master", "local[4,2]", str(PROGRAM), str(folder)]
    arguments += [str(seed), str(program_count), str(int(bool(examples)))]
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
    assert len([line for line in told if line.startswith("EQUAL program ")]) == program_count, (
        report
    )
    program.assert_nothing_is_left()

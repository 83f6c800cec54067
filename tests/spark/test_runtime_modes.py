"""Programs and examples give equal results in BATCH mode and in STREAMING mode, in one Spark application."""

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


def test_programs_and_examples_give_equal_results_in_both_modes(
    tmp_path: Path, started: list[Program]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    command = str(Path(sys.executable).parent / "headrace")
    # Tasks run again once, as an example fails on purpose.
    arguments = ["run", "--master", "local[4,2]", str(PROGRAM), str(folder)]
    # Workers read the functions of the programs where the tests are.
    program = start([command, *arguments], tmp_path, {"PYTHONPATH": str(ROOT)})
    started.append(program)
    assert program.wait(560) == 0, program.report()
    told = [line.strip() for line in program.out]
    assert not [line for line in told if line.startswith("DIFFERENT")], program.report()
    examples = {line.removeprefix(EXAMPLE) for line in told if line.startswith(EXAMPLE)}
    assert examples == EXAMPLES, program.report()
    programs = [line for line in told if line.startswith("EQUAL program ")]
    assert len(programs) == 2, program.report()
    program.assert_nothing_is_left()

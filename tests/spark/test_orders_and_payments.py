"""The example that brings two streams together, as users run it."""

from collections import Counter
from pathlib import Path

import pytest

from tests.spark.programs import ROOT, Program, start_headrace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

EXAMPLE = ROOT / "examples" / "orders_and_payments.py"


def test_each_result_is_printed_under_its_name(tmp_path: Path, started: list[Program]) -> None:
    program = start_headrace(tmp_path, "run", "--master", "local[3]", str(EXAMPLE))
    started.append(program)
    assert program.wait() == 0, program.report()
    lines = [line.strip() for line in program.out if "> " in line]
    names = Counter(line.partition(":")[0].partition(">")[0] for line in lines)
    assert names == {"paid": 4, "unpaid": 3, "average": 6}, program.report()
    values = {line.rpartition("> ")[2] for line in lines if line.startswith("unpaid")}
    assert values == {"+I[3, 60]", "+I[4, 90]", "+I[6, 120]"}
    program.assert_nothing_is_left()

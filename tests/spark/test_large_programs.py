"""A program that carries more than a message on a real Spark: collection, captured array, and long rows back."""

import sys
from pathlib import Path

import pytest

from tests.spark.programs import Program, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

PROGRAM = """
import numpy as np

from headrace.common import Configuration, Types
from headrace.datastream import StreamExecutionEnvironment

configuration = Configuration()
configuration.set_string("headrace.spark.master", "local[3]")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(2)
array = np.arange(30_000_000 // 8, dtype=np.float64)
numbers = env.from_collection(range(2_000_000), Types.LONG())
picked = numbers.rebalance().filter(lambda i: int(array[i]) % 400_000 == 0)
with picked.map(lambda i: int(array[i]), output_type=Types.LONG()).execute_and_collect() as rows:
    print("COLLECTED", sorted(rows))
env.set_parallelism(1)
long_row = env.from_collection([12_000_000], Types.INT()).map(lambda n: "x" * n, output_type=Types.STRING())
with long_row.execute_and_collect() as rows:
    print("LENGTHS", [len(row) for row in rows])
"""


def test_big_functions_collections_and_rows_travel_and_leave_nothing(
    tmp_path: Path, started: list[Program]
) -> None:
    file = tmp_path / "large.py"
    file.write_text(PROGRAM)
    program = start([sys.executable, str(file)], tmp_path)
    started.append(program)
    assert program.wait() == 0, program.report()
    assert "".join(program.out).splitlines() == [
        "COLLECTED [0, 400000, 800000, 1200000, 1600000]",
        "LENGTHS [12000000]",
    ], program.report()
    program.assert_nothing_is_left()

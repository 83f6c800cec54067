"""Output and logs of user code on a cluster of Spark's own: lines come to the driver, logs stay with executors."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.processes import new_mark
from tests.spark.programs import Program, headrace_run
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

PRINTING = """
import logging
from headrace.datastream import StreamExecutionEnvironment

logging.basicConfig(level=logging.INFO)

def tell(number):
    logging.getLogger("mine").info("logged %s", number)
    print("said", number)
    if number == 99:
        print("no end of line", end="")
    return f"row {number}"

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.from_collection(list(range(100))).rebalance().map(tell).print()
env.execute("printing")
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    one = StandaloneCluster(tmp_path / "cluster", new_mark())
    yield one
    one.end()


def test_on_a_standalone_cluster_prints_come_to_the_driver_and_logs_to_the_executors(
    cluster: StandaloneCluster, tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, PRINTING, *cluster.options)
    started.append(program)
    assert program.wait() == 0, program.report()
    lines = [line.rstrip("\n").partition("> ") for line in program.out]
    by_text = {text: front for front, _, text in lines}
    for number in range(100):
        assert by_text[f"said {number}"] == by_text[f"row {number}"], "one subtask wrote both"
        assert by_text[f"said {number}"] in ("1", "2")
    assert len([text for _, _, text in lines if text.startswith(("said ", "row "))]) == 200
    assert "no end of line" in "".join(program.out)
    logs = [one.read_text() for one in (tmp_path / "cluster").glob("work-*/*/*/stderr")]
    assert re.search(r"INFO \[.*Map.*\([12]\)\] mine: logged 42\n", "".join(logs))
    told = "".join(program.err)
    assert f"Spark starts on {cluster.url}" in told
    assert "job 'printing' (" in told and "is submitted" in told

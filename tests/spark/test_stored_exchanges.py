"""Bounded jobs in STREAMING mode with exchanges through files, on Spark's workers; a lost result is written again."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from testkit.exactly_once import compare_output, rows_of_parquet
from testkit.waiting import wait_until
from tests.spark.processes import Process
from tests.spark.programs import PATIENCE_S, Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

COUNT = 100_000
COMMON = f"""
import os, pathlib, time
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import MapFunction, StreamExecutionEnvironment
from headrace.datastream.connectors.number_seq import NumberSequenceSource

here = pathlib.Path.cwd()
PAIR = Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()])

def wait_for(path):
    deadline = time.monotonic() + 100
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)

def job(mode, produce, consume):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure({{"execution.batch-shuffle-mode": mode}})
    env.set_parallelism(2)
    source = NumberSequenceSource(0, {COUNT} - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    pairs = numbers.map(produce, PAIR).key_by(lambda pair: pair[0], key_type=Types.LONG())
    pairs.map(consume, PAIR).sink_to(DataFrameSink("table", mode="overwrite"))
    client = env.execute_async(mode)
    client.get_job_execution_result().result()
    return client.get_job_details().result().vertices
"""
KINDS = """
spill = here / "spill"

class Produce(MapFunction):
    def __init__(self, seen, ended):
        self.seen, self.ended = seen, ended

    def map(self, number):
        if number % 50_000 == 49_999:
            if self.seen is not None:
                wait_for(self.seen)
            self.ended.touch()
        return number % 100, number

class Consume(MapFunction):
    def __init__(self, seen, ended):
        self.seen, self.ended = seen, ended

    def open(self, runtime_context):
        self.is_first = True

    def map(self, pair):
        if self.is_first:
            self.is_first = False
            kinds = sorted({file.suffix for file in spill.rglob("result-*")})
            told = " ".join([str(self.ended.exists()), *kinds])
            with contextlib.suppress(FileExistsError), self.seen.open("x") as file:
                file.write(told)
        return pair

for mode in sys.argv[1:]:
    seen, ended = here / f"seen-{mode}", here / f"ended-{mode}"
    waits_for = None if mode.endswith("BLOCKING") else seen
    job(mode, Produce(waits_for, ended), Consume(seen, ended))
    while list(spill.rglob("result-*")):
        time.sleep(0.01)
    print("MODE", mode, seen.read_text())
    os.rename("table", f"table-{mode}")
"""
MODES = ("ALL_EXCHANGES_BLOCKING", "ALL_EXCHANGES_HYBRID_FULL", "ALL_EXCHANGES_HYBRID_SELECTIVE")


def assert_each_pair_once(table: Path) -> None:
    found = [row for rows in rows_of_parquet(table).values() for row in rows]
    compare_output([(number % 100, number) for number in range(COUNT)], found).check()


@pytest.mark.parametrize("sort_from", [8, 1])
def test_every_kind_of_stored_exchange_gives_each_row_once_and_deletes_its_files(
    tmp_path: Path, started: list[Program], sort_from: int
) -> None:
    (tmp_path / "spill").mkdir()
    program = headrace_run(
        tmp_path, f"import contextlib, sys\n{COMMON}{KINDS}",
        "--master", "local[4]",
        "-D", f"io.tmp.dirs={tmp_path / 'spill'}",
        "-D", f"taskmanager.network.sort-shuffle.min-parallelism={sort_from}",
        arguments=MODES,
    )  # fmt: skip
    started.append(program)
    assert program.wait(240) == 0, program.report()
    told = {line.split()[1]: line.split()[2:] for line in program.out if line.startswith("MODE")}
    assert list(told) == list(MODES), program.report()
    # The first row of a blocking result comes when a producer has ended; producers of a hybrid one wait here for it.
    assert [is_after for is_after, *_ in told.values()] == ["True", "False", "False"]
    _, *blocking = told[MODES[0]]
    assert (".data" in blocking, ".index" in blocking) == (True, sort_from == 1), blocking
    assert [told[mode][1:] for mode in MODES[1:]] == [[".hybrid"]] * 2
    for mode in MODES:
        assert_each_pair_once(tmp_path / f"table-{mode}")
    program.assert_nothing_is_left()
    assert list((tmp_path / "spill").iterdir()) == []


LOSS = """
class Once(MapFunction):
    def open(self, runtime_context):
        self.index = runtime_context.get_index_of_this_subtask()
        self.is_first = True

    def tell(self, what):
        with (here / f"{what}-{self.index}").open("a") as file:
            print(os.getpid(), file=file)

class Produce(Once):
    def map(self, number):
        if self.is_first:
            self.is_first = False
            self.tell("produced")
        return number % 100, number

class Consume(Once):
    def map(self, pair):
        if self.is_first:
            self.is_first = False
            self.tell("consumed")
            wait_for(here / "go")
        return pair

for vertex in job("ALL_EXCHANGES_BLOCKING", Produce(), Consume()):
    print("ATTEMPTS", *(subtask.attempt_number for subtask in vertex.subtasks))
"""


def pids_in(folder: Path, what: str) -> list[list[int]]:
    """Processes in which each subtask began, one for each attempt."""
    files = [folder / f"{what}-{index}" for index in range(2)]
    return [
        [int(line) for line in one.read_text().split()] if one.exists() else [] for one in files
    ]


def alive(program: Program, pids: Iterable[int]) -> list[Process]:
    return [one for one in program.processes() if one.pid in pids]


@pytest.mark.parametrize(
    "sort_from",
    [pytest.param(8, marks=pytest.mark.repetition("a lost result that is sorted is the same")), 1],
)
@pytest.mark.long
def test_a_finished_result_that_is_lost_with_its_task_manager_is_written_again_and_no_other(
    tmp_path: Path, started: list[Program], sort_from: int
) -> None:
    program = headrace_run(
        tmp_path, COMMON + LOSS,
        "--master", "local-cluster[2,2,1024]",
        "-D", f"taskmanager.network.sort-shuffle.min-parallelism={sort_from}",
        "-D", "restart-strategy.type=fixed-delay",
        "-D", "restart-strategy.fixed-delay.attempts=10",
        "-D", "restart-strategy.fixed-delay.delay=100 ms",
    )  # fmt: skip
    started.append(program)
    wait_until(
        lambda: all(pids_in(tmp_path, "consumed")) or program.process.poll() is not None,
        PATIENCE_S,
        f"both consumers read\n{program.report()}",
    )
    (lost,), (kept,) = pids_in(tmp_path, "produced")
    assert lost != kept
    (victim,) = alive(program, [lost])
    victim.kill()
    wait_until(lambda: not alive(program, [lost]), PATIENCE_S, "the TaskManager is gone")
    (tmp_path / "go").touch()
    assert program.wait(240) == 0, program.report()
    first, second = pids_in(tmp_path, "produced")
    assert len(first) == 2 and second == [kept], program.report()
    assert alive(program, [lost]) == []
    attempts = [line.split()[1:] for line in program.out if line.startswith("ATTEMPTS")]
    assert attempts[0] == ["1", "0"], program.report()
    assert_each_pair_once(tmp_path / "table")
    program.assert_nothing_is_left()

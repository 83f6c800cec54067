"""foreach_batch on a real Spark: a table that has each row once although the driver is killed."""

import ast
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from testkit.exactly_once import compare_output, rows_of_parquet
from tests.architecture.documents import python_blocks
from tests.spark.checkpoint_folder import newest_checkpoint
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

COUNT = 3000
PROGRAM = """
import os, pathlib, signal, sys
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

here, dies = pathlib.Path.cwd(), sys.argv[1] == "dies"

def pair(number):
    return (number % 7, number)

calls, lineages = [], set()

def write(df, checkpoint_id):
    calls.append(checkpoint_id)
    lineages.add(checkpoint_id.lineage)
    place = f"table/lineage={checkpoint_id.lineage}/checkpoint={checkpoint_id}"
    df.write.mode("overwrite").parquet(place)
    if len(calls) == 3 and dies:
        (here / "written").write_text(place)
        os.kill(os.getpid(), signal.SIGKILL)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, 3000, type_info=Types.LONG(), rows_per_second=500),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
pairs = numbers.map(pair, output_type=Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()]))
pairs.foreach_batch(write).name("table")
env.execute("pairs")
print("CALLS", *calls)
print("LINEAGE", *lineages)
"""
OPTIONS = (
    "--master", "local[4]",
    "-D", "execution.checkpointing.interval=500 ms",
    "-D", "execution.checkpointing.dir=checkpoints",
    "-D", "restart-strategy.type=fixed-delay",
    "-D", "restart-strategy.fixed-delay.attempts=3",
    "-D", "restart-strategy.fixed-delay.delay=100 ms",
)  # fmt: skip


def check_table(folder: Path, lineage: str, *dead: Path) -> None:
    """Every row is there once, and nothing waits for the function any more but in folders of `dead` drivers."""
    table = folder / "table" / f"lineage={lineage}"
    found = [row for rows in rows_of_parquet(table).values() for row in rows]
    compare_output([(number % 7, number) for number in range(COUNT)], found).check()
    for staging in staging_folders(folder):
        assert staging in dead or list(staging.glob("*.parquet")) == []


def staging_folders(folder: Path) -> list[Path]:
    return list((folder / "checkpoints" / "dataframes").glob(".foreach-batch*"))


def calls_of(program: Program) -> list[int]:
    line = next(line for line in program.out if line.startswith("CALLS"))
    return [int(text) for text in line.split()[1:]]


def lineage_of(program: Program) -> str:
    (line,) = [line for line in program.out if line.startswith("LINEAGE")]
    (lineage,) = line.split()[1:]
    return lineage


@pytest.mark.long
def test_a_batch_whose_commit_was_not_noted_is_given_again_with_its_id_and_its_rows(
    tmp_path: Path, started: list[Program]
) -> None:
    dying = headrace_run(tmp_path, PROGRAM, *OPTIONS, arguments=("dies",))
    started.append(dying)
    assert dying.wait(240) == -signal.SIGKILL, dying.report()
    dying.end()
    written = tmp_path / (tmp_path / "written").read_text()
    interrupted = int(written.name.partition("=")[2])
    before = rows_of_parquet(written)
    rows_before = sorted(row for rows in before.values() for row in rows)
    dead = staging_folders(tmp_path)
    _, place = newest_checkpoint(tmp_path)
    last = headrace_run(tmp_path, PROGRAM, *OPTIONS, "-s", str(place), arguments=("lives",))
    started.append(last)
    assert last.wait(240) == 0, last.report()
    assert calls_of(last)[0] == interrupted
    assert written.parent.name == f"lineage={lineage_of(last)}", "it goes on with the history"
    again = rows_of_parquet(written)
    assert sorted(row for rows in again.values() for row in rows) == rows_before != []
    check_table(tmp_path, lineage_of(last), *dead)
    # TaskManagers may have staged rows for the checkpoint after the last complete one; what was given is deleted.
    for staging in dead:
        for file in staging.glob("*.parquet"):
            # What a TaskManager was writing when it lost its driver has no end.
            if file.read_bytes().endswith(b"PAR1"):
                left = list(zip(*pq.read_table(file).to_pydict().values(), strict=True))
                assert set(left).isdisjoint(rows_before)

    # A job that begins anew has the ids of the first one again, and none of its rows is taken for one of those.
    fresh = headrace_run(tmp_path, PROGRAM, *OPTIONS, arguments=("lives",))
    started.append(fresh)
    assert fresh.wait(240) == 0, fresh.report()
    assert calls_of(fresh)[0] <= interrupted
    assert len(list((tmp_path / "table").iterdir())) == 2
    for lineage in (lineage_of(fresh), lineage_of(last)):
        check_table(tmp_path, lineage, *dead)


TABLES = """
import os, pathlib, signal, sys
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

here, end = pathlib.Path.cwd(), sys.argv[1]
calls = []
# Whoever is to die has half a minute for the checkpoints before.
rate = 50_000 if end == "lives" else 500

def die(checkpoint_id):
    (here / end).write_text(f"{checkpoint_id} {checkpoint_id.lineage}")
    os.kill(os.getpid(), signal.SIGKILL)

def write(df, checkpoint_id):
    calls.append(checkpoint_id)
    write_to_delta(df, checkpoint_id)
    if end == "between" and len(calls) == 3:
        die(checkpoint_id)
    write_to_iceberg(df, checkpoint_id)
    if end == "behind" and len(calls) == 3:
        die(checkpoint_id)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, 20_000, type_info=Types.LONG(), rows_per_second=rate),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
pairs = numbers.map(lambda n: (n % 7, n), output_type=Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()]))
pairs.foreach_batch(write).name("tables")
env.execute("pairs")
print("CALLS", *calls)
print("LINEAGE", calls[-1].lineage)
"""


def functions_of_the_guide() -> str:
    """The imports and functions, as they stand on the page, that write to tables of Delta and Iceberg."""
    (block,) = [one for one in python_blocks() if "pyiceberg" in one.code]
    parts = [
        one
        for one in ast.parse(block.code).body
        if (isinstance(one, ast.FunctionDef) and one.name != "write")
        or (isinstance(one, ast.ImportFrom) and one.module in ("deltalake", "pyiceberg.catalog"))
    ]
    return "\n".join(map(ast.unparse, parts))


@pytest.mark.long
def test_tables_that_keep_the_id_in_their_log_have_each_row_once_wherever_a_driver_dies(
    tmp_path: Path, started: list[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = functions_of_the_guide() + TABLES
    first_call = ""
    for end in ("between", "behind", "lives"):
        place = ("-s", str(newest_checkpoint(tmp_path)[1])) if first_call else ()
        program = headrace_run(tmp_path, text, *OPTIONS, *place, arguments=(end,))
        started.append(program)
        code = program.wait(240)
        if end == "lives":
            assert code == 0, program.report()
            assert [str(calls_of(program)[0]), lineage_of(program)] == first_call.split()
            break
        assert code == -signal.SIGKILL, program.report()
        program.end()
        first_call = (tmp_path / end).read_text()
    monkeypatch.chdir(tmp_path)
    catalog = load_catalog("shop", type="sql", uri="sqlite:///shop.db", warehouse="iceberg")
    for table in (
        DeltaTable("delta").to_pyarrow_table(),
        catalog.load_table("shop.payments").scan().to_arrow(),
    ):
        found = list(zip(*table.to_pydict().values(), strict=True))
        compare_output([(number % 7, number) for number in range(20_000)], found).check()


FAILING = """
from headrace.common import Types
from headrace.core.error_text import describe
from headrace.datastream import StreamExecutionEnvironment

def write(df, checkpoint_id):
    if checkpoint_id > 0:
        raise ValueError(f"no room for {df.count()} rows")

def run(interval):
    env = StreamExecutionEnvironment.get_execution_environment(interval)
    env.from_collection([1, 2, 3], Types.LONG()).foreach_batch(write).name("table")
    env.execute("failing")

try:
    run({"execution.checkpointing.interval": "500 ms"})
except Exception as error:
    print("TOLD", describe(error, wants_details=False)[0])
run({})
"""


def test_an_error_of_the_function_fails_the_job_and_names_its_line(
    tmp_path: Path, started: list[Program]
) -> None:
    strategy = ("-D", "restart-strategy.type=none")
    program = headrace_run(tmp_path, FAILING, "--master", "local[2]", *strategy)
    started.append(program)
    assert program.wait(120) == 1, program.report()
    line = (
        FAILING.splitlines().index('        raise ValueError(f"no room for {df.count()} rows")') + 1
    )
    (with_checkpoints,) = [one.removeprefix("TOLD ") for one in program.out if "TOLD" in one]
    for told in (with_checkpoints, program.error_line()):
        assert told.startswith("ValueError: no room for 3 rows (in operator 'Sink: table', "), told
        assert f"program.py, line {line}" in told
    program.assert_nothing_is_left()


WITHOUT_CHECKPOINTS = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_collection(list(range(100)), Types.LONG()).rebalance().map(lambda n: n, Types.LONG())
numbers.foreach_batch(lambda df, n: print("CALLED", n, df.count(), df.columns), staging_path="staging")
env.execute("numbers")
"""


def test_a_job_without_checkpoints_calls_the_function_once_at_its_end(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, WITHOUT_CHECKPOINTS, "--master", "local[4]")
    started.append(program)
    assert program.wait(120) == 0, program.report()
    assert [line for line in program.out if line.startswith("CALLED")] == [
        "CALLED 1 100 ['value']\n"
    ]
    assert list((tmp_path / "staging").iterdir()) == []
    program.assert_nothing_is_left()

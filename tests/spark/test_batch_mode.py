"""BATCH mode on real Spark stages: retries, shuffles, output that is committed once, errors, and Ctrl-C."""

import ast
import os
from pathlib import Path

import pytest

from headrace.connectors.postgres.options import connect
from tests.integration.postgres.postgres_server import running_server
from tests.spark.programs import ROOT, Program, headrace_run, start_headrace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = ROOT / "tests" / "spark" / "batch_program.py"
FACES = ROOT / "tests" / "spark" / "batch_faces_program.py"
LOSSES = ROOT / "tests" / "spark" / "batch_losses_program.py"
DATAFRAMES = ROOT / "tests" / "spark" / "batch_dataframes_program.py"
AGGREGATES = ROOT / "tests" / "spark" / "batch_aggregates_program.py"
SEED = int(os.environ.get("HEADRACE_SEED", "43"))
ENDLESS_FUNCTION = """
import sys
import time
from pathlib import Path
from headrace.common import Encoder, Types
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.connectors.file_system import FileSink

folder = sys.argv[1]
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)

def wait(number):
    while number == 2:
        if list(Path(folder).rglob("*.pending")):
            print("PREPARED", flush=True)
        time.sleep(0.1)
    return number

sink = FileSink.for_row_format(folder, Encoder.simple_string_encoder()).build()
env.from_collection([1, 2], Types.LONG()).rebalance().map(wait).sink_to(sink)
env.execute()
"""
"""One of two subtasks has prepared its output, and the other never ends."""


FAILING_MASTER = """
import time
from headrace.api.executors import active_executor
from headrace.common import Types
from headrace.core.error_text import describe
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

def wait(number):
    while True:
        time.sleep(0.1)

def bug():
    raise LookupError("a bug in the JobMaster")

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).map(wait).print()
client = env.execute_async("broken")
tracker = spark_session().sparkContext.statusTracker()
while not tracker.getActiveStageIds():
    time.sleep(0.05)
(job,) = active_executor()._host.handle._cluster.dispatcher._jobs
job.job_master.run_async(bug)
try:
    client.get_job_execution_result().result()
except Exception as error:
    print("FAILED", describe(error, wants_details=False)[0])
while tracker.getActiveStageIds():
    time.sleep(0.05)
print("STAGES", len(tracker.getActiveStageIds()))

late = StreamExecutionEnvironment.get_execution_environment()
numbers = late.from_collection([1, 2, 3], type_info=Types.LONG())
with numbers.map(lambda n: n * n, output_type=Types.LONG()).execute_and_collect() as squares:
    print("LATE", sorted(squares))
"""
ENDING_CONNECTIONS = """
CREATE FUNCTION end_twice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') < 3 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
    RETURN NULL;
END $$
"""
FAILING_BESIDE_KEPT_ROWS = """
import sys
import threading
import time
from pathlib import Path
from headrace.common import Types
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.core.errors import JobExecutionError
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session
from testkit.waiting import wait_until

folder = Path(sys.argv[1])
ROW = Types.ROW_NAMED(["number"], [Types.LONG()])

def staged():
    return list(folder.glob(".log.staging-*/*.parquet"))

def stay(row):
    while row.id:
        threading.Event().wait()
    return (row.id,)

def fail(number):
    wait_until(staged, 60, "the file that the first subtask stages for the log")
    raise LookupError("beside the rows that are kept")

spark = spark_session()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
kept = env.from_dataframe(spark.range(0, 2, 1, 2)).map(stay, ROW)
kept.sink_to(DataFrameSink(folder / "log", "headrace", mode="append"))
kept.rebalance().print()
env.from_collection([1]).map(fail).rebalance().print()
try:
    env.execute("failing")
except JobExecutionError as error:
    print("FAILED", str(error).partition("\\n")[0])
tracker = spark.sparkContext.statusTracker()
wait_until(lambda: not tracker.getActiveStageIds(), 30, "the end of all stages")
print("LEFT", staged(), list(folder.glob("log/*.parquet")))
"""
"""A subtask that fills rows which several readers have never ends, and another one has staged a file for a log."""


COMMITTING = """
import os
import sys
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.postgres.options import JdbcConnectionOptions, connect
from headrace.connectors.postgres.sink import JdbcSink
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.connectors.number_seq import NumberSequenceSource

url, failed = sys.argv[1:]
builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
server = builder.with_url(url).with_user_name("tests").build()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)

def row_of(number):
    if number == 999:
        with connect(server) as connection:
            count = connection.execute("SELECT count(*) FROM results").fetchone()
        try:
            os.close(os.open(failed, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            print("SEEN", *count)
        else:
            raise ValueError("the first attempt fails")
    return (number,)

row = Types.ROW_NAMED(["number"], [Types.INT()])
source = NumberSequenceSource(0, 999)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
numbers.map(row_of, row).sink_to(
    JdbcSink.exactly_once_sink("INSERT INTO results VALUES (?)", row, server)
)
env.execute("committing")
"""
GROWING_FUNCTIONS = """
import sys
from headrace.core.errors import JobExecutionError
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
held = []

def grow(number):
    while True:
        held.append(b"." * (1 << 20))

def grow_in_any_case(number):
    while True:
        try:
            grow(number)
        except Exception:
            pass

for function in (grow, grow_in_any_case):
    env.from_collection([1]).map(function).print()
    try:
        env.execute(function.__name__)
    except JobExecutionError as error:
        print(function.__name__.upper(), str(error).partition("\\n")[0])
"""


def line_of(text: str, program: Path = PROGRAM) -> int:
    lines = program.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_stages_run_again_and_output_is_committed_once(
    tmp_path: Path, started: list[Program]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    options = ["--master", "local-cluster[1,3,1024]", "-D", "execution.runtime-mode=BATCH"]
    program = start_headrace(tmp_path, "run", *options, str(PROGRAM), str(folder))
    started.append(program)
    assert program.wait(240) == 0, program.report()
    told = [line.strip() for line in program.out]
    assert "FAILED ONCE True" in told, program.report()
    assert "WRITTEN True 500" in told, program.report()
    assert "TOLD ['FINISHED'] [0, 1] [0, 1000]" in told, "what came with the attempts that count"
    assert [line for line in told if line.startswith("CONNECTED")] == [
        "CONNECTED first Row(Name='x', name=None, day=datetime.date(2024, 2, 29), price=Decimal('1.50'))",
        "CONNECTED first Row(Name='y', name='z', day=None, price=None)",
        "CONNECTED second 1",
        "CONNECTED second 2",
    ]
    assert "CALLED 10" in told, "functions run once, however many read what they give"
    assert "FROZEN True" in told, "collections of garbage do not walk through all modules"
    assert "PROCESSES True" in told, "three slots have three processes, whatever jobs they run"
    branches = sorted(
        line.rpartition("> ")[2] for line in told if "('even'" in line or "('sum'" in line
    )
    assert branches == [*(f"('even', {number})" for number in (0, 2, 4, 6, 8)), "('sum', 45)"]
    assert sorted(line.rpartition("> ")[2] for line in told if line[-1:] in "67") == ["6", "7"]
    (error,) = [line for line in told if line.startswith("ERROR")]
    assert (
        error.startswith("ERROR ZeroDivisionError")
        and f"{PROGRAM}, line {line_of('return 1 //')}" in error
    )
    program.assert_nothing_is_left()


@pytest.mark.long
def test_sinks_hold_each_record_once_where_workers_and_executors_are_killed(
    tmp_path: Path, started: list[Program]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    options = {
        "execution.runtime-mode": "BATCH",
        # Records are dealt one by one, so that each one's subtask depends on all before it.
        "headrace.network.rebalance-whole-batch-rows": "0",
    }
    given = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    arguments = ("run", "--master", "local-cluster[2,2,1024]", *given, str(LOSSES), str(folder))
    program = start_headrace(tmp_path, *arguments, environment={"PYTHONPATH": str(ROOT)})
    started.append(program)
    assert program.wait(280) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    assert told["KILLED"] == "True True True", program.report()
    assert int(told["AGAIN"]) >= 2, "stages whose output was lost have run again"
    assert told["FILES"] == "True 20011", program.report()
    assert told["TABLE"] == "True 20011", program.report()
    program.assert_nothing_is_left()


def test_a_function_that_fills_its_worker_fails_with_the_cause_and_its_place(
    tmp_path: Path, started: list[Program]
) -> None:
    options = {"execution.runtime-mode": "BATCH", "headrace.taskmanager.memory.limit": "500 mb"}
    given = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    program = headrace_run(tmp_path, GROWING_FUNCTIONS, "--master", "local[2]", *given)
    started.append(program)
    assert program.wait(280) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    cause = "but may hold only 524.3 MB ('headrace.taskmanager.memory.limit')"
    assert told["GROW"].startswith("StageMemoryError: subtask of '"), program.report()
    assert cause in told["GROW"] and "(in operator 'Map" in told["GROW"]
    assert f"{tmp_path / 'program.py'}, line 10" in told["GROW"]
    # Its process has ended, and the cause came all the same.
    assert cause in told["GROW_IN_ANY_CASE"] and "Map" in told["GROW_IN_ANY_CASE"]
    program.assert_nothing_is_left()


def test_rows_are_committed_once_at_the_end_although_a_task_and_two_commits_fail(
    tmp_path: Path, started: list[Program]
) -> None:
    with running_server() as server, connect(server) as connection:
        connection.autocommit = True
        connection.execute("CREATE TABLE results (number int)")
        # A sequence keeps its number where the transaction is rolled back, with the end of its connection.
        connection.execute("CREATE SEQUENCE tries")
        connection.execute(ENDING_CONNECTIONS)
        connection.execute(
            "CREATE TRIGGER ending BEFORE INSERT ON results EXECUTE FUNCTION end_twice()"
        )
        options = ["--master", "local[2,2]", "-D", "execution.runtime-mode=BATCH"]
        arguments = (server.url, str(tmp_path / "failed"))
        program = headrace_run(tmp_path, COMMITTING, *options, arguments=arguments)
        started.append(program)
        assert program.wait(280) == 0, program.report()
        assert [line.rpartition("> ")[2] for line in program.out] == ["SEEN 0\n"], (
            "rows appear at the job's end"
        )
        assert (tmp_path / "failed").exists()
        rows = connection.execute("SELECT number FROM results").fetchall()
        assert sorted(rows) == [(number,) for number in range(1_000)], program.report()
        assert connection.execute("SELECT last_value >= 3 FROM tries").fetchone() == (True,)
        assert connection.execute("SELECT count(*) FROM headrace_staging").fetchone() == (0,)
    program.assert_nothing_is_left()


def test_ctrl_c_ends_the_stages_of_a_job_and_deletes_what_it_has_prepared(
    tmp_path: Path, started: list[Program]
) -> None:
    options = ("--master", "local[2]", "-D", "execution.runtime-mode=BATCH")
    folder = tmp_path / "out"
    program = headrace_run(tmp_path, ENDLESS_FUNCTION, *options, arguments=(str(folder),))
    started.append(program)
    program.wait_for_line("PREPARED", 150)
    program.interrupt()
    assert program.wait(60) == 130, program.report()
    assert list(folder.rglob("*")) == []
    program.assert_nothing_is_left()


def test_a_job_ends_with_what_killed_its_job_master_and_the_next_one_runs(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, FAILING_MASTER, "-D", "execution.runtime-mode=BATCH")
    started.append(program)
    assert program.wait(240) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    failed = told["FAILED"]
    assert "a bug in the JobMaster" in failed and "job 'broken'" in failed, program.report()
    assert told["STAGES"] == "0", "the stages of the job are cancelled with it"
    assert told["LATE"] == "[1, 4, 9]"


def test_a_job_that_fails_ends_the_stage_of_rows_that_are_kept_and_deletes_what_its_log_was_to_get(
    tmp_path: Path, started: list[Program]
) -> None:
    options = ("--master", "local[4]", "-D", "execution.runtime-mode=BATCH")
    program = headrace_run(tmp_path, FAILING_BESIDE_KEPT_ROWS, *options, arguments=(str(tmp_path),))
    started.append(program)
    assert program.wait(240) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    assert "LookupError: beside the rows that are kept" in told["FAILED"], program.report()
    assert told["LEFT"] == "[] []", program.report()
    program.assert_nothing_is_left()


@pytest.mark.long
def test_dataframes_are_part_of_the_plan_on_both_sides(
    tmp_path: Path, started: list[Program]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    options = ["--master", "local[2]", "-D", "execution.runtime-mode=BATCH"]
    program = start_headrace(tmp_path, "run", *options, str(DATAFRAMES), str(folder))
    started.append(program)
    assert program.wait(280) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    assert told["FEW"] == str([(n, 2.0 * n) for n in range(10) if n != 3]), program.report()
    plan = [line for line in program.out if line.startswith("PLAN")]
    assert any("LessThan(id,10)" in line for line in plan), plan
    assert any("struct<id:bigint,half:double,name:string>" in line for line in plan), plan
    assert told["SHARES"] == "[0, 1] [0, 1, 2, 3, 4, 5]"
    assert told["ADAPTIVE"] == "1 [0, 1, 2, 3] 100", "subtasks stay apart, queries do not"
    assert told["READERS"] == "[0, 1] True", program.report()
    assert told["SKEWED"] == "True 40000 101", "a key is in one subtask"
    newest = [(key, (4995 + key) * 1000 % 1_000_000) for key in range(5)]
    assert told["WRITTEN"] == f"{newest} BATCHES [(5000, 1)]"
    assert told["FILES"] == "['in', 'out']", "rows pass through no files of ours"
    assert told["LAZY"] == "True ['key', 'n'] 0", "nothing runs before somebody asks"
    assert told["JOINED"] == "[(0, 1000, 'zero'), (1, 1000, 'one')] 5000"
    assert told["ERROR"].startswith("ZeroDivisionError"), program.report()
    assert f"{DATAFRAMES}, line {line_of('return 1 //', DATAFRAMES)}" in told["ERROR"]
    program.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("seed", "program_count"),
    [
        (1402, 3),
        # More of the same: HEADRACE_SEED=<number> draws others.
        pytest.param(SEED, 10, marks=pytest.mark.repetition("three drawn programs run above")),
    ],
)
@pytest.mark.long
def test_spark_aggregates_dataframes_where_results_are_those_of_streaming_mode(
    tmp_path: Path, started: list[Program], seed: int, program_count: int
) -> None:
    arguments = (str(AGGREGATES), str(seed), str(program_count))
    program = start_headrace(tmp_path, "run", "--master", "local[4]", *arguments)
    started.append(program)
    assert program.wait(280) == 0, f"HEADRACE_SEED={seed}\n{program.report()}"
    lines = [line.strip() for line in program.out]
    told = dict(line.partition(" ")[::2] for line in lines)
    assert not {"WRONG", "DIFFERENT"} & told.keys(), f"HEADRACE_SEED={seed}\n{program.report()}"
    assert lines.count("COMPARED") == program_count
    assert told["FLOATING"] == "False True True", "Spark adds floating numbers in another order"
    assert told["SHUFFLED"] == "True True"
    assert told["EMPTY"] == "0 0"
    errors = [line for line in lines if line.startswith("ERROR")]
    *far, no_key = errors
    assert len(far) == 2, errors
    for line, value in zip(far, ("null", "9223372036854775806"), strict=True):
        assert "column 'ms': the event time is null or too far" in line
        assert f" for windows of 1000 ms: {value} " in line
    assert "the key from column 'name'" in no_key, errors


def test_rest_shows_jobs_as_they_run_and_when_they_have_ended(
    tmp_path: Path, started: list[Program]
) -> None:
    folder = tmp_path / "files"
    (folder / "archives").mkdir(parents=True)
    options = {
        "execution.runtime-mode": "BATCH",
        "jobmanager.archive.fs.dir": str(folder / "archives"),
        "web.refresh-interval": "50 ms",
        "rest.port": "0",
    }
    given = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    given += ["--master", "local[2]", "--progress"]
    # The program looks its own cluster up: those of programs beside it are not to be found.
    home = {"HEADRACE_HOME": str(tmp_path / "home")}
    arguments = ("run", *given, str(FACES), str(folder))
    program = start_headrace(tmp_path, *arguments, environment=home)
    started.append(program)
    assert program.wait(280) == 0, program.report()
    lines = [line.strip() for line in program.out]
    told = dict(line.partition(" ")[::2] for line in lines)
    # The collection's subtask has ended, two functions wait: their stage's producers came before.
    assert told["RUNNING"].startswith("RUNNING BATCH ['"), program.report()
    assert "'RUNNING'" in told["RUNNING"]
    vertices = [line.split()[-3:] for line in lines if line.startswith("VERTEX")]
    assert [one[0] for one in vertices] == ["FINISHED"] * len(vertices), vertices
    assert [(int(one[1]), int(one[2])) for one in vertices] == [(0, 100), (100, 100), (100, 0)]
    assert told["ENDED"] == "FINISHED {'Map.seen': 100.0}"
    measured = [("Map.last", 99.0), ("Map.values_count", 50.0), ("Map.values_max", 99.0)]
    metrics = ast.literal_eval(told["METRICS"])
    assert [(name, most) for name, most, _ in metrics] == measured, metrics
    assert metrics[1][2] == 100.0, "the distributions of both subtasks"
    assert told["PLAN"] == "[2, 2, 1]"
    assert "(1/2)" in told["EXCEPTION"] or "(2/2)" in told["EXCEPTION"], told["EXCEPTION"]
    assert f"{FACES}, line {line_of('return 1 //', FACES)}" in told["EXCEPTION"]
    assert "has no savepoints" in told["SAVEPOINT"]
    assert "'CANCELED'" in told["CANCELED"]
    assert told["ARCHIVED"] == "True"
    shown = [
        line for line in program.err if "RUNNING (" in line and "subtasks have finished" in line
    ]
    assert shown, program.report()
    program.assert_nothing_is_left()

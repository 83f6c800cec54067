"""Wrong programs on real Spark: the first line names cause, operator, file and line; nothing is left running."""

import ast
import re
import socket
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

HEAD = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3], type_info=Types.LONG())
"""
TAIL = """
env.execute("wrong")
"""
FAILED = re.compile(r"^job 'wrong' \([0-9a-f]{32}\) FAILED$")


class Runs:
    """Starts programs and ends them with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made: list[Program] = []

    def failing(self, body: str, *options: str) -> str:
        """Run a program whose job must fail and leave nothing; return its error's first line."""
        program = self._ending_in_error(body, options)
        assert any(FAILED.search(line) for line in program.err), program.report()
        return program.error_line()

    def refused(self, body: str, *options: str) -> str:
        """Run a program that must be refused before there is a job; return its error's first line."""
        program = self._ending_in_error(body, options)
        assert not any(FAILED.search(line) for line in program.err), program.report()
        return program.error_line()

    def _ending_in_error(self, body: str, options: tuple[str, ...]) -> Program:
        program = headrace_run(self.directory, HEAD + body + TAIL, "--master", "local[3]", *options)
        self.made.append(program)
        assert program.wait() == 1, program.report()
        program.assert_nothing_is_left()
        return program


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    for program in made.made:
        program.end()


def line_of(body: str, marker: str) -> int:
    """Number of the line with `marker` in the program."""
    return (HEAD + body).split("\n").index(
        next(line for line in (HEAD + body).split("\n") if marker in line)
    ) + 1


SEVERAL = """
import sys, threading
from headrace.core.error_text import describe

def fail():
    # As the command line tells of an error that ends a program.
    try:
        env.execute("wrong")
    except Exception as error:
        print("TOLD", repr(describe(error, wants_details=False)))

def reciprocal(n):
    return 1 // (n - 2)  # boom

numbers.map(reciprocal, output_type=Types.LONG()).name("reciprocals").print()
fail()
lock = threading.Lock()

def locked(n):  # here
    with lock:
        return n

numbers.map(locked, output_type=Types.LONG()).name("locked").print()
fail()
env.set_parallelism(8)
numbers.rebalance().map(lambda n: n).print()
fail()
env.set_parallelism(1)
sys.path.insert(0, "elsewhere")
import only_here
numbers.map(lambda n: only_here.double(n), output_type=Types.LONG()).name("double").print()
fail()
numbers.map(lambda n: f"number {n}", output_type=Types.LONG()).name("texts").print()
fail()
numbers.flat_map(lambda n: n, output_type=Types.LONG()).name("flat").print()
"""


def test_each_wrong_job_of_a_program_is_told_by_operator_and_line(runs: Runs) -> None:
    # Not in the working directory: workers on this machine would find it there.
    (runs.directory / "elsewhere").mkdir()
    (runs.directory / "elsewhere" / "only_here.py").write_text("def double(n):\n    return 2 * n\n")
    wrong_return = runs.failing(SEVERAL)
    told = [ast.literal_eval(line.removeprefix("TOLD ")) for line in runs.made[-1].out]
    raised, unpicklable, too_many, missing_module, unfit_record = (lines[0] for lines in told)
    has_failed = [any(FAILED.search(line) for line in lines) for lines in told]
    assert has_failed == [True, False, False, True, True], "two are refused before there is a job"

    assert raised.startswith("ZeroDivisionError")
    assert "operator 'reciprocals'" in raised
    assert f"program.py, line {line_of(SEVERAL, '# boom')}" in raised

    assert "operator 'locked'" in unpicklable
    assert "cannot be pickled" in unpicklable
    assert f"program.py, line {line_of(SEVERAL, '# here')}" in unpicklable

    assert "needs 8 slot(s)" in too_many
    assert "local[3]" in too_many

    assert missing_module.startswith("ModuleNotFoundError: No module named 'only_here'")
    assert "cannot be loaded on the worker; ship its modules with --python-files" in missing_module
    assert "operator 'double'" in missing_module
    assert f"program.py, line {line_of(SEVERAL, 'only_here.double')}" in missing_module

    assert "does not fit its declared type" in unfit_record
    assert "operator 'texts'" in unfit_record
    assert f"program.py, line {line_of(SEVERAL, 'texts')}" in unfit_record

    assert wrong_return.startswith("TypeError")
    assert "operator 'flat'" in wrong_return
    assert f"program.py, line {line_of(SEVERAL, 'flat_map')}" in wrong_return


def test_modules_of_the_command_line_and_those_that_a_program_adds_for_a_first_and_a_later_job(
    runs: Runs,
) -> None:
    (runs.directory / "elsewhere").mkdir()
    for name in ("shipped", "early", "late"):
        (runs.directory / "elsewhere" / name).mkdir()
        (runs.directory / "elsewhere" / name / f"{name}.py").write_text(
            "def double(n):\n    return 2 * n\n"
        )
    body = """
import shipped
env.add_python_file("elsewhere/early/early.py")
import early
quadruple = lambda n: early.double(shipped.double(n))
print(numbers.map(quadruple, output_type=Types.LONG()).execute_and_collect(limit=9))
env.add_python_file("elsewhere/late/late.py")
import late
numbers.map(lambda n: late.double(n), output_type=Types.LONG()).print()
"""
    shipped = ("--python-files", str(runs.directory / "elsewhere" / "shipped"))
    program = headrace_run(runs.directory, HEAD + body + TAIL, "--master", "local[3]", *shipped)
    runs.made.append(program)
    assert program.wait() == 0, program.report()
    assert [line.strip() for line in program.out] == ["[4, 8, 12]", "2", "4", "6"]
    program.assert_nothing_is_left()


def test_no_slot_within_the_timeout(runs: Runs) -> None:
    body = """
from headrace.common import WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.lifecycle import JobStatus

env.from_source(
    DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=10),
    WatermarkStrategy.no_watermarks(), "numbers",
).set_parallelism(2).filter(lambda n: False).print()
numbers.print()
env.execute_async("the first job takes both slots")
numbers = env.from_collection([1], type_info=Types.LONG())
numbers.print()
"""
    line = runs.failing(body, "-D", "slot.request.timeout=4 s")
    assert "did not become available within 4000 ms (slot.request.timeout)" in line
    assert re.search(r"1 slot\(s\) for 'Source: .*' \(.*\.py, line \d+\)", line)


def test_a_program_that_ends_before_its_job(runs: Runs) -> None:
    body = """
from headrace.common import WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource

endless = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=10)
env.from_source(endless, WatermarkStrategy.no_watermarks(), "numbers").filter(lambda n: False).print()
env.execute_async("left behind")
raise SystemExit
"""
    line = runs.refused(body)
    assert re.match(
        r"job 'left behind' \([0-9a-f]{32}\) was still (INITIALIZING|CREATED|RUNNING) when the program",
        line,
    )
    assert "client.get_job_execution_result().result()" in line


def test_a_job_that_failed_while_the_program_looked_elsewhere(runs: Runs) -> None:
    body = """
from headrace.core.lifecycle import JobStatus

numbers.map(lambda n: 1 // (n - 2), output_type=Types.LONG()).name("reciprocals").print()
client = env.execute_async("unseen")
while client.get_job_details().result().status is not JobStatus.FAILED:
    pass
raise SystemExit
"""
    line = runs.refused(body)
    assert line.startswith("ZeroDivisionError")
    assert "operator 'reciprocals'" in line


def test_another_library_version_on_the_workers(runs: Runs) -> None:
    # As if the driver had another version: the workers' own is what it is.
    body = """
import headrace.cluster.cluster as cluster
real = cluster.software_versions()
cluster.software_versions = lambda: {**real, "cloudpickle": "1.2.3"}
numbers.print()
"""
    line = runs.failing(body)
    assert "version of cloudpickle differs: 1.2.3 on the driver" in line
    assert "PYSPARK_PYTHON" in line


def test_workers_whose_python_lacks_headrace(runs: Runs) -> None:
    bare = runs.directory / "bare"
    venv.create(bare, symlinks=True, with_pip=False)
    line = runs.failing(
        "numbers.print()\n", "-D", f"spark.pyspark.python={bare / 'bin' / 'python'}"
    )
    assert "TaskManagers cannot run in Spark's Python workers" in line
    assert "No module named" in line


def test_a_port_that_is_taken(runs: Runs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = runs.refused("numbers.print()\n", "-D", f"jobmanager.rpc.port={port}")
    assert f"port {port}" in line
    assert "jobmanager.rpc.port" in line


def test_a_data_port_that_two_task_managers_cannot_share(runs: Runs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    body = "numbers.rebalance().map(lambda n: n).set_parallelism(2).print()\n"
    line = runs.failing(body, "-D", f"taskmanager.data.port={port}")
    assert line.startswith(f"a TaskManager cannot start: port {port} on 127.0.0.1 is in use")
    assert "taskmanager.data.port" in line


NEIGHBOURS = """
from headrace.common import WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.lifecycle import ExecutionState

def attempt():
    (vertex,) = first.get_job_details().result().vertices
    (subtask,) = vertex.subtasks
    return subtask.state, subtask.attempt_number

endless = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=10)
env.from_source(endless, WatermarkStrategy.no_watermarks(), "endless").filter(lambda n: False).print()
first = env.execute_async("first")
while attempt()[0] is not ExecutionState.RUNNING:
    pass
numbers.print()
try:
    env.execute("second")
except Exception as error:
    print("SECOND", error)
print("FIRST", *attempt())
first.cancel().result()
raise SystemExit
"""


def test_a_data_port_that_is_taken_fails_the_job_that_needs_it_and_no_other(runs: Runs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    options = ("--master", "local[3]", "-D", f"taskmanager.data.port={port}")
    program = headrace_run(runs.directory, HEAD + NEIGHBOURS, *options)
    runs.made.append(program)
    assert program.wait() == 0, program.report()
    told = [line.strip() for line in program.out if line.startswith(("SECOND", "FIRST"))]
    assert told[0].startswith(f"SECOND a TaskManager cannot start: port {port} on 127.0.0.1")
    assert "taskmanager.data.port" in told[0]
    assert told[1:] == ["FIRST ExecutionState.RUNNING 0"]
    program.assert_nothing_is_left()


def test_a_setting_of_spark_that_contradicts_is_refused(runs: Runs) -> None:
    line = runs.refused("numbers.print()\n", "-D", "spark.speculation=true")
    assert "spark.speculation=true" in line
    assert "second copy" in line

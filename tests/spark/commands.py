"""Commands: the command line of one user, with a home of its own, and programs that it runs."""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from testkit.exactly_once import compare_output, lines_of_files
from tests.spark.programs import Program, start

NO_UI: Final = ("-D", "spark.ui.enabled=false")
HEADRACE: Final = str(Path(sys.executable).parent / "headrace")
SQUARES = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1, 2, 3], type_info=Types.LONG())
with numbers.map(lambda n: n * n, output_type=Types.LONG()).execute_and_collect() as rows:
    print("COLLECTED", sorted(rows))
"""
ENDLESS = """
import sys
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=20),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
numbers.map(lambda n: f"number {n}", output_type=Types.STRING()).print()
env.execute(sys.argv[1])
"""


class Commands:
    """The command line of one user, whose programs lie in `folder`."""

    def __init__(self, folder: Path, started: list[Program]) -> None:
        self.folder: Final = folder
        self._started: Final = started
        for name, text in (("squares.py", SQUARES), ("endless.py", ENDLESS)):
            (folder / name).write_text(text)

    def begin(self, *command: str, **environment: str) -> Program:
        """Start any command as this user, and do not wait for it."""
        home = {"HEADRACE_HOME": str(self.folder / "home")}
        program = start(list(command), self.folder, {**home, **environment})
        self._started.append(program)
        return program

    def daemon(self, *arguments: str) -> Program:
        """Run a command that leaves a daemon behind, whose processes carry the mark of what is returned."""
        program = self.begin(HEADRACE, *arguments)
        assert program.wait(150) == 0, program.report()
        return program

    def __call__(self, *arguments: str) -> str:
        program = self.daemon(*arguments)
        for reader in program.readers:
            reader.join(10)
        return "".join(program.out)

    def answer(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def running_jobs(self, *place: str) -> dict[str, str]:
        """Ids of running jobs by their names."""
        jobs = self.answer("list", *place)["jobs"]
        return {job["name"]: job["job-id"] for job in jobs if job["state"] == "RUNNING"}


COUNTS = """
import sys
from headrace.common import Encoder, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import ValueStateDescriptor

COUNT, RATE = {count}, {rate}


class Counter(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield f"{{value}} {{seen}}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, COUNT, type_info=Types.LONG(), rows_per_second=RATE),
    WatermarkStrategy.no_watermarks(),
    "numbers",
).uid("numbers")
keyed = numbers.key_by(lambda n: n % 7, Types.LONG())
lines = keyed.process(Counter(), Types.STRING()).uid("counter")
{more}lines.sink_to(FileSink.for_row_format("lines", Encoder.simple_string_encoder()).build()).uid("lines")
env.execute("counts")
"""


def counts_program(count: int, rate: int, more: str = "") -> str:
    """Return a program that writes, for each number, a line with it and how many of its key there were until then.

    `rate`: numbers per second. `more`: a statement about `lines` before they are written.
    """
    return COUNTS.format(count=count, rate=rate, more=f"{more}\n" if more else "")


def check_counts(folder: Path, count: int, shape: str = r"(\d+) (\d+)") -> None:
    """Raise AssertionError unless the lines are those of every number once, whatever runs wrote them."""
    lines = [line for unit in lines_of_files(folder / "lines").values() for line in unit]
    found = [re.fullmatch(shape, line) for line in lines]
    assert all(found), (
        f"lines of another form: {[line for line in lines if not re.fullmatch(shape, line)][:5]}"
    )
    pairs = [(int(one[1]), int(one[2])) for one in found if one is not None]
    compare_output([n for n in range(count)], [number for number, _ in pairs]).check()
    expected = [(key, seen + 1) for key in range(7) for seen in range(len(range(key, count, 7)))]
    compare_output(expected, [(number % 7, seen) for number, seen in pairs]).check()

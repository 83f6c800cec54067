"""An application of two jobs with exactly-once output, whose drivers die at moments that a test names."""

import os
from collections import Counter
from pathlib import Path
from typing import Final

from testkit.waiting import wait_until
from tests.integration.programs.committed_lines import committed_lines
from tests.spark.commands import HEADRACE, NO_UI, Commands
from tests.spark.programs import Program

COUNT, RATE = 1_000, 250
"""Lines of each job, and how many it writes per second."""
JOBS: Final = """
import os
import signal
import sys
import time
from pathlib import Path

from headrace.common import Encoder, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.process.failpoints import Failpoint, arm_with
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.connectors.file_system import FileSink

COUNT, RATE = {count}, {rate}
deaths = [word for word in sys.argv[1:] if word != "waits" and not Path(f"died-{{word}}").exists()]


def die(where):
    Path(f"died-{{where}}").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def may_die(where):
    if where in deaths:
        die(where)


def prepare(name):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_source(
        DataGeneratorSource(lambda index: index, COUNT, type_info=Types.LONG(), rows_per_second=RATE),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    )
    lines = numbers.map(lambda n: f"{{name}} {{n}}", output_type=Types.STRING()).name({operator!r})
    lines.sink_to(FileSink.for_row_format("lines", Encoder.simple_string_encoder()).build())
    return env


def write(name):
    print(f"job {{name}}: {{prepare(name).execute(name).get_job_id()}}", flush=True)


print("main begins", flush=True)
while "waits" in sys.argv and not Path("go").exists():
    time.sleep(0.05)
may_die("before-submission")
for point, where in (
    (Failpoint.CHECKPOINT_PUBLISHED, "while-it-runs"),
    (Failpoint.RESULT_STORED, "after-its-result"),
):
    if where in deaths:
        arm_with(point, lambda where=where: die(where), time=2 if where == "while-it-runs" else 1)
{jobs}
"""
TWO_JOBS: Final = """
write("one")
may_die("between-jobs")
write("two")
"""
CLIENTS_OF_JOBS: Final = """
client = prepare("one").execute_async("one")
result = client.get_job_execution_result().result()
status, accumulators = client.get_job_status().result(), client.get_accumulators().result()
print(f"job one: {result.get_job_id()}", flush=True)
print(f"end of one: {result.get_net_runtime()} ms, {status.name}, {accumulators}", flush=True)
may_die("between-jobs")
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, COUNT, type_info=Types.LONG(), rows_per_second=RATE),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
found = []
with numbers.execute_and_collect("collected") as rows:
    for number in rows:
        found.append(number)
        if number == RATE:
            print("collects", flush=True)
            may_die("while-it-collects")
print(f"collected each once: {sorted(found) == list(range(COUNT))}", flush=True)
print(f"job two: {prepare('two').execute_async('two').get_job_id()}", flush=True)
"""


def two_jobs(
    operator: str = "lines", last: str = "", rate: int = RATE, jobs: str = TWO_JOBS
) -> str:
    """Return the program, with `last` as a statement at its end.

    `jobs`: statements that run jobs `one` and `two`, each by its `execute`, or by clients. The program's arguments are
    moments at which a driver dies, once each, and `waits`, for main to wait for a file `go`.
    """
    return JOBS.format(count=COUNT, rate=rate, operator=operator, jobs=jobs + last)


def expected_lines() -> Counter[str]:
    return Counter(f"{name} {number}" for name in ("one", "two") for number in range(COUNT))


class ApplicationDrivers:
    """Drivers of one application, whose program is `two.py` in `folder`."""

    def __init__(self, folder: Path, commands: Commands, election: dict[str, str]) -> None:
        """`election`: settings of the place of the election."""
        self.folder: Final = folder
        self.commands: Final = commands
        named = {"high-availability.type": "file"} | election
        self.options: Final = (
            *(word for key, value in named.items() for word in ("-D", f"{key}={value}")),
            "-D", f"high-availability.storageDir={folder / 'ha'}",
            "-D", "high-availability.cluster-id=two",
            "-D", f"headrace.checkpoint.key-file={folder / 'key'}",
            "-D", "execution.checkpointing.interval=300 ms",
            *NO_UI,
        )  # fmt: skip
        self.write(two_jobs())

    def write(self, text: str) -> None:
        (self.folder / "two.py").write_text(text)

    def start(self, *words: str, arguments: tuple[str, ...] = ()) -> Program:
        """Start a driver in the foreground."""
        return self.commands.begin(HEADRACE, "run", *words, *self.options, "two.py", *arguments)

    def start_pair(self) -> tuple[Program, Program]:
        """Start a driver that leads, whose main waits for the file `go`, and one that stands by."""
        first = self.start(arguments=("waits",))
        first.wait_for_line("main begins")
        second = self.start("--standby", arguments=("waits",))
        wait_until(
            lambda: any("standby: takes over" in line for line in second.err), 150, "a standby"
        )
        return first, second

    def go(self) -> None:
        """Let a main that waits go on."""
        (self.folder / "go").touch()

    def output(self) -> Counter[str]:
        return committed_lines(self.folder / "lines")

    def stored_files(self) -> list[str]:
        """Files of jobs that the storage still has. A leader's list of jobs stays as its record does."""
        return [
            f"{place}/{name}"
            for part in ("jobs", "job-results")
            for place, _, names in os.walk(self.folder / "ha" / "two" / part)
            for name in names
            if not name.startswith("recovered-")
        ]


def job_ids(lines: list[str]) -> dict[str, set[str]]:
    """Ids that mains have printed, by the names of their jobs."""
    found: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith("job "):
            name, job_id = line.removeprefix("job ").strip().split(": ")
            found.setdefault(name, set()).add(job_id)
    return found

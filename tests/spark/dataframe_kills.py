"""Kills on both sides of a streaming DataFrame: of TaskManagers, of Spark's workers that push rows, and of drivers.

`make chaos PART=dataframes` draws them from several seeds, for the page of the chaos suite; a test does two of them.
"""

import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.core.randomness import SeededRandom
from testkit.exactly_once import compare_output, rows_of_parquet
from testkit.waiting import wait_until
from tests.integration.high_availability.outcomes import Outcome, run_all
from tests.spark.checkpoint_folder import newest_checkpoint
from tests.spark.processes import Process, sockets_of
from tests.spark.programs import Program, headrace_run

_FILES_PER_MICRO_BATCH: Final = 2
_ROWS_PER_FILE: Final = 200
_MICRO_BATCHES_PER_KILL: Final = 4
"""Until the moment, then until another one is committed; and the last ones come in peace."""
_DELAY_MAX_MS: Final = 800
"""About a micro-batch, so that a moment may lie anywhere in one."""
_PATIENCE_S: Final = 200.0
_RECOVERY_MAX_S: Final = 60.0
_PROGRAM: Final = f"""
import pathlib, sys, time
from headrace.common import Types
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

here = pathlib.Path.cwd()
(here / "in").mkdir(exist_ok=True)
for index in range(int(sys.argv[1])):
    file = here / "in" / f"{{index:02d}}.csv"
    if not file.exists():
        unfinished = here / "unfinished.csv"
        unfinished.write_text("".join(f"{{index * {_ROWS_PER_FILE} + n}}\\n" for n in range({_ROWS_PER_FILE})))
        unfinished.rename(file)

def slowly(row):
    time.sleep(0.002)
    return (row.id % 7, row.id)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
files = spark_session().readStream.schema("id bigint").option("maxFilesPerTrigger", {_FILES_PER_MICRO_BATCH})
files = files.csv(str(here / "in"))
rows = env.from_dataframe(files, trigger={{"availableNow": True}}, checkpoint_location="query")
pair = Types.ROW_NAMED(["key", "id"], [Types.LONG(), Types.LONG()])
pairs = rows.map(slowly, output_type=pair).key_by(lambda row: row.key)
pairs.map(lambda row: (row.key, row.id), output_type=pair).sink_to(DataFrameSink("out", mode="append"))
env.execute("files")
"""


class Victim(enum.Enum):
    """Processes that are killed."""

    TASK_MANAGER = "a TaskManager"
    PUSHER = "a worker of Spark's that pushed rows"
    EXECUTOR = "the executor of a worker that pushed rows"
    DRIVER = "the driver"


LOCAL: Final = ("--master", "local[6]")
_PUSHING: Final = (Victim.PUSHER, Victim.EXECUTOR)
_LOCAL_VICTIMS: Final = (
    *(Victim.TASK_MANAGER, Victim.PUSHER, Victim.DRIVER),
    *(Victim.TASK_MANAGER, Victim.PUSHER),
)


@dataclass(frozen=True)
class _PlannedKill:
    """A victim, and its moment: `delay_ms` after Spark notes that a micro-batch begins, or ends, `skipped` later."""

    victim: Victim
    is_after_end: bool
    skipped: int
    delay_ms: int

    def __str__(self) -> str:
        begins_or_ends = "end" if self.is_after_end else "begin"
        return (
            f"{self.victim.value}, {self.delay_ms} ms after the {begins_or_ends} of a micro-batch"
        )


def kill_drawn(
    folder: Path,
    started: list[Program],
    seed: int,
    victims: Sequence[Victim] = _LOCAL_VICTIMS,
    cluster: Sequence[str] = LOCAL,
) -> Outcome:
    """Kill one victim after another at moments drawn from `seed`, their order too; compare all rows at the end.

    The time of the outcome is the longest from a kill until the query has committed another micro-batch.
    """
    generator = SeededRandom(seed)
    kills = [
        _PlannedKill(
            victim,
            generator.random() < 0.5,
            generator.randrange(2),
            generator.randrange(_DELAY_MAX_MS),
        )
        for victim in generator.sample(victims, len(victims))
    ]
    query = folder / "query"
    micro_batch_count = _MICRO_BATCHES_PER_KILL * (len(victims) + 1)
    file_count = micro_batch_count * _FILES_PER_MICRO_BATCH
    program = _start(folder, started, file_count, cluster)
    recoveries_s: list[float] = []
    mistakes: list[str] = []
    for kill in kills:
        # A killed driver's successor goes on from a checkpoint, which the first committed micro-batch has.
        _await_noted(program, query, "commits", 0)
        if not _await_moment(program, query, kill):
            mistakes.append(f"the job had ended before this kill: {kill}")
            break
        if not _kill(program, kill.victim, generator):
            mistakes.append(f"nobody was there for this kill: {kill}")
            break
        killed_s, committed = time.monotonic(), _noted(query, "commits")
        if kill.victim is Victim.DRIVER:
            program.process.wait(10)
            restoring = ("-s", str(newest_checkpoint(folder)[1]))
            program = _start(folder, started, file_count, (*cluster, *restoring))
        _await_noted(program, query, "commits", committed + 1)
        recoveries_s.append(time.monotonic() - killed_s)
    if program.wait(_PATIENCE_S) != 0:
        mistakes.append(f"the job failed: {program.report()[-2000:]}")
    found = [row for rows in rows_of_parquet(folder / "out").values() for row in rows]
    expected = [(number % 7, number) for number in range(file_count * _ROWS_PER_FILE)]
    verdict = compare_output(expected, found)
    if not verdict.is_exact:
        mistakes.append(f"oracle: {verdict}")
    for each in started:
        wait_until(lambda each=each: not each.processes(), _PATIENCE_S, "the end of all processes")
    return Outcome(
        f"{len(victims)} victims drawn from seed {seed}",
        max(recoveries_s, default=0.0),
        tuple(mistakes),
        bound_s=_RECOVERY_MAX_S,
        kill_count=len(recoveries_s),
        note="; ".join(map(str, kills)),
    )


def _start(
    folder: Path, started: list[Program], file_count: int, options: Sequence[str]
) -> Program:
    settings = {
        "execution.checkpointing.interval": "300 ms",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "100 ms",
    }
    given = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    program = headrace_run(folder, _PROGRAM, *options, *given, arguments=(str(file_count),))
    started.append(program)
    return program


def _noted(query: Path, log: str) -> int:
    """Return the newest micro-batch in a log of the query's, -1 where there is none."""
    names = (one.name for one in (query / log).glob("*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _wait(program: Program, condition: Callable[[], bool], what: str) -> None:
    wait_until(
        lambda: condition() or program.process.poll() is not None,
        _PATIENCE_S,
        f"{what}\n{program.report()}",
    )


def _await_noted(program: Program, query: Path, log: str, micro_batch: int) -> None:
    _wait(program, lambda: _noted(query, log) >= micro_batch, f"{micro_batch} in {log}")


def _await_moment(program: Program, query: Path, kill: _PlannedKill) -> bool:
    """Return whether it came before the job's end."""
    log = "commits" if kill.is_after_end else "offsets"
    wanted = _noted(query, log) + 1 + kill.skipped
    _await_noted(program, query, log, wanted)
    noted_s = time.monotonic()
    _wait(program, lambda: time.monotonic() - noted_s >= kill.delay_ms / 1e3, "the moment")
    return program.process.poll() is None


def _kill(program: Program, victim: Victim, generator: SeededRandom) -> bool:
    """Return whether there was one."""
    if victim is Victim.DRIVER:
        program.process.kill()
        return True
    found: list[Process] = []
    # There are none while the job starts again.
    _wait(program, lambda: bool(found.extend(program.task_managers()) or found), "TaskManagers")
    if victim in _PUSHING:
        others = {one.pid for one in (*found, *program.daemons())}
        found = []

        def finds_one() -> bool:
            for one in program.processes():
                if one.is_daemon_or_worker and one.pid not in others and _pushes(one):
                    found.append(one)
            return bool(found)

        _wait(program, finds_one, "a pusher")
    if program.process.poll() is not None:
        return False
    one = generator.choice(found)
    (program.executor_of(one) if victim is Victim.EXECUTOR else one).kill()
    return True


def _pushes(worker: Process) -> bool:
    """Whether it has a Unix socket, which is that of a TaskManager on the same host: its JVM is at a port."""
    inodes = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    return any(inode in inodes for inode in sockets_of(worker.pid))


def _with_programs(seed: int) -> Callable[[Path], Outcome]:
    def run(folder: Path) -> Outcome:
        started: list[Program] = []
        try:
            return kill_drawn(folder, started, seed)
        finally:
            for program in started:
                program.end()

    return run


RUNS: Final = tuple((f"seed-{seed}", _with_programs(seed)) for seed in (1, 2, 3))


if __name__ == "__main__":
    raise SystemExit(run_all(RUNS, "dataframes", "Kill both sides of streaming DataFrames."))

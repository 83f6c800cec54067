"""A program that holds every kind of state there is, up to a savepoint and on from it to the end of its input.

All paths are below the current folder of the process, so that what was saved in one folder is restored in any other.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace import DataStream, Row, StreamExecutionEnvironment, Time, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder, Instant, RowKind
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.connectors.hybrid_source import HybridSource
from headrace.datastream import AsyncDataStream, AsyncFunction, MapFunction
from headrace.datastream.connectors.file_system import (
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    StreamFormat,
)
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.stored_savepoints.keeping import (
    ANY_RULES,
    RULES,
    SAVED,
    KeepsDeclared,
    KeepsForAWhile,
    KeepsOfSubtask,
    KeepsOfTwo,
    KeepsUndeclared,
    KeyedRules,
    Rules,
    SetsAlarm,
    SetsTimers,
)
from tests.integration.stored_savepoints.kept_values import Seat, shown
from tests.integration.stored_savepoints.signals import (
    ANSWERS,
    FIRED,
    READ,
    WAIT_S,
    Answers,
    Counted,
)
from tests.integration.stored_savepoints.windowing import (
    KEY_COUNT,
    LATE,
    LATE_ROWS,
    ROW,
    Branches,
    EveryTenthIsOld,
    TenMsApart,
    columnar_windows,
    joins,
    key_of,
    processing_time_windows,
    record_windows,
    times,
)

HERE: Final = "/proc/self/cwd"
"""An absolute path of the folder that the process is in: snapshots and positions in files hold absolute ones."""
CLUSTER: Final = {
    "taskmanager.network.memory.floating-buffers-per-gate": "1",
    "headrace.network.pinned-buffers-per-gate": "0",
}
"""Settings of the cluster: the program has many edges, with few rows on each."""
FIRST, COUNT = 13, 45
"""The numbers before the first checkpoint, and of all; those up to SAVED are before the snapshot."""
LINE_COUNT: Final = 6_000
_EVERY: Final = 500
_SLOW_S: Final = 0.015
ALARM_COUNT: Final = 4 * KEY_COUNT
"""How many timers and windows of processing time are set before the snapshot."""


@dataclass
class Run:
    """One run of the program: `path` to restore from; without one it is the first, which goes on until it is ended."""

    name: str
    backend: str
    path: str = ""
    due_ms: int = 0
    settings: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.gate = GATES[self.name] = Gate(0)
        self.read = READ[self.name] = Counted()
        self.fired = FIRED[self.name] = Counted()
        self.answers = ANSWERS[self.name] = Answers()

    @property
    def is_first(self) -> bool:
        return not self.path

    def configuration(self) -> Configuration:
        return configuration_of(
            {
                "execution.checkpointing.interval": "1 h",
                "restart-strategy.type": "none",
                "execution.checkpointing.incremental": "true",
                "headrace.checkpoint.key-file": f"{HERE}/key",
                "state.backend.type": self.backend,
                "execution.state-recovery.path": self.path,
                **self.settings,
            }
        )


def configuration_of(settings: dict[str, str]) -> Configuration:
    configuration = Configuration()
    for key, value in settings.items():
        if value:
            configuration.set_string(key, value)
    return configuration


class Counts(MapFunction):
    """Says of each number that it was read."""

    def __init__(self, run: str) -> None:
        self._run = run

    def map(self, value: int) -> int:
        READ[self._run].add_one()
        return value


class Slowly(MapFunction):
    """Lets values through one after the other, so that a savepoint finds the source in the middle."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def map(self, value: Any) -> Any:
        if self._seconds:
            threading.Event().wait(self._seconds)
        return value


class Ask(AsyncFunction[Any, Any]):
    """Answers about the numbers around the savepoint when they are released, about others at once."""

    def __init__(self, run: str) -> None:
        self._run = run

    async def async_invoke(self, value: Any) -> list[Any]:
        number = value if isinstance(value, int) else value.row
        if SAVED - 10 <= number < SAVED:
            await asyncio.wait_for(ANSWERS[self._run].event().wait(), WAIT_S)
        return [shown(value)]


def write_input(folder: Path) -> None:
    """Make the file that the program reads. Its time is whole: archives keep no more of it."""
    folder.mkdir()
    file = folder / "lines"
    file.write_text("".join(f"{number}\n" for number in range(LINE_COUNT)))
    os.utime(file, (1_600_000_000, 1_600_000_000))


def start(env: StreamExecutionEnvironment, run: Run) -> JobClient:
    """Submit the program as of a run."""
    env.configure(run.configuration())
    env.set_parallelism(2)
    count = None if run.is_first else COUNT
    source = GatedSource(run.name, count)
    late = env.from_source(source, times(EveryTenthIsOld()), "numbers", Types.INT())
    late = late.set_parallelism(1).uid("numbers").map(Counts(run.name), Types.INT())
    late = late.set_parallelism(1).uid("read numbers")
    numbers = late.assign_timestamps_and_watermarks(times(TenMsApart()))
    numbers = numbers.set_parallelism(1).uid("times")
    rows = numbers.map(_row_of, ROW).set_parallelism(1).uid("rows")
    late_rows = late.map(_row_of, ROW).set_parallelism(1).uid("late rows")
    branches = {
        **_kept(late, numbers, run),
        **record_windows(numbers, late),
        **processing_time_windows(numbers, run.name),
        **columnar_windows(rows, late_rows),
        **joins(numbers, rows),
        **_sources(env, run),
    }
    for uid in branches:
        branches[uid].uid(uid)
    branches["late"] = branches["tumbling with lateness"].get_side_output(LATE)
    branches["late in columns"] = branches["aggregates with lateness"].get_side_output(LATE_ROWS)
    _write(branches, numbers)
    return env.execute_async("keeps everything")


def _row_of(number: int) -> Row:
    values = number % KEY_COUNT, number, number % 10 / 4, f"text {number % 2}"
    return Row(**dict(zip(ROW.field_names, values, strict=True)))


def _kept(late: DataStream, numbers: DataStream, run: Run) -> Branches:
    """What functions, calls in flight and rolling aggregations keep."""
    text = Types.STRING()
    keyed = numbers.key_by(key_of, key_type=Types.INT())
    by_any = numbers.key_by(lambda n: (Row(key=n % 2), Seat(n % 2, "K")))
    before = numbers.filter(lambda n: n < SAVED).set_parallelism(1)
    behind = numbers.filter(lambda n: n >= SAVED).set_parallelism(1)
    seats = numbers.map(lambda n: Seat(n, "Q")).set_parallelism(1).uid("seats to ask about")
    pairs = numbers.map(lambda n: Row(n % KEY_COUNT, n), Types.ROW([Types.INT(), Types.INT()]))
    pairs = pairs.set_parallelism(1).uid("pairs").key_by(lambda row: row[0], key_type=Types.INT())
    ordered, unordered = AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait
    wait = Time.minutes(2)
    return {
        "declared": keyed.process(KeepsDeclared(), text),
        "undeclared": by_any.process(KeepsUndeclared(), text),
        "time to live": keyed.process(KeepsForAWhile(), text),
        "timers": late.key_by(key_of, key_type=Types.INT()).process(SetsTimers(), text),
        "timers of any keys": late.key_by(lambda n: (Row(key=n % 2), RowKind.DELETE)).process(
            SetsTimers(), text
        ),
        "alarms": keyed.process(SetsAlarm(run.name, run.due_ms), text),
        "of two": keyed.connect(behind.key_by(key_of, key_type=Types.INT())).process(
            KeepsOfTwo(), text
        ),
        "of subtasks": numbers.rebalance().process(KeepsOfSubtask(), text),
        "rules": behind.rebalance()
        .connect(before.broadcast(RULES, ANY_RULES))
        .process(Rules(), text),
        "keyed rules": keyed.connect(before.broadcast(RULES, ANY_RULES)).process(
            KeyedRules(), text
        ),
        "reduced": by_any.reduce(lambda one, other: one + other),
        "summed": pairs.sum(1),
        "highest": pairs.max_by(1),
        "asked in order": ordered(numbers, Ask(run.name), wait, 500, text).set_parallelism(1),
        "asked": unordered(seats, Ask(run.name), wait, 500, text).set_parallelism(1),
    }


def _sources(env: StreamExecutionEnvironment, run: Run) -> Branches:
    """Sources that the snapshot finds in the middle, and one that has ended; a line of each so many values."""
    lines = StreamFormat.text_line_format()
    hybrid = HybridSource.builder(NumberSequenceSource(0, 9))
    sources: dict[str, tuple[Any, Callable[[Any], int]]] = {
        "sequence": (NumberSequenceSource(1, LINE_COUNT), int),
        "generator": (DataGeneratorSource(lambda n: (n, "x"), LINE_COUNT), lambda one: one[0]),
        "files": (
            FileSource.for_record_stream_format(lines, f"{HERE}/input").build(),
            int,
        ),
        "files in pieces": (
            FileSource.for_record_stream_format(lines, f"{HERE}/input")
            .with_split_size(7_000)
            .build(),
            int,
        ),
        "hybrid": (hybrid.add_source(NumberSequenceSource(10, LINE_COUNT)).build(), int),
    }
    nothing = WatermarkStrategy.no_watermarks()
    branches: Branches = {}
    for name, (source, number_of) in sources.items():
        values = env.from_source(source, nothing, name).uid(f"source of {name}").disable_chaining()
        seconds = _SLOW_S if run.is_first else 0.0
        numbers = values.map(Slowly(seconds)).map(number_of, Types.LONG())
        branches[name] = numbers.filter(lambda number: number % _EVERY == 0)
    branches["collection"] = env.from_collection([Instant(1, 2), "a", None]).map(lambda one: one)
    return branches


def _write(branches: Branches, numbers: DataStream) -> None:
    """All into one sink, and a part into one that puts its files together."""
    texts = [
        branch.map(lambda value, uid=uid: f"{uid}: {shown(value)}", Types.STRING()).uid(
            f"lines of {uid}"
        )
        for uid, branch in branches.items()
    ]
    _sink_to("output", texts[0].union(*texts[1:]), None)
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
    some = numbers.map(lambda number: f"together: {number}", Types.STRING()).uid("some")
    _sink_to("together", some, strategy)


def _sink_to(name: str, lines: DataStream, strategy: FileCompactStrategy | None) -> None:
    encoder = Encoder.simple_string_encoder()
    sink = FileSink.for_row_format(f"{HERE}/{name}", encoder)
    if strategy is not None:
        sink.enable_compact(strategy, FileCompactor.concat_file_compactor())
    lines.sink_to(sink.build()).uid(name)


def written() -> list[str]:
    """All lines that the program has made visible, in order."""
    return sorted(
        line
        for name in ("output", "together")
        for file in Path(name).rglob("*")
        if file.is_file() and not any(part[0] in "._" for part in file.parts)
        for line in file.read_text(encoding="utf-8").splitlines()
    )


def run_to_end(env: StreamExecutionEnvironment, run: Run) -> list[str]:
    """Go on from a snapshot to the end of input; return all lines of both runs."""
    run.answers.release()
    client = start(env, run)
    run.fired.await_count(ALARM_COUNT)
    run.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    return written()

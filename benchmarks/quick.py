"""Has anything become slower? A few ratios against rivals that do the same work in the same run, below two minutes.

A ratio is the rival's time over ours, the median of paired turns: 0.5 means that we take twice as long. It is processor
time where all the work is in this process, and else time by the clock: what else the machine does falls on both, so
that ratios can be compared with those of `results/quick.json` where absolute figures cannot. One that seems worse than
the tolerance is asked once more, and the better answer counts. Exit code 1 where one still is.

    python -m benchmarks.quick [--accept] [--tolerance 25] [--only exchange state …]

`--accept` stores what was measured (of `--only`, those alone) as what later runs are compared with.
"""

import argparse
import json
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.exchange import DISTINCT_BATCHES, Consumer, Exchange, raw_seconds
from benchmarks.growth.columnar import count_in_one_window, seconds_of, write_rows
from benchmarks.network.endpoints import RowMaker, key_group_selector
from benchmarks.programs.exchange_consumer import make_batch
from benchmarks.record import RESULTS, describe_machine
from benchmarks.state.filled import FilledState, write
from headrace import StreamExecutionEnvironment
from headrace.cluster.task_executor.processor_place import take_place
from headrace.common import Types, WatermarkStrategy
from headrace.core.config import Settings
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor
from headrace.functions.discarding_sink import DiscardingSink
from headrace.functions.state import ValueStateDescriptor as StateDescriptor
from headrace.testing.minicluster_executor import MiniClusterExecutor

STORED = RESULTS / "quick.json"
TOLERANCE_PERCENT = 25
TURNS = 5
Pair = tuple[Callable[[], float], Callable[[], float]]
"""Seconds that we take, and that the rival takes, for the same work once."""


@dataclass(frozen=True)
class Verdict:
    """One question now and as it was stored; None where it was not."""

    question: str
    ratio: float
    stored: float | None
    tolerance_percent: float

    @property
    def change_percent(self) -> float | None:
        """How much better (above 0) or worse it is; None without a stored one."""
        return None if self.stored is None else 100 * (self.ratio / self.stored - 1)

    @property
    def is_worse(self) -> bool:
        """Whether it fell by more than the tolerance."""
        return self.change_percent is not None and self.change_percent < -self.tolerance_percent

    @property
    def text(self) -> str:
        """The verdict in a word."""
        if self.change_percent is None:
            return "new"
        if self.is_worse:
            return "worse"
        return "better" if self.change_percent > self.tolerance_percent else "same"


def compare(
    ratios: Mapping[str, float], stored: Mapping[str, float], tolerance_percent: float
) -> list[Verdict]:
    """Hold what was measured against what is stored, in the order of `ratios`."""
    return [
        Verdict(question, ratio, stored.get(question), tolerance_percent)
        for question, ratio in ratios.items()
    ]


def median_ratio(ours: Callable[[], float], rival: Callable[[], float], turns: int) -> float:
    """Return the median of the rival's seconds over ours, turn by turn, in changing order."""
    ratios: list[float] = []
    for turn in range(turns):
        if turn % 2 == 0:
            own_s = ours()
            rival_s = rival()
        else:
            rival_s = rival()
            own_s = ours()
        ratios.append(rival_s / own_s)
    return statistics.median(ratios)


def timed(work: Callable[[], object]) -> float:
    """Return the processor seconds that `work` takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


@contextmanager
def exchange() -> Generator[Pair]:
    """Batches of 360 KB from process to process over a Unix socket; raw blocking sockets."""
    count, kept = 300, os.sched_getaffinity(0)
    place = take_place(Settings())
    consumer = Consumer()
    batches = [make_batch(4096, seed) for seed in range(DISTINCT_BATCHES)]
    with tempfile.TemporaryDirectory() as directory:
        sender = Exchange("unix", consumer, directory)
        sender.seconds(batches, count)
        yield (
            lambda: sender.seconds(batches, count),
            lambda: raw_seconds(consumer, batches, count, directory),
        )
        sender.close()
    consumer.close()
    if place is not None:
        place.release()
    os.sched_setaffinity(0, kept)


@contextmanager
def split() -> Generator[Pair]:
    """Rows of 200 bytes dealt out to 128 channels by their keys; numpy's sort and one `take`, without cutting."""
    rows, selector = RowMaker(200), key_group_selector(128)
    batch = rows.batch()
    arrow, hashes = batch.to_arrow(), batch.key_hashes
    assert hashes is not None

    def rival() -> None:
        for _ in range(50):
            arrow.take(pa.array(np.argsort(hashes % 128, kind="stable")))

    def ours() -> None:
        for _ in range(50):
            list(selector.select(batch))

    yield lambda: timed(ours), lambda: timed(rival)


@contextmanager
def state() -> Generator[Pair]:
    """A read and a write of one of 100,000 counts in keyed state on the heap; a dictionary."""
    keys = np.random.default_rng(7).integers(0, 100_000, 200_000).tolist()
    plain = dict.fromkeys(range(100_000), 0)

    def rival() -> None:
        for key in keys:
            plain[key] = (plain.get(key) or 0) + 1

    with FilledState("heap") as filled:
        scope = filled.backend.key_scope
        count: Any = filled.backend.get_state(StateDescriptor("count", Types.LONG()), scope)

        def ours() -> None:
            for key in keys:
                scope.entry = key
                count.update((count.value() or 0) + 1)

        ours()
        yield lambda: timed(ours), lambda: timed(rival)


@contextmanager
def snapshot() -> Generator[Pair]:
    """A checkpoint's file of 100,000 values of 100 bytes; pickle of a dictionary, into a file."""
    key_count, checkpoint = 100_000, iter(range(1, 1000))
    with FilledState("heap") as filled:
        filled.fill(key_count)
        values = {key: os.urandom(100) for key in range(key_count)}
        path = Path(filled.directory, "rival")

        def ours() -> None:
            write(*filled.freeze(next(checkpoint)))

        yield lambda: timed(ours), lambda: timed(lambda: path.write_bytes(pickle.dumps(values)))


@contextmanager
def group_by() -> Generator[Pair]:
    """A job that counts two million rows of a file per key, on columns; pyarrow's group_by of the same file."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_rows(directory, 2_000_000, 10_000, duration_ms=1_000_000)

        def rival() -> None:
            pq.read_table(directory).group_by("key", use_threads=False).aggregate(
                [([], "count_all")]
            )

        yield lambda: seconds_of(directory, count_in_one_window), lambda: timed(rival)


class _Count(KeyedProcessFunction):
    """Counts per key; gives nothing."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Number in."""
        self._count.update((self._count.value() or 0) + 1)
        yield from ()


@contextmanager
def function() -> Generator[Pair]:
    """A job that counts 300,000 numbers per key, one by one, in keyed state; a loop over a dictionary."""
    number_count = 300_000

    def rival() -> None:
        counts: dict[int, int] = {}
        for number in range(number_count):
            key = number % 1000
            counts[key] = (counts.get(key) or 0) + 1

    def ours() -> float:
        with MiniClusterExecutor(slot_count=1):
            env = StreamExecutionEnvironment.get_execution_environment()
            env.set_parallelism(1)
            numbers = NumberSequenceSource(0, number_count - 1)
            stream = env.from_source(
                numbers, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
            )
            keyed = stream.key_by(lambda number: number % 1000, key_type=Types.LONG())
            keyed.process(_Count(), output_type=Types.LONG()).sink_to(DiscardingSink())
            return timed(lambda: env.execute("quick"))

    yield ours, lambda: timed(rival)


QUESTIONS: dict[str, Callable[[], Any]] = {
    one.__name__: one for one in (exchange, split, state, snapshot, group_by, function)
}


def ask(question: str) -> float:
    """Return the ratio of one question."""
    with QUESTIONS[question]() as (ours, rival):
        return median_ratio(ours, rival, TURNS)


def show(verdicts: list[Verdict], console: Console) -> None:
    """Print what moved."""
    table = Table(title="the rival's time over ours; more is better")
    for head in ("question", "stored", "now", "change", ""):
        table.add_column(head, justify="left" if head in ("question", "") else "right")
    colors = {"worse": "red", "better": "green", "new": "cyan", "same": ""}
    for verdict in verdicts:
        change = verdict.change_percent
        table.add_row(
            verdict.question,
            "" if verdict.stored is None else f"{verdict.stored:.3f}",
            f"{verdict.ratio:.3f}",
            "" if change is None else f"{change:+.0f} %",
            verdict.text,
            style=colors[verdict.text],
        )
    console.print(table)


def load_stored(file: Path) -> dict[str, float]:
    """Return the stored ratios; none where there are none."""
    return json.loads(file.read_text())["ratios"] if file.exists() else {}


def accept(ratios: Mapping[str, float], file: Path) -> None:
    """Store ratios over those that are stored, with the machine they are of."""
    rounded = {question: round(ratio, 4) for question, ratio in ratios.items()}
    stored = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine(),
        "load_average": round(os.getloadavg()[0], 2),
        "ratios": load_stored(file) | rounded,
    }
    file.write_text(json.dumps(stored, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accept", action="store_true", help="store what is measured")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE_PERCENT, help="percent")
    parser.add_argument("--only", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS))
    options = parser.parse_args()
    console = Console()
    stored = {} if options.accept else load_stored(STORED)
    ratios: dict[str, float] = {}
    for question in options.only:
        with console.status(question):
            ratios[question] = ask(question)
            (verdict,) = compare({question: ratios[question]}, stored, options.tolerance)
            if verdict.is_worse:
                ratios[question] = max(ratios[question], ask(question))
    verdicts = compare(ratios, load_stored(STORED), options.tolerance)
    show(verdicts, console)
    if options.accept:
        accept(ratios, STORED)
        console.print(f"stored in {STORED.name}", style="dim")
    elif any(verdict.is_worse for verdict in verdicts):
        raise SystemExit(f"worse by more than {options.tolerance:g} %; --accept stores what is now")


if __name__ == "__main__":
    main()

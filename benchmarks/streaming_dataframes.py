"""How many rows per second does a streaming DataFrame bring into a job, and how late are they?

A job of Headrace reads files through Spark's file source, stamps each row in an operator, and writes the rows of each
checkpoint with a function (`foreach_batch`); Structured Streaming alone does the same with `mapInArrow` and
`foreachBatch`, and its trigger is the other's checkpoint interval. They take turns as whole processes.

Rate: files that are all there before, four to a micro-batch; rows of all commits but the first, by the time from the
first to the last. Latency: a file is moved in each 100 ms; from then until its rows are seen in Python, and until the
function that writes them has returned.

    python -m benchmarks.streaming_dataframes [--repeats 3] [--seconds 20] [--rows 4000000] [--dry]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.record import show_or_record

PROGRAM: Final = Path(__file__).parent / "programs" / "streamed_rows.py"
CONTENDERS: Final = ("headrace", "spark")
INTERVALS_MS: Final = (200, 1000)
FILE_COUNT: Final = 20
FILES_PER_MICRO_BATCH: Final = 4
ROWS_PER_SMALL_FILE: Final = 100
PERIOD_S: Final = 0.1
TIMEOUT_S: Final = 300.0


class Folder:
    """What a program reads, and what it has committed."""

    def __init__(self, place: Path) -> None:
        self._place: Final = place
        self._written_count = 0
        self._counts: Final[dict[str, int]] = {}
        (place / "in").mkdir()

    def put(self, row_count: int) -> None:
        """Move a file in, whose rows hold the moment at which it came."""
        unfinished = self._place / "unfinished"
        ids = np.arange(self._written_count, self._written_count + row_count)
        written = np.full(row_count, time.time())
        pq.write_table(pa.table({"id": ids, "written": written}), unfinished)
        unfinished.rename(self._place / "in" / f"{self._written_count:09d}.parquet")
        self._written_count += row_count

    def commits(self) -> list[tuple[str, float]]:
        """Return names and moments of commits, the first one first."""
        file = self._place / "commits"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(number, float(moment)) for number, moment in map(str.split, lines)]

    def rows_of(self, name: str) -> pa.Table:
        """Return the rows of a commit."""
        return pq.read_table(self._place / "out" / name)

    def is_all_committed(self) -> bool:
        """Whether every row is in a commit."""
        for name, _ in self.commits():
            if name not in self._counts:
                self._counts[name] = self.rows_of(name).num_rows
        return sum(self._counts.values()) == self._written_count

    def check(self) -> None:
        """ValueError where a row is missing or came twice."""
        ids = [self.rows_of(name).column("id").to_numpy() for name, _ in self.commits()]
        if not np.array_equal(np.sort(np.concatenate(ids)), np.arange(self._written_count)):
            raise ValueError(f"{self._place} does not have each of its rows once")

    @contextmanager
    def read_by(
        self, contender: str, interval_ms: int, files: int = 1000
    ) -> Iterator[Callable[[Callable[[], bool]], None]]:
        """Run the program, with at most `files` in a micro-batch; gives a function that waits for a condition."""
        words = (contender, str(self._place), str(interval_ms), str(files))
        with (
            (self._place / "log").open("w+") as log,
            subprocess.Popen([sys.executable, PROGRAM, *words], stdout=log, stderr=log) as process,
        ):

            def wait(condition: Callable[[], bool]) -> None:
                end_s = time.monotonic() + TIMEOUT_S
                while not condition():
                    if process.poll() is not None or time.monotonic() > end_s:
                        text = (self._place / "log").read_text()[-3000:]
                        raise RuntimeError(f"{contender} ended or took too long:\n{text}")
                    time.sleep(0.1)

            try:
                yield wait
                (self._place / "stop").touch()
                process.wait(TIMEOUT_S)
            finally:
                process.kill()


def measure_rate(contender: str, interval_ms: int, row_count: int) -> dict[str, float]:
    """Return rows per second from the first commit to the last."""
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place))
        for _ in range(FILE_COUNT):
            folder.put(row_count // FILE_COUNT)
        with folder.read_by(contender, interval_ms, FILES_PER_MICRO_BATCH) as wait:
            wait(folder.is_all_committed)
        folder.check()
        (_, first_s), *others = folder.commits()
        rows = sum(folder.rows_of(name).num_rows for name, _ in others)
        return {"rows_per_s": rows / (others[-1][1] - first_s)}


def measure_latency(contender: str, interval_ms: int, seconds: float) -> dict[str, float]:
    """Return percentiles in ms of what a row takes; rows of the first quarter are the warm-up."""
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place))
        folder.put(ROWS_PER_SMALL_FILE)
        with folder.read_by(contender, interval_ms) as wait:
            wait(folder.is_all_committed)
            begin_s = time.time()
            while (now_s := time.time()) < begin_s + seconds:
                folder.put(ROWS_PER_SMALL_FILE)
                time.sleep(max(0.0, now_s + PERIOD_S - time.time()))
            wait(folder.is_all_committed)
        folder.check()
        return latencies(
            [(folder.rows_of(name), moment) for name, moment in folder.commits()],
            begin_s + seconds / 4,
        )


def latencies(commits: Sequence[tuple[pa.Table, float]], begin_s: float) -> dict[str, float]:
    """Return percentiles in ms of rows written after `begin_s`, until they were seen and until they were committed."""
    found: dict[str, list[np.ndarray[Any, Any]]] = {"seen": [], "committed": []}
    for table, committed_s in commits:
        written, seen = (table.column(name).to_numpy() for name in ("written", "seen"))
        counts = written >= begin_s
        found["seen"].append((seen - written)[counts])
        found["committed"].append((committed_s - written)[counts])
    return {
        f"{name}_p{percent}_ms": float(np.percentile(np.concatenate(parts), percent)) * 1e3
        for name, parts in found.items()
        for percent in (50, 99)
    }


def summary(turns: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, float]:
    """Return medians of all turns: `<contender>_<interval>_<figure>`."""
    return {
        f"{name}_{figure}": round(statistics.median(turn[figure] for turn in taken), 1)
        for name, taken in turns.items()
        for figure in taken[0]
    }


def main() -> None:
    """Measure both in turns."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.streaming_dataframes", description=__doc__
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn for latency")
    parser.add_argument("--rows", type=int, default=4_000_000, help="of each turn for the rate")
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    options = parser.parse_args()
    turns: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.repeats):
        for interval_ms in INTERVALS_MS:
            for contender in CONTENDERS:
                figures = measure_rate(contender, interval_ms, options.rows)
                figures |= measure_latency(contender, interval_ms, options.seconds)
                print(contender, interval_ms, figures, file=sys.stderr, flush=True)
                turns.setdefault(f"{contender}_{interval_ms}ms", []).append(figures)
    given = {"repeats": options.repeats, "seconds": options.seconds, "rows": options.rows}
    show_or_record("streaming_dataframes", given | summary(turns), is_dry=options.dry)


if __name__ == "__main__":
    main()

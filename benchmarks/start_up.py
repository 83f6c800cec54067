"""How long does it take from a command to the first record, and where does that time go?

`headrace run programs/first_record.py`, the same with an archive of Spark's classes (where `headrace warm-up` has made
one), and the same program by Spark Structured Streaming take turns as whole processes: the interpreter and its imports,
Spark's JVM, and for us the TaskManagers within its Python workers, then the job. Both read two text files and map each
line in Python. Figures are medians of seconds since the process was started: the program begins; the job is given; its
first record is mapped; the program sees it; the process has ended.

Spark's web page is off in both.

    python -m benchmarks.start_up [--repeats 5]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.record import record_result
from headrace.spark.session.class_archive import class_archive
from headrace.spark.session.java_runtime import ensure_java, user_cache_directory

PROGRAMS: Final = Path(__file__).parent / "programs"
HEADRACE: Final = (
    *(str(Path(sys.executable).parent / "headrace"), "run", "--no-progress", "-p", "2"),
    *("-D", "spark.ui.enabled=false"),
    str(PROGRAMS / "first_record.py"),
)
SPARK: Final = (sys.executable, str(PROGRAMS / "first_record_pyspark.py"))
STEPS: Final = ("began", "submitted", "mapped", "seen", "ended")
LINE_COUNT: Final = 10
FILE_COUNT: Final = 2
TIMEOUT_SECONDS: Final = 300


@dataclass(frozen=True)
class Contender:
    """A command, and what its environment has besides ours."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def contenders(empty_cache: Path) -> dict[str, Contender]:
    """Return who takes turns; with an archive of Spark's classes where this user has one.

    An archive of another Java or Spark, or of classes that are not those of today, counts for none: no JVM maps it.
    """
    ways: dict[str, dict[str, str]] = {"headrace": {"XDG_CACHE_HOME": str(empty_cache)}}
    java = ensure_java()
    if java is not None and class_archive(java, user_cache_directory(os.environ)).is_file():
        ways["warmed_up"] = {}
    else:
        print(
            "not measured: Headrace with an archive of Spark's classes; for that, run 'headrace warm-up' first"
        )
    ours = {name: Contender(HEADRACE, environment) for name, environment in ways.items()}
    return ours | {"spark": Contender(SPARK)}


def run_once(contender: Contender, directory: Path) -> dict[str, float]:
    """Run a program to its end; return seconds from its start to each step."""
    command = contender.command
    started = time.time()
    done = subprocess.run(
        [*command, str(directory)],
        env=os.environ | dict(contender.environment),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    ended = time.time()
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(told) != 1:
        raise RuntimeError(
            f"{' '.join(command)} failed:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        )
    moments = json.loads(told[0]) | {"ended": ended}
    if moments["records"] != LINE_COUNT * FILE_COUNT:
        raise ValueError(f"{moments['records']} records instead of {LINE_COUNT * FILE_COUNT}")
    return {step: moments[step] - started for step in STEPS}


def write_lines(directory: Path) -> None:
    """Write what both read."""
    for number in range(FILE_COUNT):
        lines = "".join(f"line {line} of file {number}\n" for line in range(LINE_COUNT))
        (directory / f"lines-{number}.txt").write_text(lines)


def summary(turns: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Return the medians of all steps, and how many times as long as ours the rival's first record takes."""
    medians = {
        name: {step: statistics.median(turn[step] for turn in taken) for step in STEPS}
        for name, taken in turns.items()
    }
    figures = {
        f"{name}_{step}_s": round(seconds, 3)
        for name, steps in medians.items()
        for step, seconds in steps.items()
    }
    ratios = {
        f"{name}_ratio": round(
            statistics.median(
                rival["seen"] / ours["seen"]
                for ours, rival in zip(taken, turns["spark"], strict=True)
            ),
            3,
        )
        for name, taken in turns.items()
        if name != "spark"
    }
    return figures | ratios


def main() -> None:
    """Measure both in turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start_up", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    repeats: int = given.repeats
    with tempfile.TemporaryDirectory() as lines, tempfile.TemporaryDirectory() as cache:
        write_lines(Path(lines))
        found = contenders(Path(cache))
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in found}
        for _ in range(repeats):
            for name, contender in found.items():
                turns[name].append(run_once(contender, Path(lines)))
    record_result("start_up", {"repeats": repeats} | summary(turns))


if __name__ == "__main__":
    main()

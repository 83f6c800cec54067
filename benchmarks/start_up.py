"""How long does it take from a command to the first record, and where does that time go?

`headrace run programs/first_record.py` and the same program by Spark Structured Streaming take turns as whole
processes: the interpreter and its imports, Spark's JVM, and for us the TaskManagers within its Python workers, then
the job. Both read two text files and map each line in Python. Figures are medians of seconds since the process was
started: the program begins; the job is given; its first record is mapped; the program sees it; the process has ended.

    python -m benchmarks.start_up [--repeats 5]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.record import record_result

PROGRAMS: Final = Path(__file__).parent / "programs"
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "headrace": (
        *(str(Path(sys.executable).parent / "headrace"), "run", "--no-progress", "-p", "2"),
        str(PROGRAMS / "first_record.py"),
    ),
    "spark": (sys.executable, str(PROGRAMS / "first_record_pyspark.py")),
}
STEPS: Final = ("began", "submitted", "mapped", "seen", "ended")
LINE_COUNT: Final = 10
FILE_COUNT: Final = 2
TIMEOUT_SECONDS: Final = 300


def run_once(command: Sequence[str], directory: Path) -> dict[str, float]:
    """Run a program to its end; return seconds from its start to each step."""
    started = time.time()
    done = subprocess.run(
        [*command, str(directory)],
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
    """Return the medians of all steps, and how many times ours the rival's first record takes."""
    medians = {
        name: {step: statistics.median(turn[step] for turn in taken) for step in STEPS}
        for name, taken in turns.items()
    }
    ratio = statistics.median(
        rival["seen"] / ours["seen"]
        for ours, rival in zip(turns["headrace"], turns["spark"], strict=True)
    )
    figures = {
        f"{name}_{step}_s": round(seconds, 3)
        for name, steps in medians.items()
        for step, seconds in steps.items()
    }
    return figures | {"spark_ratio": round(ratio, 3)}


def main() -> None:
    """Measure both in turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start_up", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats: int = parser.parse_args().repeats
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as name:
        write_lines(Path(name))
        for _ in range(repeats):
            for engine, command in COMMANDS.items():
                turns[engine].append(run_once(command, Path(name)))
    record_result("start_up", {"repeats": repeats} | summary(turns))


if __name__ == "__main__":
    main()

"""How many Nexmark rows per second does each query take, on two TaskManagers with exactly-once checkpoints?

    python -m benchmarks.nexmark [q1 q7 ...] [--events 10000000] [--repeats 3] [--local] [--root DIRECTORY]

Headrace and DuckDB, the batch ceiling (two threads, same files), take turns. Rows are those of the kinds a query reads;
the time of Headrace is what the JobMaster says of its job, from submission to the end, deployment included and the
start of processes not. Headrace throws its results away, DuckDB keeps them as a table. `--local`: both TaskManagers in
one process, without Spark; the figures say which it was, and only then have processor seconds of Headrace. Whether
results are the same is the question of `check.py`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.nexmark.check import ROOT, peers_python
from benchmarks.nexmark.files import events_directory
from benchmarks.nexmark.queries import QUERIES
from benchmarks.record import record_result

RUN_TIMEOUT_SECONDS = 600


def run(command: list[str]) -> dict[str, Any]:
    """Return the JSON line that a program prints last."""
    done = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(query: str, events: Path, repeats: int, *, is_local: bool) -> dict[str, Any]:
    """Let both engines take turns; return medians."""
    program = [sys.executable, "-m", "benchmarks.nexmark.program", query, str(events)]
    answers = [peers_python(), str(Path(__file__).with_name("answers.py")), query, str(events)]
    commands = {"headrace": [*program, "--local"] if is_local else program, "duckdb": answers}
    found: dict[str, list[dict[str, Any]]] = {engine: [] for engine in commands}
    for _ in range(repeats):
        for engine, command in commands.items():
            found[engine].append(run(command))
    input_rows = found["headrace"][0]["input_rows"]
    figures: dict[str, Any] = {
        "query": query,
        "host": "one process" if is_local else "spark",
        "input_rows": input_rows,
        "repeats": repeats,
    }
    for engine, runs in found.items():
        milliseconds = statistics.median(one["net_runtime_ms"] for one in runs)
        figures[f"{engine}_rows_per_second"] = round(input_rows / milliseconds * 1000)
        if "cpu_seconds" in runs[0]:
            cpu_seconds = statistics.median(one["cpu_seconds"] for one in runs)
            figures[f"{engine}_cpu_seconds"] = round(cpu_seconds, 2)
    return figures


def main() -> None:
    """Measure the queries named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queries", nargs="*", default=list(QUERIES))
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--root", type=Path, default=Path(tempfile.gettempdir()) / "nexmark")
    arguments = parser.parse_args()
    events = events_directory(arguments.root, arguments.events)
    for query in arguments.queries:
        record_result(
            "nexmark", measure(query, events, arguments.repeats, is_local=arguments.local)
        )


if __name__ == "__main__":
    main()

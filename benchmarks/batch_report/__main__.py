"""How fast are bounded programs in BATCH mode, against STREAMING mode and against Spark SQL with pandas UDFs?

Each turn is a process of its own, the ways one after another; a way's answer over the smaller set has to be that of all
others. Kept are records per second of all turns, by query and way, in `results/batch_report.jsonl`.

    python -m benchmarks.batch_report --root DIRECTORY [--events 10000000] [--turns 3] [--queries currency ...]
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.batch_report.headrace_way import MODE_VARIABLE
from benchmarks.batch_report.queries import QUERIES
from benchmarks.batch_report.tables import tables_directory
from benchmarks.nexmark.files import events_directory, row_counts
from benchmarks.record import record_result

SMALL: Final = 100_000
TIMEOUT_SECONDS: Final = 900
TABLES: Final = frozenset({"item", "order"})
WAYS: Final = {
    "batch": ("headrace_way", {MODE_VARIABLE: "BATCH"}),
    "streaming": ("headrace_way", {MODE_VARIABLE: "STREAMING"}),
    "spark": ("spark_way", {}),
}


def turn(way: str, query: str, small: Path, large: Path) -> dict[str, Any]:
    """Return what a way says of one run; CalledProcessError where it fails."""
    module, variables = WAYS[way]
    command = [sys.executable, "-m", f"benchmarks.batch_report.{module}", query, small, large]
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, **variables},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1])


def folder(root: Path, query: str, count: int) -> Path:
    """Return the folder of what a query reads."""
    kinds = tuple(QUERIES[query].reads)
    if TABLES.issuperset(kinds):
        return tables_directory(root, count)
    return events_directory(root, count, kinds=kinds)


def main() -> None:
    """Take all turns of a query, then those of the next one."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--events", type=int, default=10_000_000, help="(%(default)s)")
    parser.add_argument("--turns", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    asked = parser.parse_args()
    for query in asked.queries:
        small, large = (folder(asked.root, query, count) for count in (SMALL, asked.events))
        counts = row_counts(large)
        rows = sum(counts[kind] for kind in QUERIES[query].reads)
        rates: dict[str, list[float]] = {way: [] for way in asked.ways}
        answers: dict[str, Any] = {}
        for _ in range(asked.turns):
            for way in asked.ways:
                told = turn(way, query, small, large)
                rates[way].append(round(rows / told["seconds"]))
                answers[way] = told["answer"]
        if len({tuple(answer) for answer in answers.values()}) > 1:
            raise ValueError(f"the ways disagree about '{query}': {answers}")
        shape = {"query": query, "events": asked.events, "records": rows, "turns": asked.turns}
        record_result("batch_report", {**shape, "records_per_second": rates})


if __name__ == "__main__":
    main()

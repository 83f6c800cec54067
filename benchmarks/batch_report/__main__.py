"""How fast are bounded programs in BATCH mode, against STREAMING mode, Spark SQL with pandas UDFs, and PyFlink?

Each turn is a process of its own, the ways one after another; a way's answer over the smaller set has to be that of all
others. Kept are records per second of all turns, by query and way, in `results/batch_report.jsonl`. PyFlink runs where
an interpreter that has it is given: its DataStream API for queries with a Python function of one record, over fewer
events, and its SQL for the others.

    python -m benchmarks.batch_report --root DIRECTORY [--events 10000000] [--turns 3] [--queries currency ...]
        [--pyflink-python PATH]
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.batch_report.headrace_way import MODE_VARIABLE
from benchmarks.batch_report.queries import PYFLINK_MODE_VARIABLE, QUERIES
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
    "pyflink_thread": ("pyflink_way", {PYFLINK_MODE_VARIABLE: "thread"}),
    "pyflink_process": ("pyflink_way", {PYFLINK_MODE_VARIABLE: "process"}),
    "pyflink_sql": ("flink_sql_way", {}),
}
PYFLINK: Final = "pyflink"
PYFLINK_SQL: Final = frozenset({"pyflink_sql"})
PYFLINK_STREAMS: Final = frozenset({"pyflink_thread", "pyflink_process"})
CHECKOUT: Final = Path(__file__).parents[2]


def turn(way: str, query: str, small: Path, large: Path, python: str) -> dict[str, Any]:
    """Return what a way says of one run in an interpreter; CalledProcessError where it fails."""
    module, variables = WAYS[way]
    # PyFlink starts `python` from PATH for its workers, which import the queries' functions.
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
    variables = {**variables, "PATH": path, "PYTHONPATH": str(CHECKOUT)}
    command = [python, "-m", f"benchmarks.batch_report.{module}", query, small, large]
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


def ways_of(query: str, asked: Sequence[str], *, has_pyflink: bool) -> list[str]:
    """Return the ways of those that were asked for which have a program of a query and can run here."""
    no_program = PYFLINK_SQL if QUERIES[query].is_per_record else PYFLINK_STREAMS
    return [
        way
        for way in asked
        if way not in no_program and (has_pyflink or not way.startswith(PYFLINK))
    ]


def refuse_different(query: str, answers: Mapping[str, Sequence[int]]) -> None:
    """Raise ValueError unless all ways gave the same rows."""
    if len(set(map(tuple, answers.values()))) > 1:
        raise ValueError(f"the ways disagree about '{query}': {dict(answers)}")


def main() -> None:
    """Take all turns of a query, then those of the next one."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--events", type=int, default=10_000_000, help="(%(default)s)")
    parser.add_argument("--turns", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--pyflink-python", help="an interpreter that has apache-flink")
    asked = parser.parse_args()
    for query in asked.queries:
        ways = ways_of(query, asked.ways, has_pyflink=asked.pyflink_python is not None)
        events = {
            way: min(asked.events, QUERIES[query].pyflink_max or asked.events)
            if way.startswith(PYFLINK)
            else asked.events
            for way in ways
        }
        small = folder(asked.root, query, SMALL)
        rates: dict[str, list[int]] = {way: [] for way in ways}
        answers: dict[str, list[int]] = {}
        for _ in range(asked.turns):
            for way in ways:
                large = folder(asked.root, query, events[way])
                counts = row_counts(large)
                python = asked.pyflink_python if way.startswith(PYFLINK) else sys.executable
                told = turn(way, query, small, large, python)
                records = sum(counts[kind] for kind in QUERIES[query].reads)
                rates[way].append(round(records / told["seconds"]))
                answers[way] = told["answer"]
        refuse_different(query, answers)
        shape = {"query": query, "events": events, "turns": asked.turns}
        record_result("batch_report", {**shape, "records_per_second": rates})


if __name__ == "__main__":
    main()

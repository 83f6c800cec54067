"""Says whether what a peer wrote is what DuckDB makes of the same files, row for row, in any order.

Run by an interpreter that has DuckDB: `python -m benchmarks.nexmark.peers.compare q1 EVENTS RESULTS [--select COLUMNS]`
prints a line of JSON. Results are Parquet or CSV without a head, their columns in the order of the answer's; times are
epoch milliseconds or timestamps. Headrace's columns stand in another order for some queries: `--select` names them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.nexmark.answers import ANSWERS, open_events

PARQUET_MAGIC = b"PAR1"


def result_files(results: Path) -> tuple[list[str], list[str]]:
    """Return the Parquet files and the others below a directory; hidden ones and those of bookkeeping are left out."""
    parquet: list[str] = []
    texts: list[str] = []
    for file in sorted(results.rglob("*")):
        inside = file.relative_to(results).parts
        if not file.is_file() or not file.stat().st_size or any(part[0] in "._" for part in inside):
            continue
        with file.open("rb") as opened:
            is_parquet = opened.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
        (parquet if is_parquet else texts).append(str(file))
    return parquet, texts


def read_results(connection: Any, results: Path) -> None:
    """Make the table `found` of all that a peer wrote."""
    parquet, texts = result_files(results)
    if bool(parquet) == bool(texts):
        raise SystemExit(f"{results} holds {len(parquet)} Parquet files and {len(texts)} others")
    reader = (
        f"read_parquet({parquet}, hive_partitioning = false)"
        if parquet
        else f"read_csv({texts}, header = false, sample_size = -1, hive_partitioning = false)"
    )
    connection.execute(f"CREATE TABLE found AS SELECT * FROM {reader}")


def in_milliseconds(described: list[tuple[Any, ...]]) -> str:
    """Return what to select so that every time is epoch milliseconds, of the names and types of columns."""
    selected: list[str] = []
    for name, kind, *_ in described:
        quoted = '"' + name.replace('"', '""') + '"'
        selected.append(f"epoch_ms({quoted})" if str(kind).startswith("TIMESTAMP") else quoted)
    return ", ".join(selected)


def compare(query: str, events: Path, results: Path, select: str | None) -> dict[str, int]:
    """Return the counts of rows expected, found, missing and unexpected."""
    connection = open_events(events)
    read_results(connection, results)
    columns = select or in_milliseconds(connection.execute("DESCRIBE found").fetchall())
    connection.execute(f"CREATE TABLE expected AS {ANSWERS[query][0]}")
    connection.execute(f"CREATE TABLE ours AS SELECT {columns} FROM found")
    counts: dict[str, int] = {}
    for name, statement in {
        "expected": "SELECT * FROM expected",
        "found": "SELECT * FROM ours",
        "missing": "SELECT * FROM expected EXCEPT ALL SELECT * FROM ours",
        "unexpected": "SELECT * FROM ours EXCEPT ALL SELECT * FROM expected",
    }.items():
        counts[name] = connection.execute(f"SELECT count(*) FROM ({statement})").fetchone()[0]
    return counts


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=sorted(ANSWERS))
    parser.add_argument("events", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--select")
    arguments = parser.parse_args()
    print(
        json.dumps(compare(arguments.query, arguments.events, arguments.results, arguments.select))
    )


if __name__ == "__main__":
    main()

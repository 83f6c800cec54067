"""The events as Parquet: a folder per kind, files in order of arrival, made once per count and seed.

Files follow each other in time, so that a reader which takes them in order sees event time go on, however many readers
share them. `date_time` is epoch milliseconds in an int64, which every engine reads as it is; numbers are stored
plainly, without compression, as the cheapest input there is.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark.arguments import events_argument
from benchmarks.nexmark.events import CYCLE, Events, in_order_of_arrival

KINDS: Final = ("person", "auction", "bid")
FILE_COUNT: Final = 16
ROW_GROUP_ROWS: Final = 131_072
SEED: Final = 42
COUNTS: Final = "counts.json"
CHUNK_EVENTS: Final = 1_000_000
_DICTIONARY_COLUMNS: Final = (
    "name",
    "email_address",
    "city",
    "state",
    "channel",
    "extra",
    "item_name",
)


def events_directory(
    root: Path, event_count: int, seed: int = SEED, kinds: Sequence[str] = KINDS
) -> Path:
    """Return the folder with the files of so many events of some kinds; those that are not there yet are made."""
    directory = root / f"nexmark-{event_count}-{seed}"
    there = row_counts(directory)
    missing = [kind for kind in KINDS if kind in kinds and kind not in there]
    if missing:
        write_events(directory, event_count, seed, missing)
    return directory


def row_counts(directory: Path) -> dict[str, int]:
    """Return how many rows there are of each kind that was made as a whole; nothing where no kind was."""
    file = directory / COUNTS
    return json.loads(file.read_text()) if file.exists() else {}


def write_events(
    directory: Path, event_count: int, seed: int, kinds: Sequence[str] = KINDS
) -> None:
    """Write the files of some kinds, beside those of others; `counts.json` comes last and names the whole ones."""
    tables: dict[str, list[pa.Table]] = {kind: [] for kind in kinds}
    for first in range(0, event_count, CHUNK_EVENTS):
        count = min(CHUNK_EVENTS, event_count - first)
        events = Events(first, count - count % CYCLE, seed)
        # In this order, as the kinds share one sequence of random numbers.
        makers = {"person": events.persons, "auction": events.auctions, "bid": events.bids}
        for kind in KINDS[: 1 + max(map(KINDS.index, kinds))]:
            table = makers[kind]()
            if kind in tables:
                tables[kind].append(table)
    counts = row_counts(directory)
    for kind in kinds:
        rows = in_order_of_arrival(pa.concat_tables(tables.pop(kind)), seed)
        counts[kind] = rows.num_rows
        shutil.rmtree(directory / kind, ignore_errors=True)
        _write_kind(directory / kind, rows)
    (directory / COUNTS).write_text(json.dumps(counts))


def _write_kind(directory: Path, rows: pa.Table) -> None:
    directory.mkdir(parents=True)
    for index in range(FILE_COUNT):
        begin, end = (rows.num_rows * at // FILE_COUNT for at in (index, index + 1))
        dictionaries: Any = [name for name in _DICTIONARY_COLUMNS if name in rows.column_names]
        pq.write_table(
            rows.slice(begin, end - begin),
            directory / f"part-{index:03}.parquet",
            row_group_size=ROW_GROUP_ROWS,
            compression="none",
            use_dictionary=dictionaries,
        )


def main() -> None:
    """Make the files of `--events` events below `--root`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--events", type=events_argument, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="(all)")
    arguments = parser.parse_args()
    directory = events_directory(arguments.root, arguments.events, arguments.seed, arguments.kinds)
    print(directory, row_counts(directory))


if __name__ == "__main__":
    main()

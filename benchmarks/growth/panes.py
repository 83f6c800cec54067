"""What does a record cost by the number of panes of its sliding window?

A window of n panes begins every second, so that each record lies in n of them, and each window holds n seconds.
`columns` counts per key on columns, which keep a record once and merge n panes when a window fires; `records` reduces
record by record, where each record goes into n windows, as in Flink.

    python -m benchmarks.growth.panes [--panes 1 5 20 100 500]
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.growth.columnar import (
    SLIDE_MS,
    count_in_panes,
    reduce_in_panes,
    seconds_of,
    write_rows,
)
from benchmarks.growth.series import keep, measure_series
from headrace import DataStream

PANES = (1, 5, 20, 100, 500)
KEYS, PANE_COUNT = 100, 600
"""Of all rows: more panes than any window has."""
COLUMNAR_ROWS = 1_000_000
WINDOWS_OF_RECORDS = 100_000
"""How many times a record is put into a window, by record; it bounds the run."""


def cost_us(pane_count: int, row_count: int, build: Callable[[DataStream], DataStream]) -> float:
    """Return microseconds of processor time per row."""
    with tempfile.TemporaryDirectory() as directory:
        write_rows(Path(directory), row_count, KEYS, PANE_COUNT * SLIDE_MS)
        return seconds_of(Path(directory), build) / row_count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--panes", type=int, nargs="+", default=PANES)
    arguments = parser.parse_args()
    load_before = round(os.getloadavg()[0], 2)

    def by_column(pane_count: int) -> float:
        return cost_us(pane_count, COLUMNAR_ROWS, count_in_panes(pane_count))

    def by_record(pane_count: int) -> float:
        row_count = max(1_000, min(20_000, WINDOWS_OF_RECORDS // pane_count))
        return cost_us(pane_count, row_count, reduce_in_panes(pane_count))

    unit = "µs per record"
    columns = measure_series("panes", "columns", "panes", unit, 1.0, arguments.panes, by_column)
    records = measure_series("panes", "records", "panes", unit, 1.0, arguments.panes, by_record)
    keep([columns, records], load_before)


if __name__ == "__main__":
    main()

"""What does a record cost by the number of keys?

`heap` and `rocksdb`: one read and one write of a key's count, keys drawn at random, once every key has its state.
`columns`: a row of a columnar count per key, all in one window, on a cluster in this process; at least one row per key.

    python -m benchmarks.growth.keys [--keys 1000 10000 … 10000000] [--backends heap rocksdb columns]
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.growth.columnar import count_in_one_window, seconds_of, write_rows
from benchmarks.growth.series import Series, keep, measure_series
from benchmarks.state.filled import FilledState
from headrace.core.types.type_info import Types
from headrace.functions.state import ValueStateDescriptor

KEYS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
KEYS_MAX = {"heap": 10_000_000, "rocksdb": 1_000_000, "columns": 10_000_000}
"""What fits a machine of 8 GB, and a minute."""
ACCESSES = 200_000
ROWS_MIN = 2_000_000


def access_us(backend: str, key_count: int) -> float:
    """Return microseconds of processor time for a read and a write, of random keys."""
    with FilledState(backend) as filled:
        scope = filled.backend.key_scope
        count: Any = filled.backend.get_state(ValueStateDescriptor("count", Types.LONG()), scope)
        for key in range(key_count):
            scope.entry = key
            count.update(key)
        drawn = np.random.default_rng(7).integers(0, key_count, ACCESSES).tolist()
        began = time.process_time()
        for key in drawn:
            scope.entry = key
            count.update(count.value() + 1)
        return (time.process_time() - began) / ACCESSES * 1e6


def columnar_us(key_count: int) -> float:
    """Return microseconds of processor time per row."""
    row_count = max(ROWS_MIN, key_count)
    with tempfile.TemporaryDirectory() as directory:
        write_rows(Path(directory), row_count, key_count, duration_ms=1_000_000)
        return seconds_of(Path(directory), count_in_one_window) / row_count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS)
    parser.add_argument("--backends", nargs="+", choices=list(KEYS_MAX), default=list(KEYS_MAX))
    arguments = parser.parse_args()
    load_before = round(os.getloadavg()[0], 2)
    series: list[Series] = []
    for backend in arguments.backends:

        def cost_us(key_count: int, backend: str = backend) -> float:
            return columnar_us(key_count) if backend == "columns" else access_us(backend, key_count)

        sizes = [count for count in arguments.keys if count <= KEYS_MAX[backend]]
        series.append(measure_series("keys", backend, "keys", "µs per record", 0.0, sizes, cost_us))
    keep(series, load_before)


if __name__ == "__main__":
    main()

"""What does a record cost by the number of keys, and a key in bytes?

`heap` and `rocksdb`: one read and one write of a key's count, keys drawn at random, once every key has its state. Bytes
are those by which a process of its own grows meanwhile, and those of RocksDB's files after a checkpoint.
`columns`: a row of a columnar count per key, all in one window, on a cluster in this process; at least one row per key.

    python -m benchmarks.growth.keys [--keys 1000 10000 … 10000000] [--backends heap rocksdb columns]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fresh_process import in_fresh_process
from benchmarks.growth.columnar import count_in_one_window, seconds_of, write_rows
from benchmarks.growth.series import Series, keep, measure_series
from benchmarks.state.filled import FilledState
from headrace.core.process.process_memory import resident_memory_bytes
from headrace.core.types.type_info import Types
from headrace.functions.state import ValueStateDescriptor

BACKENDS = ("heap", "rocksdb", "columns")
KEYS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
ACCESSES = 200_000
ROWS_MIN = 2_000_000
BYTES = "key_bytes"
"""The second question that is answered here."""


@dataclass(frozen=True)
class StateCost:
    """Microseconds of processor time for a read and a write of a random key; bytes of all keys."""

    access_us: float
    memory_bytes: int
    disk_bytes: int


def state_cost(backend: str, key_count: int) -> StateCost:
    """Measure a backend with so many keys."""
    with FilledState(backend) as filled:
        scope = filled.backend.key_scope
        count: Any = filled.backend.get_state(ValueStateDescriptor("count", Types.LONG()), scope)
        drawn = np.random.default_rng(7).integers(0, key_count, ACCESSES).tolist()
        resident_before = resident_memory_bytes()
        for key in range(key_count):
            scope.entry = key
            count.update(key + 1)  # a number of its own, as counts are
        began = time.process_time()
        for key in drawn:
            scope.entry = key
            count.update(count.value() + 1)
        access_us = (time.process_time() - began) / ACCESSES * 1e6
        memory_bytes = resident_memory_bytes() - resident_before
        # Before it only what write buffers had no room for is in files.
        filled.freeze(checkpoint_id=1)
        return StateCost(access_us, memory_bytes, bytes_of_files(Path(filled.directory)))


def bytes_of_files(directory: Path) -> int:
    """Return the bytes of RocksDB's tables; a hard link is no second file."""
    found = [path.stat() for path in directory.rglob("*.sst")]
    return sum({status.st_ino: status.st_size for status in found}.values())


def columnar_us(key_count: int) -> float:
    """Return microseconds of processor time per row."""
    row_count = max(ROWS_MIN, key_count)
    with tempfile.TemporaryDirectory() as directory:
        write_rows(Path(directory), row_count, key_count, duration_ms=1_000_000)
        return seconds_of(Path(directory), count_in_one_window) / row_count * 1e6


def state_series(backend: str, sizes: Sequence[int]) -> list[Series]:
    """Return what an access costs by the number of keys, and the bytes of a key."""
    costs: dict[int, StateCost] = {}

    def access_us(key_count: int) -> float:
        costs[key_count] = in_fresh_process(state_cost, backend, key_count)
        return costs[key_count].access_us

    def memory(key_count: int) -> float:
        return costs[key_count].memory_bytes / key_count

    def disk(key_count: int) -> float:
        return costs[key_count].disk_bytes / key_count

    found = [measure_series("keys", backend, "keys", "µs per record", 0.0, sizes, access_us)]
    measured = {"memory": memory} | ({"disk": disk} if backend == "rocksdb" else {})
    for name, bytes_per_key in measured.items():
        series_name = f"{backend}, {name}"
        found.append(
            measure_series(BYTES, series_name, "keys", "bytes per key", 0.0, sizes, bytes_per_key)
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    arguments = parser.parse_args()
    load_before = round(os.getloadavg()[0], 2)
    series: list[Series] = []
    for backend in arguments.backends:
        if backend == "columns":
            series.append(
                measure_series(
                    "keys", backend, "keys", "µs per record", 0.0, arguments.keys, columnar_us
                )
            )
        else:
            series += state_series(backend, arguments.keys)
    keep(series, load_before)


if __name__ == "__main__":
    main()

"""How much memory does a job in BATCH mode take whose keys' state is larger than its workers' memory?

Numbers are keyed by their remainders, so that each key comes `--records` / `--keys` times, far apart; a Python function
counts those of each key in value state and gives the count when the key ends. With `--columns` a built-in aggregate
counts them, and no function is called for a record; its figures are kept by themselves. A Python worker may hold 2 GiB.
Kept are the largest resident sizes of the Python workers and of Spark's JVM, what of them lay in swap, which must be
nothing, the bytes that a key's state takes in one process beside them where all of them are held in a dict, and the
seconds of the job. Counts that do not add up are an error, as are more bytes of a worker than `--limit`.

    python -m benchmarks.batch_keys [--records 40000000] [--keys 20000000] [--parallelism 2] [--limit 2147483648]
        [--columns]
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.batch_modes import COUNT, Count
from benchmarks.nexmark.queries import END_OF_INPUT
from benchmarks.record import record_result
from headrace import agg, col
from headrace.common import Types, WatermarkStrategy
from headrace.core.process.memory_parts import PROCESS_MEMORY
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.connectors.number_seq import NumberSequenceSource

SAMPLES_PER_SECOND: Final = 10
SAMPLE_KEYS: Final = 1_000_000
"""Keys by which the size of one key's state in a dict is measured."""
KIB: Final = 1_024
WORKER_SIZE: Final = "2g"
"""What each Python worker may hold; a subtask that holds more fails."""


class Watch:
    """Samples the processes that this one has started until it is closed; `largest`: bytes by kind of process."""

    def __init__(self) -> None:
        self.largest: Final = {"worker": 0, "jvm": 0}
        self.swapped = 0
        self._closed: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sample no more."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(1 / SAMPLES_PER_SECOND):
            for kind, status in descendants():
                self.largest[kind] = max(self.largest[kind], kibibytes(status, "VmHWM"))
                self.swapped = max(self.swapped, kibibytes(status, "VmSwap"))


def kibibytes(status: Mapping[str, str], name: str) -> int:
    """Return a field of /proc/<pid>/status in bytes; 0 where a process that ends has none."""
    return int(status.get(name, "0 kB").split()[0]) * KIB


def descendants() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the kind and the status of each process that this one, or one of these, has started."""
    found: dict[int, Mapping[str, str]] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            lines = (directory / "status").read_text().splitlines()
        except OSError:
            continue  # it has ended
        found[int(directory.name)] = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    own = {int(Path("/proc/self").resolve().name)}
    grown = True
    while grown:
        more = {pid for pid, status in found.items() if int(status["PPid"]) in own} - own
        own |= more
        grown = bool(more)
        for pid in more:
            yield ("jvm" if found[pid]["Name"] == "java" else "worker"), found[pid]


def bytes_of_key() -> int:
    """Return what a key with its count takes in a dict."""
    states = {key: [key] for key in range(1_000, 1_000 + SAMPLE_KEYS)}
    objects = sum(sys.getsizeof(key) + sys.getsizeof(state) for key, state in states.items())
    return round((sys.getsizeof(states) + objects) / SAMPLE_KEYS)


def run(records: int, keys: int, parallelism: int, *, in_columns: bool) -> tuple[int, int]:
    """Run the job; return the number of keys and the sum of their counts."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(
        {
            "execution.runtime-mode": "BATCH",
            "headrace.spark.master": "local[4]",
            PROCESS_MEMORY.key: WORKER_SIZE,
        }
    )
    env.set_parallelism(parallelism)
    numbers = env.from_source(
        NumberSequenceSource(0, records - 1), WatermarkStrategy.no_watermarks(), "numbers"
    )
    if in_columns:
        keyed = numbers.select(key=col("value") % keys).key_by("key")
        counted, count = keyed.window(END_OF_INPUT).aggregate(agg.count().alias("count")), "count"
    else:
        keyed = numbers.key_by(lambda number: number % keys, Types.LONG())
        counted, count = keyed.process(Count(), COUNT), "f1"
    total = counted.window_all(END_OF_INPUT).aggregate(
        agg.count().alias("keys"), agg.sum(count).alias("records")
    )
    with total.execute_and_collect() as rows:
        ((*_, found_keys, found_records),) = rows
    return found_keys, found_records


def main() -> None:
    """Run the job once, beside a watch."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--records", type=int, default=40_000_000, help="(%(default)s)")
    parser.add_argument("--keys", type=int, default=20_000_000, help="(%(default)s)")
    parser.add_argument("--parallelism", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--limit", type=int, default=2 << 30, help="bytes (%(default)s)")
    parser.add_argument("--columns", action="store_true", help="count in columns")
    asked = parser.parse_args()
    watch = Watch()
    started = time.monotonic()
    found = run(asked.records, asked.keys, asked.parallelism, in_columns=asked.columns)
    seconds = time.monotonic() - started
    watch.close()
    if found != (asked.keys, asked.records):
        raise ValueError(f"{found} instead of {asked.keys} keys with {asked.records} records")
    figures: dict[str, Any] = {
        "records": asked.records,
        "keys": asked.keys,
        "parallelism": asked.parallelism,
        "seconds": round(seconds, 1),
        "worker_bytes_max": watch.largest["worker"],
        "jvm_bytes_max": watch.largest["jvm"],
        "swapped_bytes_max": watch.swapped,
        "state_bytes_in_a_dict": asked.keys * bytes_of_key(),
    }
    if watch.largest["worker"] > asked.limit:
        raise ValueError(f"a worker took more than {asked.limit} bytes: {figures}")
    if watch.swapped:
        raise ValueError(f"processes lay in swap, where their sizes do not count it: {figures}")
    record_result("batch_keys_columns" if asked.columns else "batch_keys", figures)


if __name__ == "__main__":
    main()
